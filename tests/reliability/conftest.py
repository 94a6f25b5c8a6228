"""Servers that fork, and a table of how many cases held."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from support.faults import SCALE
from support.forks import Servers

Tally = Callable[[str, int], None]
_COUNTS = pytest.StashKey[dict[str, int]]()


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    servers = Servers()
    yield servers
    servers.close()


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Tally:
    """Call it at the end of a test, with what held and the number of cases to add."""

    def count(what: str, cases: int) -> None:
        counts = request.config.stash.setdefault(_COUNTS, {})
        counts[what] = counts.get(what, 0) + cases

    return count


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the tests that cannot be shortened at full scale only."""
    if SCALE < 1:
        long = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if counts := config.stash.get(_COUNTS, {}):
        terminalreporter.write_line(f"cases tried, all of which held (GPT_TEST_SCALE={SCALE:g}):")
        for what, cases in counts.items():
            terminalreporter.write_line(f"  {cases:>7,}  {what}")
