"""What `gpt train --resume` does with a run that has ended, whose text is elsewhere, or whose files are not its own."""

import contextlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.helpers import CORPUS_TEXT, RunCommand, run_command

from gpt_cli.checkpoints.checkpoint import read_checkpoint
from gpt_cli.checkpoints.select import find_checkpoints
from gpt_cli.evaluation.nll import Score
from gpt_cli.training import evaluate_and_log

pytestmark = pytest.mark.slow

FAST = ["--config", "smoke", "--set", "tokenizer.kind=byte", "--set", "train.sample_every=null", "--data", "my.txt"]
RESUME = ["train", "--out", "runs/mine", "--resume"]
FURTHER = ["--set", "train.eval_every=1", "--max-steps", "21"]


@pytest.fixture(scope="module")
def _trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mine")
    with contextlib.chdir(folder):
        Path("my.txt").write_text(CORPUS_TEXT)
        run_command("train", *FAST, "--out", "runs/mine", "--quiet", exits=0)
    return folder


@pytest.fixture
def mine(here: Path, _trained_once: Path) -> Path:
    """A run of 20 steps on my.txt, with a directory `checkpoints`."""
    shutil.copytree(_trained_once, here, dirs_exist_ok=True)
    return Path("runs/mine")


@pytest.fixture
def _worse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let evaluations while training find a loss that is worse by 1."""
    real = evaluate_and_log.validation_score

    def worse(*arguments: Any, **options: Any) -> Score:
        score = real(*arguments, **options)
        return replace(score, loss=score.loss + 1)

    monkeypatch.setattr(evaluate_and_log, "validation_score", worse)


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """All files with their content and the time of their last change."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_a_run_that_has_all_its_steps_is_left_as_it_is_and_gives_its_result_once_more(
    mine: Path, run: RunCommand
) -> None:
    again = json.loads(run(*RESUME, "--max-steps", "21", "--json", "--quiet").out)
    before = contents(mine)
    Path("my.txt").unlink()  # it is not even read
    for more in ([], ["--max-steps", "21"], ["--set", "train.log_every=1"]):
        outcome = run(*RESUME, *more, exits=0)
        assert outcome.err == "runs/mine already has its 21 steps; --max-steps 42 continues it\n"
        assert outcome.out.startswith("runs/mine: 21 steps in ")
    once = json.loads(run(*RESUME, "--json", "--quiet").out)
    assert once == again
    assert list(once) == list(again)
    assert contents(mine) == before


def test_a_run_that_has_all_its_steps_refuses_another_text_and_another_size(mine: Path, run: RunCommand) -> None:
    before = contents(mine)
    Path("other.txt").write_text(Path("my.txt").read_text()[::-1])
    assert "is not the text that this run began with" in run(*RESUME, "--data", "other.txt", exits=4).err
    for words in ((), ("--dry-run",)):
        assert "model.d_model was 32 in this run" in run(*RESUME, "--set", "model.d_model=64", *words, exits=4).err
    assert contents(mine) == before


def test_a_start_that_fails_leaves_the_old_run_alone(mine: Path, run: RunCommand) -> None:
    before = contents(mine)
    Path("empty.txt").touch()
    run("train", "--config", "smoke", "--out", mine, "--overwrite", "--data", "empty.txt", exits=3)
    assert contents(mine) == before


def test_a_run_without_a_checkpoint_starts_with_a_notice_and_says_nothing_of_settings_that_its_user_left_alone(
    mine: Path, run: RunCommand
) -> None:
    """The vocab_size of a shipped config has no effect beside the kind that the user chose."""
    assert "vocab_size" in (mine / "config.yaml").read_text()
    for name in contents(mine):
        if Path(name).name != "config.yaml":
            Path(name).unlink()
    again = run(*RESUME, "--set", "inspect.every=7", exits=0)
    assert "no checkpoint in runs/mine yet; starting at step 0" in again.err
    assert "tokenizer.vocab_size" not in again.err
    assert "inspect.every is not used by inspect.prompt null" in again.err, "the user set it now"


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ("--max-steps 10", 'error: --max-steps: "runs/mine" has trained 20 steps already, more than 10'),
        ("--set train.max_steps=19", 'error: --max-steps: "runs/mine" has trained 20 steps already, more than 19'),
        ("--max-time 0.001s", 'error: --max-time: "runs/mine" has trained for '),
    ],
)
def test_less_than_a_run_has_trained_is_refused(mine: Path, asked: str, error: str, run: RunCommand) -> None:
    before = contents(mine)
    outcome = run(*RESUME, *asked.split(), exits=2)
    assert outcome.err.startswith(error), outcome.err
    assert "hint: gpt train --out runs/mine --resume --max-" in outcome.err
    assert contents(mine) == before


def test_what_a_run_was_short_of_is_done(mine: Path, run: RunCommand) -> None:
    """A kill before the closing evaluation or at the picture, an evaluation on other tokens, and more steps."""
    (mine / "outcome.json").rename("kept.json")
    (mine / ".loss.png.11286.0d29567e.tmp").touch()
    outcome = run(*RESUME, exits=0)
    assert "already" not in outcome.err
    assert not list(mine.glob(".*"))
    once, again = (json.loads(path.read_text()) for path in (Path("kept.json"), mine / "outcome.json"))
    assert once == again
    fewer = json.loads(run(*RESUME, "--set", "data.validation_tokens=64", "--json").out)
    assert fewer["validation_tokens"] <= 64 < once["validation_tokens"]
    assert json.loads(run(*RESUME, "--max-steps", "22", "--json").out)["steps"] == 22


def test_runs_that_ended_by_the_clock_or_for_lack_of_patience_say_what_goes_on(here: Path, run: RunCommand) -> None:
    (here / "my.txt").write_text(CORPUS_TEXT)
    run("train", *FAST, "--max-time", "0.01s", "--out", "runs/mine", "--quiet")
    assert run(*RESUME).err == "runs/mine already has its 0.01 s; --max-time 1s continues it\n"
    assert run(*RESUME, "--set", "train.max_steps=1").code == 0  # by the clock they do not matter
    settings = "--set train.patience=1 --set train.eval_every=1 --set train.learning_rate=1"
    worse = [*settings.split(), "--max-steps", "99"]
    run("train", *FAST, *worse, "--out", "runs/mine", "--overwrite", "--quiet")
    outcome = run(*RESUME)
    assert outcome.err.endswith(" for lack of a better validation loss; --set train.patience=null continues it\n")
    assert outcome.err.startswith("runs/mine has ended at step ")
    last = json.loads((Path("runs/mine") / "outcome.json").read_text())["step"]
    # as if its steps had ended it as well
    outcome = run(*RESUME, "--max-steps", str(last))
    assert outcome.err.endswith(f" steps; --max-steps {2 * last} --set train.patience=null continues it\n")


def test_a_run_goes_on_where_its_text_was_moved(
    mine: Path, here: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("moved", "whole"):
        shutil.copytree(mine, f"runs/{name}")
    whole = json.loads(run("train", "--out", "runs/whole", "--resume", "--max-steps", "24", "--json").out)
    Path("my.txt").rename("moved.txt")
    assert run(*RESUME, "--max-steps", "24", exits=3).err.splitlines() == [
        'error: "my.txt": there is no such file',
        "hint: if it was moved or renamed, name its new path with --data NEW/PATH",
    ]
    lost = "runs/mine was trained on this text; name its new path, or another text, with --data "
    for command, hint in {
        "eval --run runs/mine --memorised": "leave out --memorised, which",
        "eval --run runs/mine": lost,
        "train --init-from runs/mine --out runs/tuned": lost,
    }.items():
        assert run(*command.split(), exits=3).err.splitlines()[-1].startswith(f"hint: {hint}")
    renamed = run(*RESUME, "--max-steps", "24", "--data", "moved.txt", "--json", exits=0)
    monkeypatch.chdir("runs")
    elsewhere = run("train", "--out", "moved", "--resume", "--max-steps", "24", "--data", "../moved.txt", "--json")
    for outcome in (renamed, elsewhere):
        assert json.loads(outcome.out)["validation_loss"] == whole["validation_loss"]
    assert run("train", "--out", "moved", "--resume", "--max-steps", "25", "--quiet").code == 0  # it is kept


def test_a_run_finds_its_text_from_any_folder(
    mine: Path, here: Path, tmp_path_factory: pytest.TempPathFactory, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(mine, "runs/whole")
    whole = json.loads(run("train", "--out", "runs/whole", "--resume", "--max-steps", "24", "--json").out)
    measured = json.loads(run("eval", "--run", "runs/whole", "--json").out)["runs"][0]
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for folder, out in ((here / "runs", "mine"), (elsewhere, str(here / "runs" / "mine"))):
        monkeypatch.chdir(folder)
        found = f'the text of this run is not in the current directory; gpt reads it in "{here}"'
        again = run("train", "--out", out, "--resume", "--max-steps", "24", "--json", exits=0)
        assert found in again.err or "already has its 24 steps" in again.err
        assert json.loads(again.out)["validation_loss"] == whole["validation_loss"]
        evaluated = run("eval", "--run", out, "--json")
        assert found in evaluated.err
        assert (only := json.loads(evaluated.out)["runs"][0])["loss"] == measured["loss"]
        assert (only["text"], only["same_text"]) == ("my.txt", True)
        assert json.loads(run("heads", "--run", out, "--json").out)["text"] == "my.txt"
    # what is shared names no folder of this machine
    assert "\n  source: my.txt\n" in (here / mine / "config.yaml").read_text()
    assert all(str(here).encode() not in path.read_bytes() for path in (here / mine).rglob("*.*") if path.is_file())
    # a text of the same name that is nearer is not taken for it
    (here / "runs" / "my.txt").write_text(CORPUS_TEXT + "more")
    assert run("train", "--out", out, "--resume", "--max-steps", "28", exits=4).err.splitlines()[-2] == (
        f'error: --resume: "{here}/runs/my.txt" is not the text that this run began with'
    )
    assert 'same_text": false' in run("eval", "--run", out, "--json").out


def test_a_missing_validation_text_is_named_by_its_setting(mine: Path, run: RunCommand) -> None:
    Path("held-out.txt").write_text(CORPUS_TEXT)
    own = [*FAST, "--set", "data.validation_source=held-out.txt", "--out", "runs/mine", "--overwrite", "--quiet"]
    run("train", *own, "--max-steps", "2", exits=0)
    Path("held-out.txt").rename("elsewhere.txt")
    assert run(*RESUME, "--max-steps", "3", exits=3).err.splitlines()[-1] == (
        "hint: if it was moved or renamed, name its new path with --set data.validation_source=NEW/PATH"
    )
    run(*RESUME, "--max-steps", "3", "--set", "data.validation_source=elsewhere.txt", "--quiet", exits=0)


def test_a_run_of_stdin_asks_for_the_same_text_again(here: Path, run: RunCommand) -> None:
    assert run("train", *FAST[:-1], "-", "--out", "runs/mine", "--max-steps", "1", stdin=CORPUS_TEXT.encode()).code == 0
    for stdin in (b"", b"another text " * 99):
        assert run(*RESUME, "--max-steps", "30", stdin=stdin, exits=4).err.splitlines()[-1] == (
            "hint: pipe the same text again: cat my.txt | gpt train --out runs/mine --resume"
        )


_LONG = "tokenizer.kind=char", "model.context_length=8", "model.d_model=64", "train.learning_rate=0.001"


@pytest.mark.usefixtures("_worse")
@pytest.mark.parametrize(
    "flags",
    [
        *(pytest.param(f"--set {setting}", marks=pytest.mark.long) for setting in _LONG),
        "--data other.txt",
        "--set train.eval_every=3 --max-steps 3",
    ],
)
def test_the_best_of_another_run_is_never_used(flags: str, mine: Path, run: RunCommand) -> None:
    Path("other.txt").write_text(CORPUS_TEXT.replace("squared", "doubled"))
    run("train", *FAST, *flags.split(), "--out", "runs/other", "--quiet", exits=0)
    foreign = Path("runs/other/checkpoints/best.safetensors").read_bytes()
    own = json.loads((mine / "outcome.json").read_text())
    best, kept = (mine / "checkpoints" / f"{name}.safetensors" for name in ("best", "best-of-another-run"))
    best.write_bytes(foreign)
    (mine / "outcome.json").unlink()  # as after a kill before the closing evaluation
    closed = run(*RESUME, "--json", exits=0)
    assert (
        'warning: "runs/mine/checkpoints/best.safetensors": this is not the best checkpoint of this run; gpt train '
        "keeps it as best-of-another-run.safetensors and continues without it"
    ) in closed.err.splitlines()
    assert json.loads(closed.out)["validation_loss"] == own["validation_loss"]  # the last step was the best
    assert (best.exists(), kept.read_bytes() == foreign) == (False, True)
    assert find_checkpoints("runs/mine")[0].name == "step-00000020.safetensors"
    # the next evaluation is the best of those whose weights are there
    best.write_bytes(foreign)
    run(*RESUME, *FURTHER, "--quiet", exits=0)
    assert read_checkpoint(best).progress.step == 21


@pytest.mark.usefixtures("_worse")
@pytest.mark.parametrize(
    ("how", "steps"), [("kept", [20]), ("damaged", [21]), ("gone", [21]), ("later", range(11, 22))]
)
def test_a_run_keeps_its_best_checkpoint_and_the_next_evaluation_replaces_a_lost_one(
    how: str, steps: Sequence[int], mine: Path, run: RunCommand
) -> None:
    best = mine / "checkpoints" / "best.safetensors"
    if how == "damaged":
        best.write_bytes(best.read_bytes()[:-1] + b"?")
    elif how == "gone":
        best.unlink()
    elif how == "later":
        (mine / "checkpoints" / "step-00000020.safetensors").unlink()  # leaves that of step 10
    outcome = run(*RESUME, *FURTHER, exits=0)
    warned = (
        'best.safetensors": the file is damaged: its content does not match its digest; gpt train continues without it'
    )
    assert (warned in outcome.err) == ("warning" in outcome.err) == (how == "damaged")
    step = read_checkpoint(best).progress.step
    assert step in steps
    assert outcome.out.endswith(f"with the best weights, those of step {step}\n")
    assert not list(mine.rglob("best-of-another-run*"))


def test_a_step_that_becomes_the_last_is_evaluated_and_logged(mine: Path, run: RunCommand) -> None:
    (mine / "checkpoints/step-00000020.safetensors").unlink()  # leaves that of step 10
    run(*RESUME, "--max-steps", "14", "--set", "train.eval_every=100", "--set", "train.save_every=13", exits=0)
    (mine / "checkpoints/step-00000014.safetensors").unlink()
    run(*RESUME, "--max-steps", "13", exits=0)
    last = json.loads((mine / "metrics.jsonl").read_text().splitlines()[-1])
    assert (last["step"], "validation_loss" in last) == (13, True)


def test_a_run_that_is_removed_while_it_starts_is_not_trained_from_its_first_step(
    mine: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`gpt runs rm` takes it between the reading of its config and the lock."""
    from gpt_cli.training import loop

    def removed_first(*arguments: object, **options: object) -> object:
        shutil.rmtree(mine)
        return lock(*arguments, **options)  # type: ignore[arg-type]

    lock = loop.sole_trainer
    monkeypatch.setattr(loop, "sole_trainer", removed_first)
    outcome = run(*RESUME, "--max-steps", "24", exits=2)
    assert 'error: --resume: there is no run in "runs/mine" to continue' in outcome.err
    assert not mine.exists()
