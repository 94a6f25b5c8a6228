from __future__ import annotations

import os
import signal
import subprocess
import sys

from gpt_cli.cli.signals import stop_signals


def test_the_first_signal_is_remembered_and_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stop_signals() as signals:
        assert signals() is None
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals() == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    """As HUP is under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_signals() as signals:
            os.kill(os.getpid(), signal.SIGHUP)
            assert signals() is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_second_signal_ends_the_process_at_once() -> None:
    script = (
        "import os, signal, time\nfrom gpt_cli.cli.signals import stop_signals\n"
        "with stop_signals():\n"
        "    os.kill(os.getpid(), signal.SIGINT); os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)"
    )
    assert subprocess.run([sys.executable, "-c", script], timeout=30).returncode == 143
