"""Ask the user on a terminal, then run `gpt runs rm`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpt_cli.cli.console import Console
from gpt_cli.common.language import say
from gpt_cli.common.units import size
from gpt_cli.errors import UsageError, counted, visible

if TYPE_CHECKING:
    from gpt_cli.checkpoints.run_paths import RunFiles
    from gpt_cli.tools.reports.request import RemoveRequest


def drive(request: RemoveRequest, console: Console, *, json: bool, words: Sequence[str]) -> None:
    """Remove the runs of `request` if the user agrees, on the terminal or by --yes; print each removed run.

    `json` and `words` (the command line) are not used.
    """
    from gpt_cli.tools.reports.run_table import removed, removing

    host = console.host()
    runs = request.find(host)
    if not request.yes and not _agreed(runs):
        console.notice("nothing was removed")
        return
    for run in removing(runs, host):
        console.result(removed(run.path))


def _agreed(runs: Sequence[RunFiles]) -> bool:
    """Ask the user whether to remove runs, and return the answer; raise UsageError without a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("gpt runs rm", "it can ask only on a terminal; --yes removes without asking")
    num_bytes = sum(path.stat().st_size for run in runs for path in run.files())
    names = ", ".join(visible(run.path) for run in runs)
    question = say(f"remove {counted(len(runs), 'run')} ({names}), {size(num_bytes)}? [y/N] ")
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes", "是")
