"""Tests on the simulated devices, each in a fork of the process that runs the tests: torch keeps a device for good."""

from __future__ import annotations

import io
import os
import pickle
import sys
import traceback
import warnings
from typing import Any, NoReturn

import pytest
import torch

from support.accelerator.simulation import Accelerator, missing
from support.messages import HEARD

FIXTURE = "accelerator"


def call_in_a_fork(item: pytest.Function) -> None:
    """Call a test function where torch knows the devices of its fixture; fails and skips as it does there."""
    if why := missing():
        pytest.skip(why)
    ready, theirs = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
        pid = os.fork()
    if pid == 0:
        os.close(ready)
        _child(item, theirs)
    os.close(theirs)
    with open(ready, "rb") as answers:
        content = answers.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if not content:
        pytest.fail(f"the process of the test ended with {status}", pytrace=False)
    kind, text, heard = pickle.loads(content)
    HEARD.update(heard)
    if kind != "passed":
        getattr(pytest, kind)(text) if kind == "skip" else pytest.fail(text, pytrace=False)


def _child(item: pytest.Function, answers: int) -> NoReturn:
    kind, text = "passed", ""
    try:
        torch.set_num_threads(1)  # the threads of the other process are not here
        accelerator: Accelerator = item.funcargs[FIXTURE]
        accelerator.begin()
        arguments: dict[str, Any] = {name: item.funcargs[name] for name in item._fixtureinfo.argnames}
        item.obj(**arguments)
        accelerator.end()
    except pytest.skip.Exception as error:
        kind, text = "skip", str(error)
    except BaseException:
        shown = io.StringIO()
        traceback.print_exc(file=shown)
        kind, text = "fail", shown.getvalue()
    with open(answers, "wb") as file:
        pickle.dump((kind, text, HEARD), file)
    os._exit(0)
