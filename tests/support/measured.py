"""The most memory that a command takes."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_SCRIPT = """
import itertools, sys
from gpt_cli.__main__ import run
codes = {run([*words]) for between, words in itertools.groupby(sys.argv[1:], "&&".__eq__) if not between}
print(open("/proc/self/status").read(), file=sys.stderr)
sys.exit(*codes)
"""


def peak(status: str | None = None) -> int:
    """The most memory that this process had at once, or the one of that /proc/self/status: bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text() if status is None else status)
    assert found, status
    return 1024 * int(found[1])


@dataclass(frozen=True)
class Measured:
    """How a process ended, and the most memory that it had at once, in bytes."""

    code: int
    out: str
    err: str
    peak: int


def measured(*arguments: str | Path) -> Measured:
    """Run `gpt` in a process of its own, or several commands with && between them that end with the same code.

    Linux tells the peak; that of getrusage would begin with the tests' own.
    """
    command = [sys.executable, "-c", _SCRIPT, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environment)
    return Measured(done.returncode, done.stdout, done.stderr, peak(done.stderr))
