"""Servers that fork, and a table of how many cases held."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from faults import SCALE, Servers

Tally = Callable[[str, int], None]
_COUNTS = pytest.StashKey[dict[str, int]]()


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    servers = Servers()
    yield servers
    servers.close()


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Tally:
    """Call it last in a test, with what held and in how many cases."""

    def count(what: str, cases: int) -> None:
        request.config.stash.setdefault(_COUNTS, {})[what] = cases

    return count


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if counts := config.stash.get(_COUNTS, {}):
        terminalreporter.write_line(f"cases that held, all that were tried (GPT_TEST_SCALE={SCALE:g}):")
        for what, cases in counts.items():
            terminalreporter.write_line(f"  {cases:>7,}  {what}")
