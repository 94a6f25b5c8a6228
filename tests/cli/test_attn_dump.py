import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.helpers import RunCommand
from support.light import WithoutTorch
from support.pages import content_of, unpacked

import gpt_cli
from gpt_cli.attention_maps.head_scores import COLUMNS
from gpt_cli.cli import console
from gpt_cli.tools.interpret import attention_files


@pytest.mark.parametrize("ending", ["png", "Npz"])
def test_a_file_has_the_format_of_its_ending(smoke_run: Path, run: RunCommand, tmp_path: Path, ending: str) -> None:
    outcome = run("attn-dump", "--prompt", "今天 is fine", "--out", tmp_path / f"a.{ending}", "--json", exits=0)
    assert json.loads(outcome.out)["layers"] == [0, 1]
    assert (tmp_path / f"a.{ending}").read_bytes().startswith({"png": b"\x89PNG", "Npz": b"PK"}[ending])


def test_a_signal_leaves_no_unfinished_file(
    smoke_run: Path, run: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: object) -> Iterator[str]:
        yield "layer,head"
        os.kill(os.getpid(), signal.SIGTERM)
        yield "never"

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(attention_files, "gathered", interrupted)
    with pytest.raises(SystemExit) as ended:
        run("attn-dump", "--prompt", "The", "--out", tmp_path / "a.csv")
    assert ended.value.code == 143
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) == before


def test_python_gets_the_numbers_and_a_notebook_the_page(smoke_run: Path, run: RunCommand, tmp_path: Path) -> None:
    words = ["attn-dump", "--prompt", "The value of", "--layers", "1", "--heads", "0,1", "--out", tmp_path / "a.html"]
    printed = json.loads(run(*words, "--json").out)
    attention: Any = gpt_cli.attention  # a type checker would refuse numbers
    found = attention("The value of", layers=1, heads=[0, 1], stage=["values"])
    loaded = gpt_cli.load(smoke_run)
    ids = torch.tensor([loaded.tokenizer.encode("The value of")])
    np.testing.assert_array_equal(found.weights, loaded.model.attention_weights(ids, layers=[1])[:, 0].numpy())
    assert found.stages["values"].shape == (1, 2, 3, 16)
    assert found.as_dict() == printed | {"out": None, "stages": ["weights", "values"]}
    assert found.as_text() == "\n".join(run(*words[:-2]).out.splitlines())
    assert found.as_page().encode() == (tmp_path / "a.html").read_bytes()
    shown = found._repr_mimebundle_()
    assert [*shown] == ["text/html", "image/png", "text/plain"]
    assert shown["image/png"].startswith(b"\x89PNG")
    content = content_of(found.as_page().encode())
    assert len(content["weights"]) <= found.page_bytes() < 2000
    assert len(unpacked(content["scores"]["numbers"], "<f4")) == 2 * len(COLUMNS)
    assert len(unpacked(content["writes"]["tokens"], "<u4")) == 2 * 2 * ids.numel() * content["writes"]["top"]


def test_stages_and_half_precision_are_chosen_by_flags(smoke_run: Path, run: RunCommand, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    words = "--stage scores --stage values --file-dtype float16"
    run("attn-dump", "--prompt", "The", "--out", path, *words.split())
    with np.load(path) as arrays:
        assert {"weights", "scores", "values"} <= set(arrays)
        assert arrays["values"].dtype == np.float16
        assert arrays["values"].shape[:2] == (2, 2)


def test_a_drawing_names_its_model_beside_stdout_and_a_file_or_json_is_alone(
    smoke_run: Path, run: RunCommand, tmp_path: Path
) -> None:
    command = ["attn-dump", "--prompt", "The value of"]
    drawn = run(*command)
    (said,) = drawn.err.splitlines()
    assert re.fullmatch("runs/smoke, step 20: [34] tokens of the prompt", said)
    assert "step 20" not in drawn.out
    assert "step 20" not in run(*command, "--out", tmp_path / "a.npz").err
    assert run(*command, "--quiet").err == ""
    lone = shutil.copy(smoke_run / "checkpoints" / "best.safetensors", tmp_path / "mine.safetensors")
    assert run(*command, "--run", lone).err.startswith(f"{lone}, step 20: ")


def test_without_a_file_it_draws_shades_or_colours_with_a_legend(
    smoke_run: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["attn-dump", "--prompt", "The value of", "--layers", "1", "--heads", "0,1"]
    legend = "yellow: large weight, violet: small weight"
    plain = run(*command).out
    assert plain.startswith("layer 1 head 0\n")
    assert plain.splitlines()[1].endswith("The ██")
    assert "\x1b" not in plain
    assert legend not in plain
    monkeypatch.setattr(console, "colourful", lambda _: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLORTERM", "truecolor")
    last = run(*command).out.splitlines()[-1]
    assert last.endswith(f" 1  {legend}")
    assert last.index("48;2;68;1;84m") < last.index("48;2;253;231;37m"), "from violet to yellow"
    assert run(*command).out.count(legend) == 1


def test_an_empty_prompt_on_stdin_or_in_a_file_is_refused(smoke_run: Path, run: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n")
    for command in (["attn-dump"], ["explain"], ["heads", "--prompt", "-"]):
        for stdin in (b"", b"\n"):
            outcome = run(*command, stdin=stdin, exits=3)
            assert outcome.out == ""
            assert outcome.err.startswith("error: stdin: the prompt is empty\nhint: --prompt ")
    found = run("attn-dump", "--prompt-file", tmp_path / "empty.txt", exits=3)
    assert found.err.splitlines()[0] == f"error: {tmp_path / 'empty.txt'}: the prompt is empty"
    assert run("attn-dump", "--prompt", "").code == 0, "as asked for"
    assert run("sample", "--max-new-tokens", "2").code == 0, "starts a document"


def test_a_reader_that_closes_stdout_ends_it_silently(here: Path) -> None:
    command = f"{sys.executable} -m gpt_cli config schema 2>err.txt; echo $? >code.txt"
    subprocess.run(["sh", "-c", f"({command}) | true"], check=True)
    assert (Path("code.txt").read_text(), Path("err.txt").read_text()) == ("141\n", "")


def test_a_full_disk_below_stderr_is_no_error() -> None:
    command = [sys.executable, "-m", "gpt_cli", "config", "show", "nosuch"]
    with open("/dev/full", "w") as full:
        assert subprocess.run(command, stderr=full).returncode == 2


@pytest.mark.parametrize("command", ["attn-dump", "explain", "heads"])
def test_a_long_prompt_is_refused_with_both_lengths_unless_truncated(
    command: str, smoke_run: Path, run: RunCommand
) -> None:
    words = [command, "--prompt", "a b c d " * 20]
    error, hint = run(*words, exits=3).err.splitlines()
    assert re.fullmatch(r"error: prompt: it has \d+ tokens, but this model sees 32", error)
    assert hint == "hint: --truncate keeps the last tokens"
    shortened = json.loads(run(*words, "--truncate", "--json").out.splitlines()[-1])["tokens"]
    assert (shortened if command == "heads" else len(shortened)) == 32


def test_generated_tokens_are_part_of_the_matrix_with_their_chances(
    smoke_run: Path, run: RunCommand, tmp_path: Path
) -> None:
    options = ["attn-dump", "--prompt", "The value", "--generate", "4", "--seed", "5", "--out", tmp_path / "a.npz"]
    outcome = run(*options, "--json")
    generated = json.loads(outcome.out)["generated"]
    loaded = gpt_cli.load(smoke_run)
    prompt = loaded.tokenizer.encode("The value")
    with np.load(tmp_path / "a.npz", allow_pickle=False) as arrays:
        ids = arrays["token_ids"].tolist()
        assert ids[: len(prompt)] == prompt
        assert len(ids) == len(prompt) + len(generated) == len(prompt) + 4
        expected = loaded.model.attention_weights(torch.tensor([ids]))[:, 0]
        np.testing.assert_array_equal(arrays["weights"], expected.numpy())
        # one by one: what the model held of each token, given all before it
        for number in range(4):
            before = torch.tensor([ids[: len(prompt) + number]])
            chances = loaded.model.next_logits(before)[0].detach().softmax(dim=-1)
            own = chances[ids[len(prompt) + number]]
            assert arrays["generated_probabilities"][number] == pytest.approx(float(own), rel=1e-4)
            assert arrays["generated_ranks"][number] == 1 + int((chances > own).sum())
            assert generated[number]["rank"] == arrays["generated_ranks"][number]
    assert [line.split()[0] for line in outcome.err.splitlines()[:1]] == ["generated"]
    greedy = json.loads(run(*options, "--json", "--temperature", "0").out)["generated"]
    assert {found["rank"] for found in greedy} == {1}
    # the continuation is that of gpt sample
    text = run("sample", "--prompt", "The value", "--max-new-tokens", "4", "--seed", "5", "--no-stream").out
    assert text == "".join(found["text"] for found in generated) + "\n"


NO_ROOM = "this model sees 32 tokens, so there is no room for a prompt before 32 new tokens"


@pytest.mark.parametrize(
    ("num_tokens", "code", "error"),
    [
        ("31", 3, "error: prompt: it has 2 tokens and 31 to generate, but this model sees 32"),
        ("32", 2, f"error: --generate: {NO_ROOM}; use at most 31"),
    ],
)
def test_what_does_not_fit_the_context_is_told(
    smoke_run: Path, run: RunCommand, num_tokens: str, code: int, error: str
) -> None:
    words = ["attn-dump", "--prompt", "The value", "--generate", num_tokens]
    assert run(*words, exits=code).err.splitlines()[0] == error
    if code == 3:
        run(*words, "--truncate", "--layers", "0", exits=0)


@pytest.mark.parametrize(
    ("free", "hint"),
    [
        # 13 tokens: 169 weights a head, of 4 bytes, 16 more while they are written, 40 while their layer is computed
        ((20 * 4 + 40 * 2) * 169 - 1, "hint: --layers 0 --heads 0"),
        ((20 + 40) * 169, "hint: --layers 0 --heads 0"),
        ((20 + 40) * 169 - 1, "hint: use a shorter prompt"),
    ],
)
def test_a_dump_too_large_for_memory_is_refused_with_flags_that_make_it_fit(
    smoke_run: Path, run: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, hint: str
) -> None:
    monkeypatch.setattr("gpt_cli.attention_maps.patterns.available_memory", lambda: free)
    options = ["attn-dump", "--prompt", "0 1 2 3 4 5 6", "--out", tmp_path / "a.npz"]
    assert len(gpt_cli.load(smoke_run).tokenizer.encode("0 1 2 3 4 5 6")) == 13
    refused = run(*options, exits=5)
    assert refused.err.splitlines()[0].startswith(
        "error: attn-dump: 4 heads on 13 tokens take about 27.0 kB of memory, but only "
    )
    assert refused.err.splitlines()[1] == hint
    assert not (tmp_path / "a.npz").exists()
    if "--" in hint:
        assert run(*options, *hint.split()[1:]).code == 0


def test_a_dump_too_large_for_the_disk_is_refused(
    smoke_run: Path, run: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=100))
    refused = run("attn-dump", "--prompt", "The value", "--out", tmp_path / "a.json", exits=5)
    assert "of disk, but only 100 bytes are free" in refused.err


ONLY_WEIGHTS = "the drawing in the terminal shows weights only\nhint: --out FILE.npz"
NEEDS_GENERATE = "it changes what --generate adds, so it needs --generate\nhint: --generate 20"
NO_FORMAT = "--format: it applies only to --out -; the ending of a file sets its format"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("--heads 1-2", '--heads: this model has heads 0 to 1, so "1-2" is out of range'),
        ("--out a.gif", '--out: "a.gif" ends in none of .npz, .safetensors, .json, .csv, .html, .png, .svg, .pdf'),
        ("--format csv", NO_FORMAT),
        *((words, f"{words.split()[0]}: {ONLY_WEIGHTS}") for words in ("--stage scores", "--file-dtype float16")),
        *((f"{flag} 0", f"{flag}: {NEEDS_GENERATE}") for flag in ("--temperature", "--seed")),
        ("--out - --json", "--json and --out - cannot be combined; leave one of them out"),
    ],
)
def test_wrong_input_is_refused_before_torch_is_loaded(
    smoke_run: Path, words: str, error: str, without_torch: WithoutTorch
) -> None:
    done = without_torch("attn-dump", "--prompt", "The", *words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {error}\n")


def test_the_numbers_go_to_stdout_as_json_or_csv(smoke_run: Path, run: RunCommand, tmp_path: Path) -> None:
    words = ["attn-dump", "--prompt", "The value of", "--layers", "1", "--heads", "0"]
    for ending, flags in (("json", []), ("csv", ["--format", "csv"])):
        outcome = run(*words, "--out", "-", *flags, exits=0)
        assert outcome.err == ""
        run(*words, "--out", tmp_path / f"a.{ending}")
        assert outcome.out.rstrip("\n") == (tmp_path / f"a.{ending}").read_text().rstrip("\n")
        assert not Path("-").exists()
    run(*words, "--out", "-", "--format", "csv", "--stage", "scores", exits=2)
    assert "scores" in json.loads(run(*words, "--out", "-", "--stage", "scores").out)


def test_a_page_counts_what_its_scores_take(
    smoke_run: Path, run: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["attn-dump", "--prompt", "The value of", "--out"]
    # scores and weights of both heads on 8 sequences of 32 random tokens, 24 bytes each
    monkeypatch.setattr("gpt_cli.attention_maps.patterns.available_memory", lambda: 24 * 2 * 8 * 32 * 32)
    run(*words, tmp_path / "a.npz", exits=0)
    assert "4 heads on 3 tokens take about" in run(*words, tmp_path / "a.html", exits=5).err
    # the tokens that heads raise take as much for one head as for all
    monkeypatch.setattr("gpt_cli.attention_maps.patterns.head_writes_bytes", lambda *_: 10**9)
    monkeypatch.setattr("gpt_cli.attention_maps.patterns.available_memory", lambda: 10**9)
    assert run(*words, tmp_path / "a.html", exits=5).err.endswith("hint: use a shorter prompt\n")
