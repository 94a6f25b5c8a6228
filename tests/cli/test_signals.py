import contextlib
import json
import os
import pkgutil
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.faults import RESUME, START, fingerprint, new_folder
from support.helpers import run_command, unread_pipe, wait_until

from gpt_cli.cli.signals import Signals, listening
from gpt_cli.common.machine.signals import held_back

pytestmark = pytest.mark.slow


def heard(signals: Signals) -> int | None:
    """What was asked for, once the thread that hears had time to."""
    deadline = time.monotonic() + 10
    while signals.received is None and time.monotonic() < deadline:
        time.sleep(0.001)
    return signals.received


def saving() -> Signals:
    signals = Signals()
    signals.saving = True
    return signals


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    """As HUP is under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signals = saving()
    try:
        with listening(signals):
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGINT)
            assert heard(signals) == signal.SIGINT
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("seconds", "first", "others"),
    [(100.0, signal.SIGTERM, [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]), (0.0, signal.SIGXCPU, [signal.SIGXCPU])],
)
def test_the_first_signal_is_remembered_and_one_wish_may_arrive_more_than_once(
    seconds: float, first: signal.Signals, others: list[signal.Signals], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`timeout` signals its child and its group, a wrapper sends INT too, a closed terminal HUP twice; XCPU: setrlimit(2)."""
    monkeypatch.setattr("gpt_cli.cli.signals.SAME_REQUEST_SECONDS", seconds)
    signals, before = saving(), signal.getsignal(first)
    with listening(signals):  # which ends when all are heard
        assert signals.received is None
        os.kill(os.getpid(), first)
        assert heard(signals) == first
        for number in others:
            os.kill(os.getpid(), number)
            time.sleep(0.01)
    assert signal.getsignal(first) == before


def script(before: str, *then: str) -> list[str]:
    """A process that sends itself signals, the second as soon as the first was heard, and then takes long."""
    second = "while signals.received is None: time.sleep(0.001)\n    "
    sends = second.join(f"os.kill(os.getpid(), signal.{name})\n    " for name in then)
    return [
        *(sys.executable, "-c"),
        "import os, signal, time\nfrom gpt_cli.cli import signals as module\nmodule.SAME_REQUEST_SECONDS = 0\n"
        f"signals = module.Signals(lambda: os.write(2, b'left\\n'), '; resume: so')\n{before}\n"
        f"with module.listening(signals):\n    {sends}time.sleep(60)",
    ]


@pytest.mark.parametrize(
    ("before", "then", "code", "err"),
    [
        ("", ["SIGHUP"], 129, "warning: stopped by SIGHUP before the first step\nleft\n"),
        (
            "signals.saving = True",
            ["SIGINT", "SIGTERM"],
            143,
            "warning: ended by a second signal, SIGTERM, without saving the last steps; resume: so\nleft\n",
        ),
        (
            "signals.saving = signals.saved = True",
            ["SIGTERM", "SIGINT"],
            130,
            "warning: ended by a second signal, SIGINT, after all was saved\nleft\n",
        ),
    ],
    ids=["nothing-to-save", "second-wish", "while-it-concludes"],
)
def test_a_signal_ends_the_process_at_once(before: str, then: list[str], code: int, err: str) -> None:
    done = subprocess.run(script(before, *then), timeout=30, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (code, err)


def test_a_line_that_nobody_reads_does_not_hold_up_the_end() -> None:
    for before, sent in (("", 1), ("signals.saving = True", 2)):
        command = script(f"signals.before_leaving = lambda: None\n{before}", *["SIGTERM"] * sent)
        with unread_pipe() as stderr:
            assert subprocess.run(command, timeout=30, stderr=stderr).returncode == 143


ENDLESS = ("train.max_steps=1000000", "train.save_every=2", "train.micro_batch_size=2")
# a process that draws no picture of its losses, which would take longer than its training
GPT = (
    *(sys.executable, "-c"),
    "from gpt_cli.__main__ import main\nfrom gpt_cli.cli import train_worker\n"
    "train_worker.leave_picture = lambda *_: None\nmain()",
)
SWEEP = "base: c.yaml\nsettings: {train.warmup_steps: 2}\ngrid: {train.learning_rate: [1e-3]}\n"


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "pages"),
    [
        pytest.param((*START, "--quiet"), 0, id="quiet"),
        pytest.param((*START, "--set", "train.eval_every=1", "--set", "train.sample_every=1"), 2, id="printing"),
        pytest.param((*START, "--quiet", "--processes", "2"), 0, id="processes"),
        pytest.param(("sweep", "s.yaml", "--out", "run", "--quiet"), 0, id="sweep"),
    ],
)
def test_term_saves_and_ends_a_training_whose_output_nobody_reads(
    tmp_path: Path, words: tuple[str, ...], pages: int
) -> None:
    """Neither stderr nor stdout, as behind a pager that waits for a key."""
    folder = new_folder(tmp_path / "a", *ENDLESS)
    (folder / "s.yaml").write_text(SWEEP)
    command = [*GPT, *words]
    with unread_pipe(pages) as unread, subprocess.Popen(command, cwd=folder, stdout=unread, stderr=unread) as process:
        deadline = time.monotonic() + 120
        while not any(folder.glob("run/**/step-*.safetensors")) or select.select([], [unread], [], 0)[1]:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.terminate()
        assert process.wait(60) == 143
    run = next(folder.glob("run/**/config.yaml")).parent
    assert not (run / ".lock").exists()
    assert json.loads((run / "outcome.json").read_text())["stopped_by"] == "signal"


def test_ctrl_c_ends_a_command_whose_output_nobody_reads(here: Path) -> None:
    """Its stdout is full in the middle of a result."""
    command = [sys.executable, "-m", "gpt_cli", "config", "schema"]
    with unread_pipe(1) as unread, subprocess.Popen(command, stdout=unread, stderr=unread) as process:
        wait_until("the pipe does not fill", lambda: not select.select([], [unread], [], 0)[1])
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130


@pytest.mark.long
def test_tests_of_signals_pass_where_the_tests_ignore_them() -> None:
    """As after `nohup make test &`, or in the background of a script."""
    test = f"{__file__}::test_a_signal_ends_the_process_at_once"
    command = ["sh", "-c", "trap '' INT HUP; exec \"$@\"", "sh", sys.executable, "-m", "pytest", "-q", "-x", test]
    done = subprocess.run(command, timeout=120, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a training leaves that no signal stops."""
    whole = new_folder(tmp_path_factory.mktemp("whole") / "a", "train.save_every=2")
    with contextlib.chdir(whole):
        run_command(*START, "--quiet", exits=0)
    return fingerprint(whole / "run")


@pytest.mark.parametrize(
    ("place", "at"),
    [
        ("training.optimizer.Optimizer.step", 7),
        pytest.param("model.gpt.GPT.forward", 7, marks=pytest.mark.long),
        ("training.evaluate_and_log.validation_score", 2),
        pytest.param("training.evaluate_and_log.continuations", 2, marks=pytest.mark.long),
        pytest.param("training.evaluate_and_log.append", 7, marks=pytest.mark.long),
        ("checkpoints.run_directory.save_checkpoint", 4),
        pytest.param("checkpoints.run_directory.remove", 3, marks=pytest.mark.long),
        ("checkpoints.run_directory.require_writable", 1),
    ],
)
def test_a_signal_that_arrives_within_something_is_heeded_after_it(
    place: str, at: int, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, in the call of that number; then the run continues to the same end."""
    folder = new_folder(tmp_path / "a", "train.save_every=2")
    monkeypatch.chdir(folder)
    calls = 0
    module, name = f"gpt_cli.{place}".rsplit(".", 1)
    owner = pkgutil.resolve_name(module)
    real = getattr(owner, name)

    def signalled(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, signalled)
        outcome = run_command(*START)
    assert calls >= at
    assert outcome.code == 143, outcome.err
    assert "stopped by SIGTERM" in outcome.err.splitlines()[-1]
    run_command(*RESUME, "--quiet", exits=0)
    assert fingerprint(folder / "run") == expected


@pytest.mark.skipif(shutil.which("timeout") is None, reason="there is no timeout command here")
def test_a_run_that_timeout_ends_while_it_starts_leaves_no_lock(here: Path) -> None:
    """GNU timeout sends TERM to the process and, at once, to its group."""
    folder = new_folder(here / "a", *ENDLESS)
    command = ["timeout", "-s", "TERM", "0.4", sys.executable, "-m", "gpt_cli", *START]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert (done.returncode, list(folder.rglob(".lock"))) == (124, [])
    assert "step 1" not in done.stderr


@pytest.mark.parametrize(
    "number",
    [*(pytest.param(number, marks=pytest.mark.long) for number in (signal.SIGTERM, signal.SIGXCPU)), signal.SIGINT],
)
def test_a_pair_of_signals_saves(here: Path, number: signal.Signals) -> None:
    """A wish to save that comes before there is anything to save is none, and ends no training."""
    folder = new_folder(here / "a", "train.max_steps=1000000", "train.eval_every=1000000", "train.sample_every=null")
    with held_back(signal.SIGUSR1):  # as by what starts several
        process = subprocess.Popen([*GPT, *START], cwd=folder, stderr=subprocess.PIPE, text=True)
    with process:
        process.send_signal(signal.SIGUSR1)
        wait_until("the training does not begin", lambda: (folder / "run/metrics.jsonl").exists() or process.poll())
        process.send_signal(number)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "as SIGUSR1 requested" not in err
    cause = "Ctrl-C" if number == signal.SIGINT else number.name
    assert list(folder.rglob(".lock")) == []
    step = max(int(path.stem.split("-")[1]) for path in (folder / "run" / "checkpoints").glob("step-*"))
    assert (
        err.splitlines()[-1] == f"stopped by {cause}; step {step} is saved. To continue: gpt train --out run --resume"
    )
