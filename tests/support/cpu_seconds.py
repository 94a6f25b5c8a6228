"""A plugin for pytest that lists the seconds of processors by file, which a busy machine hardly changes.

`PYTHONPATH=tests python -m pytest -n0 -p support.cpu_seconds tests/model`
"""

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

SECONDS = defaultdict[str, float](float)
_TICK = os.sysconf("SC_CLK_TCK")


def used() -> float:
    """Seconds of this process, of the processes below it and of those that have ended."""
    children, of_process = dict[int, list[int]](), dict[int, float]()
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            columns = entry.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        pid = int(entry.parent.name)
        children.setdefault(int(columns[1]), []).append(pid)
        of_process[pid] = sum(map(int, columns[11:15])) / _TICK
    found, rest = 0.0, [os.getpid()]
    while rest:
        pid = rest.pop()
        found += of_process.get(pid, 0.0)
        rest += children.get(pid, [])
    return found


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    before = used()
    result = yield
    SECONDS[item.nodeid.partition("::")[0]] += used() - before
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.section(f"{sum(SECONDS.values()):.1f} seconds of processors in tests, {used():.1f} in all")
    for file, seconds in sorted(SECONDS.items(), key=lambda each: -each[1]):
        terminalreporter.write_line(f"{seconds:8.1f}  {file}")
