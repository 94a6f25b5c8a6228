from __future__ import annotations

import os
import pkgutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.faults import RESUME, START, fingerprint, new_folder
from support.helpers import run_command

from gpt_cli.cli.signals import Signals, listening, signal_name


def heard(signals: Signals) -> int | None:
    """What was asked for, once the thread that hears had time to."""
    deadline = time.monotonic() + 10
    while signals.stop() is None and time.monotonic() < deadline:
        time.sleep(0.001)
    return signals.stop()


def saving() -> Signals:
    signals = Signals()
    signals.saving = True
    return signals


def test_the_first_signal_is_remembered_and_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    signals = saving()
    with listening(signals):
        assert signals.stop() is None
        os.kill(os.getpid(), signal.SIGTERM)
        assert heard(signals) == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == before


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


def test_usr1_asks_once_for_a_checkpoint() -> None:
    signals = saving()
    with listening(signals):
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGTERM)
        assert heard(signals) == signal.SIGTERM
        assert [signals.save_asked(), signals.save_asked()] == [True, False]


def test_one_hang_up_may_arrive_twice() -> None:
    """The kernel and the shell both send HUP when a terminal goes away; a service manager sends TERM and HUP."""
    signals = saving()
    with listening(signals):
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGHUP)
        assert heard(signals) == signal.SIGTERM
        time.sleep(0.1)  # in which the second one is heard


@pytest.mark.parametrize(
    ("before", "then", "code", "err"),
    [
        ("", ["SIGHUP"], 129, "warning: stopped by SIGHUP before the first step\nleft\n"),
        ("signals.saving = True", ["SIGINT", "SIGTERM"], 143, ""),
        ("signals.saving = True", ["SIGHUP", "SIGHUP"], 129, ""),
    ],
    ids=["nothing-to-save", "second", "second-hang-up-later"],
)
def test_a_signal_ends_the_process_at_once(before: str, then: list[str], code: int, err: str) -> None:
    sends = "\n    ".join(f"os.kill(os.getpid(), signal.{name}); time.sleep(1.2)" for name in then)
    script = (
        "import os, signal, time\nfrom gpt_cli.cli.signals import Signals, listening\n"
        f"signals = Signals(lambda: os.write(2, b'left\\n'))\n{before}\n"
        f"with listening(signals):\n    {sends}\n    time.sleep(60)"
    )
    done = subprocess.run([sys.executable, "-c", script], timeout=30, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (code, err)


def test_signals_have_names() -> None:
    assert signal_name(15) == "SIGTERM"


PLACES = {
    "the optimizer's step": "gpt_cli.training.optimizer.Optimizer.step",
    "a forward pass": "gpt_cli.model.gpt.GPT.forward",
    "an evaluation": "gpt_cli.training.observation.evaluate",
    "a sample": "gpt_cli.training.observation.generate",
    "a line of metrics": "gpt_cli.training.observation.append",
    "a save": "gpt_cli.checkpoints.run_directory.save_checkpoint",
    "a removal": "gpt_cli.checkpoints.run_directory.remove",
    "the clearing of an old run": "gpt_cli.checkpoints.run_directory.require_writable",
}


@pytest.mark.parametrize("place", PLACES)
def test_a_signal_that_arrives_within_something_is_heeded_after_it(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, in the seventh call or so; then the run continues to the same end."""
    whole = new_folder(tmp_path / "whole", "train.save_every=2")
    monkeypatch.chdir(whole)
    assert run_command(*START, "--quiet").code == 0
    folder = new_folder(tmp_path / "a", "train.save_every=2")
    monkeypatch.chdir(folder)
    calls = 0
    module, name = PLACES[place].rsplit(".", 1)
    owner = pkgutil.resolve_name(module)
    real = getattr(owner, name)

    def signalled(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(*arguments, **named)

    at = {"an evaluation": 2, "a sample": 2, "a save": 4, "a removal": 3, "the clearing of an old run": 1}.get(place, 7)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, signalled)
        outcome = run_command(*START)
    assert calls >= at
    assert outcome.code == 143, outcome.err
    assert "stopped by SIGTERM" in outcome.err.splitlines()[-1]
    assert run_command(*RESUME, "--quiet").code == 0
    assert fingerprint(folder / "run") == fingerprint(whole / "run")
