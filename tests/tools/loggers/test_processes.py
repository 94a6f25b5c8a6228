"""A logger receives each step of a training once, in order, and whatever it does, the training is the same."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.faults import fingerprint, some_of
from support.helpers import CORPUS_TEXT, Outcome, RunCommand

from gpt_cli.checkpoints.run_paths import RunFiles
from gpt_cli.common.files import append
from gpt_cli.tools.loggers import processes
from gpt_cli.tools.loggers.processes import LogReader
from gpt_cli.training import evaluate_and_log

FAKE = Path(__file__).parent / "fake_wandb.py"
LOGGED = (5, 10, 15, 20)  # the steps of the smoke config
GIVEN = Path("runs/smoke/logs/wandb/given.jsonl")


@pytest.fixture(autouse=True)
def _fake_wandb(here: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package wandb that this process finds, and a short text."""
    folder = tmp_path_factory.mktemp("packages")
    (folder / "wandb").mkdir()
    shutil.copy(FAKE, folder / "wandb/__init__.py")
    monkeypatch.syspath_prepend(folder)
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    (here / "corpus.txt").write_text(CORPUS_TEXT)
    monkeypatch.setattr(evaluate_and_log, "SAMPLE_NEW_TOKENS", 8)


def train(run: RunCommand, *words: str) -> Outcome:
    flags = ("--config", "smoke", "--data", "corpus.txt", "--quiet", "--set", "tokenizer.kind=byte")
    return run("train", *flags, "--set", "train.log_to=wandb", *words)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def given() -> list[dict[str, Any]]:
    """What the package was given as steps."""
    return [line for line in lines(GIVEN) if "step" in line]


def test_a_logger_is_given_every_line_of_metrics_of_a_run_that_is_the_same_without_it(run: RunCommand) -> None:
    outcome = train(run)
    assert (outcome.code, outcome.err) == (0, "")
    begun, *_, ended = lines(GIVEN)
    assert begun["mode"] == "offline"
    assert begun["config"]["train"]["log_to"] == ["wandb"]
    assert begun["config"]["model"]["d_model"] == 32
    assert ended == {"finished": True}
    written = lines(Path("runs/smoke/metrics.jsonl"))
    assert [{k: v for k, v in line.items() if k != "sample"} for line in given()] == written
    assert [line["step"] for line in given()] == [*LOGGED]
    sampled = [line["step"] for line in given() if line.get("sample", "").startswith("<pre>")]
    assert sampled == [10, 20]
    assert not Path("wandb").exists()
    assert train(run, "--out", "runs/without", "--set", "train.log_to=[]").code == 0
    assert not Path("runs/without/logs").exists()
    assert fingerprint(Path("runs/smoke")) == fingerprint(Path("runs/without"))


@pytest.mark.parametrize(
    ("when", "how", "why"),
    some_of(
        [
            *((when, "raise", "RuntimeError: no more quota") for when in ("IMPORT", "INIT", "LOG", "FINISH")),
            ("LOG", "SIGKILL", "its process ended with code -9"),
            ("INIT", "exit", "its process ended with code 3"),
            *((when, "hang", "it did not answer for 0.5 s") for when in ("IMPORT", "LOG", "FINISH")),
        ],
        least=3,
    ),
)
def test_a_logger_that_fails_is_one_warning(
    run: RunCommand, monkeypatch: pytest.MonkeyPatch, when: str, how: str, why: str
) -> None:
    monkeypatch.setenv(f"FAKE_{when}", how)
    if how == "hang":
        monkeypatch.setattr(processes, "CALL_SECONDS", 0.5)
    outcome = train(run)
    assert outcome.code == 0
    assert outcome.err == f"warning: train.log_to: wandb is left out: {why}; metrics.jsonl has everything\n"
    assert [line["step"] for line in lines(Path("runs/smoke/metrics.jsonl"))] == [*LOGGED]


@pytest.mark.parametrize("how", ["SIGTERM", pytest.param("SIGUSR1", marks=pytest.mark.long)])
def test_a_signal_does_not_cut_a_logger_short(run: RunCommand, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setenv("FAKE_LOG", how)
    assert train(run).err == ""
    assert [line["step"] for line in given()] == [*LOGGED]


def test_a_failure_is_noticed_while_the_training_goes_on(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_IMPORT", "raise")
    warnings: list[str] = []
    with processes.Followers(
        ["wandb"], RunFiles(here / "runs/smoke"), notice=pytest.fail, warn=warnings.append
    ) as followers:
        while not warnings:
            followers.remark()
    assert len(warnings) == 1


def test_a_logger_that_does_not_finish_in_time_is_ended_and_the_user_hears_of_the_wait(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_INIT", "hang")
    monkeypatch.setattr(processes, "FINISH_SECONDS", 0.2)
    monkeypatch.setattr(processes, "PATIENCE", 0.1)
    (here / "runs/smoke").mkdir(parents=True)
    (here / "runs/smoke/config.yaml").write_text("model: {}\n")
    notices, warnings = list[str](), list[str]()
    with processes.Followers(["wandb"], RunFiles(here / "runs/smoke"), notice=notices.append, warn=warnings.append):
        pass
    assert notices == ["waiting for wandb to finish, 0.2 s at most"]
    (warning,) = warnings
    assert "wandb is left out: it did not finish within 0.2 s; metrics.jsonl" in warning


def test_a_run_that_continues_goes_on_in_its_logger_without_a_step_twice(run: RunCommand) -> None:
    assert train(run, "--max-steps", "10").code == 0
    # as after a kill: the checkpoint of step 10 is gone, and its metrics with it
    Path("runs/smoke/checkpoints/best.safetensors").unlink()
    assert train(run, "--resume", "--max-steps", "20").code == 0
    assert [line["step"] for line in given()] == [*LOGGED]
    one, other = (line["id"] for line in lines(GIVEN) if "id" in line)
    assert one == other


def test_a_logger_that_joins_or_comes_back_gets_what_it_lacks(run: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    assert train(run, "--max-steps", "10", "--set", "train.log_to=[]").code == 0
    monkeypatch.setenv("FAKE_FINISH", "raise")
    assert train(run, "--resume", "--max-steps", "15").code == 0
    assert [line["step"] for line in given()] == [5, 10, 15]
    monkeypatch.delenv("FAKE_FINISH")
    assert train(run, "--resume", "--max-steps", "20").code == 0
    assert [line["step"] for line in given()] == [*LOGGED]


def test_a_run_that_is_replaced_begins_anew_in_its_logger_in_the_mode_that_a_variable_says(
    run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    assert train(run, "--max-steps", "5").code == 0
    (before,) = (line["id"] for line in lines(GIVEN) if "id" in line)
    assert (lines(GIVEN)[0]["mode"], lines(GIVEN)[0]["resume"]) == ("online", "allow")
    Path("runs/smoke/logs/notes.txt").write_text("of the user")
    assert train(run, "--max-steps", "5", "--overwrite").code == 0
    (after,) = (line["id"] for line in lines(GIVEN) if "id" in line)
    assert before != after
    assert [line["step"] for line in given()] == [5]
    assert Path("runs/smoke/logs/notes.txt").exists()


def test_a_line_waits_for_one_look_because_its_sample_comes_after_it(tmp_path: Path) -> None:
    run = RunFiles(tmp_path)
    reader = LogReader(run, 0)
    assert list(reader.read_new(over=False)) == []
    append(run.metrics, '{"step": 10, "loss": 2.5}\n')
    assert list(reader.read_new(over=False)) == []
    append(run.samples, "=== step 10 ===\nOnce upon\na time\n")
    assert list(reader.read_new(over=False)) == [(10, {"loss": 2.5}, "Once upon\na time")]
    assert list(reader.read_new(over=True)) == []


def test_a_sample_waits_for_the_lines_before_it(tmp_path: Path) -> None:
    """Steps rise, as packages demand."""
    run = RunFiles(tmp_path)
    reader = LogReader(run, 0)
    append(run.metrics, '{"step": 10, "loss": 3}\n{"step": 20, "loss": 2}\n')
    append(run.samples, "=== step 15 ===\na\n=== step 25 ===\nb\n")
    assert list(reader.read_new(over=False)) == []
    assert [step for step, *_ in reader.read_new(over=False)] == [10, 15, 20]
    append(run.metrics, '{"step": 30, "loss": 1}\n')
    assert list(reader.read_new(over=True)) == [(25, {}, "b"), (30, {"loss": 1}, None)]


def test_half_a_line_is_read_when_it_is_whole_and_a_damaged_one_never(tmp_path: Path) -> None:
    run = RunFiles(tmp_path)
    reader = LogReader(run, 0)
    append(run.metrics, '{"step": 10, "lo\n[10]\n\xff\n{"step": 20, "loss": 2, "learning_rate": null}\n{"step": 30,')
    assert list(reader.read_new(over=True)) == [(20, {"loss": 2}, None)]
    append(run.metrics, ' "loss": 1}\n')
    assert list(reader.read_new(over=True)) == [(30, {"loss": 1}, None)]
