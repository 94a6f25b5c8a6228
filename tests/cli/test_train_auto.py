"""`gpt train` without a config: what it chooses, prints and writes, and what it refuses."""

import json
import random
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.helpers import CORPUS_TEXT, RunCommand

import gpt_cli
from gpt_cli.common.language import chinese
from gpt_cli.config import Config
from gpt_cli.config.load import read_config
from gpt_cli.training.auto_config import auto_config as choosing
from gpt_cli.training.auto_config.choice import Budget
from gpt_cli.training.auto_config.text_statistics import TextFigures

TINY = shlex.split("--max-steps 3 --set model.d_model=32 --set model.num_blocks=1 --set model.context_length=16")
ALONE = ("--set", "train.teacher_share=null")


@pytest.fixture(autouse=True)
def _corpus(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "corpus.txt").write_text(CORPUS_TEXT)
    monkeypatch.setattr(choosing, "reference_seconds", lambda _: 0.06)
    monkeypatch.setattr("gpt_cli.training.setup.time_steps", lambda *_, **__: 0.01)  # a busy machine may take 100 times


def refused(*_: Any) -> Any:
    pytest.fail("the machine was measured")


def test_a_run_without_a_config_gets_one_which_a_second_start_refuses_and_a_resume_uses(
    here: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = run("train", "--data", "corpus.txt", *TINY, exits=0)
    config = read_config("runs/auto/config.yaml")
    assert (config.train.max_steps, config.train.max_time, config.model.d_model) == (3, None, 32)
    assert (config.data.source, config.tokenizer.kind, config.train.optimizer) == ("corpus.txt", "bpe", "muon")
    lines = outcome.err.splitlines()
    begins = [line.split()[0] for line in lines]
    assert begins[:5] == ["text", "budget", "model", "training", "length"]
    assert begins.index("length") < begins.index("estimate")
    # the tokens and epochs of the reasons are those that the training has
    thousands, times = re.findall(r"about ([\d.]+) k tokens of text|read about ([\d.]+) times", outcome.err)
    tokens, epochs = re.findall(r"([\d,]+) training tokens|([\d.]+) epochs", outcome.err)
    assert 1000 * float(thousands[0]) == pytest.approx(int(tokens[0].replace(",", "")), rel=0.05)
    assert float(times[1]) == pytest.approx(float(epochs[1]), rel=0.05)
    monkeypatch.setattr(choosing, "choose_config", refused)
    assert "there is a run already" in run("train", "--data", "corpus.txt", exits=2).err
    run("train", "--config", "auto", "--resume", "--max-steps", "5", exits=0)
    assert read_config("runs/auto/config.yaml").train.max_steps == 5


def test_a_dry_run_prints_the_config_alone_and_writes_nothing(run: RunCommand) -> None:
    outcome = run("train", "--data", "corpus.txt", "--dry-run", "--max-time", "1m", exits=0)
    begins = ["text", "budget", "model", "training", "length", "device", "parameters", "corpus", "tokenizer"]
    assert [line.split()[0] for line in outcome.err.splitlines()] == [*begins, "estimate"]
    assert not Path("runs").exists()
    Path("my.yaml").write_text(outcome.out)
    config = read_config("my.yaml")
    quiet = run("train", "--data", "corpus.txt", "--dry-run", "--max-time", "1m", "--quiet", "--json")
    found = json.loads(quiet.out)
    assert quiet.err == ""
    assert found["config"] == config.model_dump(mode="json")
    assert found["reasons"] == outcome.err.splitlines()[:5]
    shown = run("train", "--config", "smoke", "--dry-run", "--seed", "5")
    assert (yaml.safe_load(shown.out)["train"]["seed"], yaml.safe_load(shown.out)["train"]["device"]) == (5, "auto")


def test_a_dry_run_says_all_that_the_training_says_before_its_first_step(run: RunCommand) -> None:
    Path("notes").mkdir()
    Path("notes/a.txt").write_bytes(CORPUS_TEXT.replace("\n", "\r\n").encode())
    Path("notes/b.jpg").write_bytes(b"\xff\xd8\0\0")
    words = ("train", "--config", "smoke", "--data", "notes", "--max-steps", "4", "--out", "runs/notes")
    dry, real = run(*words, "--dry-run"), run(*words)
    before = real.err[: real.err.index("; ", real.err.index("\nestimate ")) + 1]
    assert dry.err.startswith(before)
    said = (
        "warm-up of 5 steps shortened to 2",
        "left out 1 file",
        "lines end as on Windows",
        " for 4 steps of 256 tokens",
    )
    assert all(line in dry.err for line in said)
    assert run(*words, "--dry-run", exits=0).out == dry.out  # a run that is there is none of its concern
    assert "already has its 4 steps" in run(*words, "--dry-run", "--resume").err


@pytest.mark.parametrize(("given", "value"), [("num_heads", 5), ("d_model", 100)])
def test_one_size_is_enough_and_the_other_fits_it(given: str, value: int, run: RunCommand) -> None:
    words = ("--data", "corpus.txt", "--max-steps", "100", "--dry-run", "--json", "--set", f"model.{given}={value}")
    model = json.loads(run("train", *words, exits=0).out)["config"]["model"]
    assert model[given] == value
    assert model["d_model"] % (2 * model["num_heads"]) == 0
    both = run("train", *words, "--set", "model.num_heads=7", "--set", "model.d_model=100", exits=2)
    assert both.err.startswith("error: --set"), "two that do not fit"


def test_python_has_the_choice_too() -> None:
    notices: list[str] = []
    found: Any = gpt_cli.train(data="corpus.txt", dry_run=True, max_steps=100, notice=notices.append)
    assert list(found.reasons) == notices[:5]
    assert (found.prepared.steps_left, found.prepared.config.train.device) == (100, "cpu")
    assert found.config.train.max_steps == 100
    assert str(found) == found.as_text()
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("length", "ends_early"), [({"max_time": "5m"}, True), ({"max_time": "0.01s"}, False), ({"max_steps": 100}, False)]
)
def test_a_training_knows_whether_gpt_ends_it_before_its_time(length: dict[str, Any], ends_early: bool) -> None:
    prepared: Any = next(iter(gpt_cli.train(data="corpus.txt", settings=TINY[3::2], **length)))
    assert prepared.ends_early == ends_early
    assert prepared.config.train.max_time == {"5m": 300.0, "0.01s": 0.01}.get(length.get("max_time", ""))


def test_each_reason_is_said_in_chinese_too(run: RunCommand) -> None:
    for kind in ("bpe", "char", "byte"):
        words = ("--data", "corpus.txt", "--dry-run", "--json", "--set", f"tokenizer.kind={kind}")
        lines = json.loads(run("train", *words).out)["reasons"]
        for line in lines:
            assert "文本" in (said := chinese().say(line)) or said[:2] in ("预算", "模型", "训练", "长度"), line
            assert "byte pairs" not in said
            assert "n-grams" not in said
            assert "tokens are" not in said


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["--data", "missing.txt"], 3, "there is no such file"),
        (["--data", "empty.txt"], 3, "this source contains no text"),
        (["--set", "model.d_mode=1"], 2, "d_mode"),
        (["--data", "short.txt"], 3, "the text has 12 characters, but a training needs at least 200"),
        (["--config", "autoo"], 2, "did you mean auto? shipped configs: auto, "),
        (["--config", "corpus.txt"], 2, "to train on a text: gpt train --data corpus.txt"),
        (["--set", "train.max_time=null"], 2, "gpt chooses settings for a time or a number of steps"),
        (["--set", "tokenizer.kind=imported"], 2, "imported is the tokenizer of an imported model"),
        (["--processes", "2"], 2, "add --dry-run > my.yaml to this command"),
    ],
)
def test_errors_come_before_anything_is_measured(
    words: list[str], code: int, error: str, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("empty.txt").write_text("")
    Path("short.txt").write_text("twelve bytes")
    monkeypatch.setattr(choosing, "reference_seconds", refused)
    assert error in run("train", *words, exits=code).err


def test_a_missing_device_is_named_before_the_text_is_read(run: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "read_data", refused)
    for words in ([], ["--dry-run"]):
        refusal = run("train", "--data", "corpus.txt", "--device", "nowhere", *words, exits=5)
        assert "nowhere is not available" in refusal.err


def test_the_clock_ends_a_training_whose_steps_take_longer_than_the_rules_know(
    run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "reference_seconds", lambda _: 1e-5)
    words = ("--data", "corpus.txt", "--max-time", "0.02s", *TINY[2:], *ALONE, "--out", "runs/short", "--json")
    summary = json.loads(run("train", *words, exits=0).out)
    train = read_config("runs/short/config.yaml").train
    assert train.max_steps is not None
    assert train.max_steps > summary["steps"]
    assert (train.max_time, summary["stopped_by"]) == (0.02, "time")


def test_a_dry_run_under_a_launcher_prints_once_and_waits_for_nobody(
    run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29377"}
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("LOCAL_RANK", rank)
        for words in (["--config", "smoke", "--set", "train.micro_batch_size=4"], ["--max-steps", "2"]):
            assert (run("train", "--data", "corpus.txt", "--dry-run", *words, exits=0).out == "") == (rank == "1")
    assert not Path("runs").exists()


def test_the_context_of_questions_and_answers_holds_them(run: RunCommand) -> None:
    draw = random.Random(0)

    def digits() -> str:
        return str(draw.randrange(10**309, 10**310))  # of which each is a token, as byte pairs save nothing

    pairs = [{"prompt": digits(), "response": digits()} for _ in range(200)]
    Path("qa.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    outcome = run("train", "--data", "qa.jsonl", "--max-steps", "2", "--dry-run", "--json")
    assert json.loads(outcome.out)["config"]["model"]["context_length"] == 1024  # 620 digits
    # the sizes of a text are those of the questions and answers, not of the lines that contain them
    size, tokens = re.findall(r"([\d.]+) kB, 1.00 bytes per character|about ([\d.]+) k tokens", outcome.err)
    assert float(size[0]) == pytest.approx(200 * 0.62, rel=0.05)
    assert float(tokens[1]) == pytest.approx(0.9 * 200 * 0.62, rel=0.15)
    Path("few.jsonl").write_text('{"prompt": "a", "response": "b"}\n' * 3)
    run("train", "--data", "few.jsonl", "--max-steps", "2", "--dry-run", exits=0)


def test_stdin_and_several_texts_are_read_once_and_trained_on(here: Path, run: RunCommand) -> None:
    run("train", "--data", "-", *TINY, "--out", "runs/piped", stdin=CORPUS_TEXT.encode(), exits=0)
    (here / "other.txt").write_text(CORPUS_TEXT.upper())
    both = run("train", "--data", "corpus.txt", "--data", "other.txt", *TINY, "--out", "runs/both", exits=0)
    assert "2 documents" in both.err


def test_a_text_of_a_few_words_is_chosen_for_or_refused_with_a_reason(here: Path, run: RunCommand) -> None:
    for number, text in enumerate(("a", "two words", "a line\n" * 20, "a line\n" * 40)):
        (here / "few.txt").write_text(text)
        outcome = run("train", "--data", "few.txt", "--max-steps", "2", "--out", f"runs/{number}", "--quiet")
        assert outcome.code in (0, 3), outcome.err
        assert "internal" not in outcome.err
        assert (outcome.code == 0) == (outcome.err == "") == (len(text) >= 200)


def test_a_machine_with_little_memory_gets_a_smaller_model() -> None:
    text, budget = TextFigures(10**9, 10**9, 100, 4.8), Budget(6000, step_seconds=0.06)
    empty = Config()
    large = choosing.fitting(text, budget, empty, None)
    free = choosing.needed(large.config, large.vocab_size)
    small = choosing.fitting(text, budget, empty, free)
    assert choosing.needed(small.config, small.vocab_size) <= free / 2
    assert small.config.model.d_model < large.config.model.d_model


def test_the_speed_of_this_machine_is_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "TIMING_SECONDS", 0.01)
    assert 0 < choosing.reference_seconds(Config()) < 60
