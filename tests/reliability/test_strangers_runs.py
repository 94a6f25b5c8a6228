"""Run directories of strangers: whatever stands in the place of a file, no command waits, crashes or writes elsewhere."""

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import pytest
from support.faults import some_of
from support.fuzzing import require_answer
from support.helpers import RunCommand, _Standard

from gpt_cli.common.file_signatures import is_checkpoint

DEEP = b"[" * 200_000 + b"\n"
HOSTILE: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a directory": Path.mkdir,
    "a circle of links": lambda path: path.symlink_to(path.name),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "an endless device": lambda path: path.symlink_to("/dev/zero"),
    "a secret": lambda path: path.symlink_to(Path("secret").resolve()),
    "nothing": lambda path: path.write_bytes(b""),
    "zeros": lambda path: path.write_bytes(bytes(100_000)),
    "deep JSON": lambda path: path.write_bytes(DEEP),
    "no UTF-8": lambda path: path.write_bytes(b"\xff\xfe\x00\n"),
    "orders to a terminal": lambda path: path.write_bytes(b"\x1b]0;x\x07\x1b[2J\n"),
    "other types": lambda path: path.write_bytes(b'{"step": [1], "stopped_by": ["steps"], "validation_loss": {}}\n'),
    "huge numbers": lambda path: path.write_bytes(b'{"step": 1' + b"0" * 4000 + b', "stopped_by": "time"}\n'),
}
PLACES = [
    "config.yaml", "metrics.jsonl", "outcome.json", "samples.txt", ".lock", "sweep.json", "checkpoints", "attention", "logs",
    "checkpoints/best.safetensors", "checkpoints/step-00000020.safetensors", "checkpoints/step-00000005.safetensors",
    "attention/step-00000020.safetensors", "logs/tensorboard/sent.jsonl",
]  # fmt: skip
COMMANDS = [
    ["runs", "runs"],
    ["runs", "runs", "--json"],
    ["report", "runs/smoke", "--json"],
    ["info", "runs/smoke"],
    ["sample", "--run", "runs/smoke", "--prompt", "The", "--max-new-tokens", "1"],
    ["train", "--out", "runs/smoke", "--resume", "--max-steps", "21", "--set", "train.keep_checkpoints=1", "--quiet"],
    ["runs", "rm", "smoke", "--yes"],
]


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Fail where a command waits for something."""

    def fail(*_: object) -> None:
        raise AssertionError(f"it takes more than {seconds} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def put(make: Callable[[Path], object], path: Path) -> None:
    """Let `make` put something in the place of a file or a directory."""
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    make(path)


def test_whatever_lies_in_a_run_directory(trained: Path, here: Path, run: RunCommand, tally) -> None:
    cases = some_of(list(product(PLACES, HOSTILE)), 14)
    Path("secret").write_text("secret\n")
    for number, (place, what) in enumerate(cases):
        commands = COMMANDS if len(cases) == len(PLACES) * len(HOSTILE) else [COMMANDS[number % len(COMMANDS)]]
        for command in commands:
            shutil.rmtree("runs", ignore_errors=True)
            shutil.copytree(trained / "runs", "runs")
            put(HOSTILE[what], Path("runs/smoke") / place)
            with within(60):
                outcome = run(*command)
            require_answer(outcome, 0, 2, 3, 4, 5)
            assert "\x1b" not in outcome.out + outcome.err
            assert "NaN" not in outcome.out
            assert Path("secret").read_text() == "secret\n", (place, command)
    assert sorted(path.name for path in here.iterdir()) == ["runs", "secret"]
    tally("something else in the place of a run's file: a result or a sentence", len(cases))


def test_the_record_of_a_sweep_may_be_deep_json(here: Path, run: RunCommand) -> None:
    Path("a.yaml").write_text("base: smoke\ngrid:\n  train.learning_rate: [0.1, 0.2]\n")
    Path("runs/a").mkdir(parents=True)
    Path("runs/a/sweep.json").write_bytes(DEEP)
    outcome = run("sweep", "a.yaml", "--dry-run", exits=4)
    assert 'error: "runs/a/sweep.json": this is not the record of a sweep' in outcome.err


def test_a_pipe_is_no_checkpoint_to_remove_and_no_export_to_replace(copied: Path, run: RunCommand) -> None:
    os.mkfifo("pipe")
    with within(60):
        assert not is_checkpoint(Path("pipe"))
        Path("hf").mkdir()
        Path("pipe").rename("hf/config.json")
        outcome = run("export", "--run", str(copied), "--out", "hf")
    assert outcome.code == 2
    assert "has files that gpt export did not write" in outcome.err


def test_a_name_that_is_not_utf8_is_written_into_every_file(copied: Path, run: RunCommand) -> None:
    name = os.fsdecode(b"a\xff")
    copied.rename(name)
    for words in (
        "explain --prompt The --out e.json",
        "explain --prompt The --out e.md",
        "lens --prompt The --out e2.json",
    ):
        run(*words.split(), "--run", name, exits=0)
    run("export", "--run", name, "--out", f"{name}-hf", exits=0)
    run("export", "--run", name, "--format", "gguf", "--out", f"{name}.gguf", exits=0)
    assert json.loads(Path("e.json").read_text("utf-8"))["checkpoint"] == f"{name}/checkpoints/best.safetensors"
    assert b"FROM ./a\xff.gguf\n" in Path("Modelfile").read_bytes()


def test_names_of_runs_do_nothing_to_a_terminal_or_a_shell(
    copied: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["\x1b]0;x\x07", "$(touch canary)", ";id", "a\nb", "\u202ea", "\x9b2J"]
    for name in names:
        shutil.copytree(copied, Path("runs") / name)
    with monkeypatch.context() as patch:
        patch.setattr(_Standard, "isatty", lambda _: True)
        assert "Your newest run is runs/" in (welcome := run().out)
        assert not {*"\x1b\x9b\u202e"} & {*welcome}
    for command in (
        ["runs", "runs"],
        ["info", "runs/none"],
        ["info", f"runs/{names[0]}"],
        ["report", f"runs/{names[-1]}"],
        ["explain", "--run", f"runs/{names[0]}", "--prompt", "The"],
    ):
        outcome = run(*command)
        assert not {*"\x1b\x07\x9b\u202e"} & {*outcome.out, *outcome.err}, command
    (named,) = Path("runs").glob("a*b")
    for command in (
        ["eval", "--run", str(named)],
        ["export", "--run", str(named), "--out", "a\x1b[2Jb.safetensors", "--format", "safetensors"],
        ["train", "--out", str(named), "--resume", "--max-steps", "21", "--quiet"],
    ):
        outcome = run(*command, exits=0)
        assert "a\nb" not in outcome.out
        assert "\x1b" not in outcome.out
    asked = {"_GPT_COMPLETE": "complete_bash", "COMP_WORDS": "gpt sample --run ", "COMP_CWORD": "3", "COLUMNS": "80"}
    for key, value in asked.items():
        monkeypatch.setenv(key, value)
    assert run().out == "runs/smoke\n"
    Path("runs").rename("elsewhere")
    assert (run().out, run().err) == ("\n", "")
