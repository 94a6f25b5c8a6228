import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from support.helpers import CORPUS_TEXT

from benchmarks import corpus, heads, low_rank, refusals, saving, shakespeare, whole_texts
from gpt_cli.text.tokenizers import ByteTokenizer, CharTokenizer


def test_the_benchmark_of_saving_gives_its_share(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["saving", "--config", "smoke", "--rounds", "1"])
    saving.main()
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["share"] == pytest.approx(
        (found["checkpoint"] + found["best"]) / (10 * found["step"] + found["checkpoint"] + found["best"])
    )
    assert 1 < found["bytes_per_tensor_byte"] < 1.2
    assert list(here.iterdir()) == []


@pytest.mark.long
def test_the_benchmark_of_learning_times_the_whole_command(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.txt").write_text(CORPUS_TEXT)
    options = ["--config", "smoke", "--data", "a.txt", "--seeds", "1", "--steps", "2"]
    monkeypatch.setattr(sys, "argv", ["shakespeare", *options])
    started = time.perf_counter()
    shakespeare.main()
    passed = time.perf_counter() - started
    lines = capsys.readouterr().out.splitlines()
    found = json.loads(lines[-1])
    assert lines[-2] == f"ratio {found['plain_seconds'] / found['seconds']:.1f}"
    assert 0 < found["seconds"] < passed
    monkeypatch.setattr(sys, "argv", ["shakespeare", "--data", "nothing.txt"])
    with pytest.raises(SystemExit, match=r"nothing\.txt"):
        shakespeare.main()


@pytest.mark.long
def test_the_benchmark_of_parts_gives_memory_and_ratios(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(low_rank, "variants", lambda _: {"all weights": {}, "rank 8": {"rank": 8}})
    tiny = [word for size in ("d_model=16", "num_heads=2", "num_blocks=2") for word in ("--set", f"model.{size}")]
    monkeypatch.setattr(sys, "argv", ["low_rank", "--config", "smoke", *tiny, "--rounds", "1", "--json"])
    low_rank.main()
    whole, part = json.loads(capsys.readouterr().out.splitlines()[-1])["variants"]
    assert part["ratio"] == pytest.approx(part["seconds"] / whole["seconds"])
    assert part["trained"] < whole["trained"]
    assert min(part["peak"], whole["peak"]) > 0


def test_the_benchmark_of_heads_gives_ratios_to_an_evaluation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(heads, "VOCAB_SIZE", 50)
    monkeypatch.setattr(sys, "argv", ["heads", "--config", "smoke", "--tokens", "128", "--cpu-time", "--all"])
    heads.main()
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    forms = [row["form"].partition(",")[0] for row in rows]
    own = ["report", "--passages 3", "--circuits"]
    assert forms == [*own, "--ablate layer", "--ablate zero", "--ablate mean"]  # auto is float32 here
    for row in rows:
        assert row["ratio"] == pytest.approx(row["seconds"] / row["evaluation"])


def test_the_benchmark_of_refusals_compares_with_a_clean_command(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clean = refusals.Cost(0, False, 0.0, 0.0, 0)
    monkeypatch.setattr(refusals, "clean_commands", lambda _: {False: clean, True: clean})
    monkeypatch.setattr(sys, "argv", ["refusals", "--only", "Y3 1 GB", "--json"])
    refusals.main()
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["code"], row["size"]) == (2, 10**9 + len("configchecka.yaml"))
    assert row["said"] == 'error: "a.yaml": a config has at most 1,000,000 bytes, but this file has 1,000,000,000'
    assert row["seconds"] > 0
    assert 0 < row["memory"] < 200e6  # of all that is imported
    assert list(here.iterdir()) == []


def test_the_plain_trainer_learns() -> None:
    torch.manual_seed(0)
    trainer = shakespeare.PlainTrainer(CORPUS_TEXT)
    losses = [trainer.step() for _ in range(20)]
    assert losses[-1] < losses[0] - 0.5


@pytest.mark.long
def test_the_benchmark_of_large_texts_compares_with_the_whole_text_in_memory(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.txt").write_text(CORPUS_TEXT)
    # the ids of 2.5 MB go to the cache, from which batches are read
    sizes = ["--megabytes", "0.1", "--large", "2.5", "--files", "3", "--rounds", "1"]
    monkeypatch.setattr(sys, "argv", ["corpus", *sizes, "--config", "smoke", "--data", "a.txt", "--json"])
    cache = os.environ["XDG_CACHE_HOME"]
    corpus.main()
    rows = json.loads(capsys.readouterr().out)["rows"]
    figures = {(row["work"], row["form"]): row["figure"] for row in rows}
    ratios = {(row["work"], row["form"]): row["ratio"] for row in rows}
    before = "whole text in memory"
    for work in ("one pass", "tokenizing, byte"):  # faster is more MB/s
        form = "gpt" if work == "one pass" else "gpt, 1 core"
        assert ratios[work, form] == pytest.approx(figures[work, form] / figures[work, before])
    for work in ("first start, 0.1 MB", "next start, 3 files"):  # and fewer seconds
        assert ratios[work, "gpt"] == pytest.approx(figures[work, before] / figures[work, "gpt"])
    assert figures["peak memory", "imports alone"] < figures["peak memory", "gpt, 2.5 MB"]
    for form in ("np.memmap", "gpt", "gpt, not announced", "ids in memory"):
        share = 100 * figures["reading a batch", form] / figures["a step", "smoke"]
        assert figures["share of a step", form] == pytest.approx(share)
    assert [path.name for path in here.iterdir()] == ["a.txt"]
    assert os.environ["XDG_CACHE_HOME"] == cache


def test_the_text_of_a_benchmark_is_its_lines_in_new_orders(here: Path) -> None:
    corpus.write_text(Path("text.txt"), ["one\n", "two\n", "\u4e09\n"], 31e-6)
    content = Path("text.txt").read_bytes()
    assert len(content) == 31
    lines = content.decode().splitlines()
    # 12 bytes a repetition; of the last character of the third one there is room for a part
    assert [sorted(lines[0:3]), sorted(lines[3:6])] == [["one", "two", "\u4e09"]] * 2
    assert lines[0:6] != lines[0:3] * 2


def test_the_plain_path_joins_documents_by_end_of_text() -> None:
    documents = ["ab", "c"]
    np.testing.assert_array_equal(whole_texts.encode(documents, ByteTokenizer()), [97, 98, 256, 99])
    np.testing.assert_array_equal(whole_texts.encode(documents, CharTokenizer("abc")), [0, 1, 3, 2])
    learned = whole_texts.learn(["abab " * 100], 257 + 3)
    np.testing.assert_array_equal(whole_texts.encode(["abab"], learned), learned.array("abab"))
