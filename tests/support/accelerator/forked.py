"""Tests on the simulated devices, each in a process of its own: torch keeps a device for good.

These processes are forks of one that was forked before the first test: where a gradient was taken already, torch would
not find the threads that gradients of a device need, and the tokenizer's threads would be missing.
"""

from __future__ import annotations

import io
import os
import pickle
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

import pytest
import torch

from gpt_cli.cli import train_process
from support.accelerator.simulation import Accelerator, missing
from support.messages import HEARD

FIXTURE = "accelerator"
SECONDS = 300  # that a test may take
_OWN = (FIXTURE, "monkeypatch")  # fixtures that the process of a test makes anew; what others return is pickled


class Source:
    """The process of which those of the tests are forks, where a test needs one."""

    def __init__(self, items: Sequence[pytest.Item]) -> None:
        self._items = {item.nodeid: item for item in items if FIXTURE in getattr(item, "fixturenames", ())}
        ours, theirs = socket.socketpair()
        if self._items and not missing() and _fork() == 0:
            ours.close()
            self._serve(theirs)
        theirs.close()
        self._connection = ours.makefile(
            "rwb"
        )  # nobody else has this end, so that the other process ends with this one

    def call(self, item: pytest.Function) -> None:
        """Call a test function where torch knows the devices of its fixture; fails and skips as it does there."""
        if why := missing():
            pytest.skip(why)
        names = [name for name in item._fixtureinfo.argnames if name not in _OWN]
        given = {name: item.funcargs[name] for name in names}
        pickle.dump((item.nodeid, given, os.getcwd(), dict(os.environ)), self._connection)
        self._connection.flush()
        kind, text, heard = pickle.load(self._connection)
        HEARD.update(heard)
        if kind != "passed":
            getattr(pytest, kind)(text) if kind == "skip" else pytest.fail(text, pytrace=False)

    def _serve(self, connection: socket.socket) -> NoReturn:
        stream = connection.makefile("rwb")
        while True:
            try:
                nodeid, *context = pickle.load(stream)
            except EOFError:
                os._exit(0)
            ready, answers = os.pipe()
            pid = _fork()
            if pid == 0:
                _child(self._items[nodeid], answers, *context)
            os.close(answers)
            with open(ready, "rb") as file:
                answer = file.read()
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            stream.write(answer or pickle.dumps(("fail", f"the process of the test ended with {status}", set())))
            stream.flush()


def _fork() -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
        return os.fork()


def _child(item: Any, answers: int, given: dict[str, Any], folder: str, environ: dict[str, str]) -> NoReturn:
    signal.alarm(SECONDS)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    train_process.leave_picture = lambda *_: None
    kind, text = "passed", ""
    try:
        torch.set_num_threads(1)  # the threads of the other process are not here
        accelerator = Accelerator(2)
        accelerator.begin()
        own = {FIXTURE: accelerator, "monkeypatch": pytest.MonkeyPatch()}
        item.obj(**given, **{name: own[name] for name in _OWN if name in item._fixtureinfo.argnames})
        accelerator.end()
    except pytest.skip.Exception as error:
        kind, text = "skip", str(error)
    except BaseException:
        shown = io.StringIO()
        traceback.print_exc(file=shown)
        kind, text = "fail", shown.getvalue()
    with open(answers, "wb") as file:
        pickle.dump((kind, text, set(HEARD)), file)
    os._exit(0)
