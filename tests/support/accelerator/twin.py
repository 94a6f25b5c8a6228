"""Tests on the simulated devices run in a twin of the process that runs the others, because torch keeps a device for good."""

import os
import pickle
import sys
import warnings
from typing import Any, NoReturn

import pytest
import torch
from _pytest.runner import runtestprotocol

from support.accelerator.simulation import Accelerator
from support.messages import HEARD

FIXTURE = "accelerator"
DEVICES = pytest.StashKey[Accelerator]()


class Twin:
    """A fork from before the first test, which knows the simulated devices and runs the tests that ask for them.

    A later fork would lack the threads that this process has begun, and autograd those for a device.
    """

    def __init__(self, session: pytest.Session, counts: Any) -> None:
        # its threads would lack in the fork, which then waits for them for ever
        assert "rustbpe" not in sys.modules, (
            "a test module learns byte pairs as it is imported: support.tokenizers.learned"
        )
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined] - which both use, and this one removes
        asked, ask = os.pipe()
        answers, answer = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
            pid = os.fork()
        if pid == 0:
            os.close(ask)
            os.close(answers)
            _serve(session, counts, asked, answer)
        os.close(asked)
        os.close(answer)
        self.session, self.counts = session, counts
        self.ask, self.answers = open(ask, "wb"), open(answers, "rb")  # noqa: SIM115 - for the rest of the process

    def run(self, item: pytest.Item) -> None:
        """Run a test there, and report it here."""
        config = self.session.config
        pickle.dump(item.nodeid, self.ask)
        self.ask.flush()
        try:
            reports, heard, counts = pickle.load(self.answers)
        except EOFError:
            pytest.exit(f"the process with simulated devices ended in {item.nodeid}", returncode=1)
        for data in reports:
            report = config.hook.pytest_report_from_serializable(config=config, data=data)
            item.ihook.pytest_runtest_logreport(report=report)
        HEARD.update(heard)
        config.stash.setdefault(self.counts, {}).update(counts)


def _serve(session: pytest.Session, counts: Any, asked: int, answer: int) -> NoReturn:
    config, items = session.config, {item.nodeid: item for item in session.items}
    torch.set_num_threads(1)
    accelerator = config.stash[DEVICES] = Accelerator(2)
    accelerator.begin()
    accelerator.available = False
    with open(asked, "rb") as questions, open(answer, "wb") as answers:
        while True:
            try:
                item = items[pickle.load(questions)]
            except (EOFError, KeyboardInterrupt):
                os._exit(0)
            session._setupstate.teardown_exact(item)
            # what the next test in this file may share stays
            others = [each for each in session.items if each is not item]
            following = next((each for each in others if each.parent is item.parent), others[0] if others else None)
            reports = runtestprotocol(item, log=False, nextitem=following)
            of_all = [config.hook.pytest_report_to_serializable(config=config, report=each) for each in reports]
            pickle.dump((of_all, {*HEARD}, config.stash.get(counts, {})), answers)
            answers.flush()
