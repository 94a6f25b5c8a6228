"""`gpt report` in a terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

from gpt_cli.cli.console import Console, colourful
from gpt_cli.cli.torch_import import importing_torch
from gpt_cli.tools.reports.request import ReportRequest, no_page


def drive(request: ReportRequest, console: Console, *, json: bool, words: Sequence[str]) -> None:
    """Write the file that is asked for, or draw the curves."""
    host = console.host(importing_torch)
    if request.prompt is not None and request.out is None:
        raise no_page()
    paths = request.find(host)
    from gpt_cli.tools.reports.report import report

    result = report(request, paths, host)
    if json:
        console.pieces(result.as_json())
    elif request.out is None:
        show = result.as_coloured_text if colourful(sys.stdout) else result.as_text
        width, encoding = shutil.get_terminal_size().columns, getattr(sys.stdout, "encoding", None)
        console.result(show(width, encoding or "ascii"))
