"""`gpt tokens` in a terminal."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

from gpt_cli.cli.terminal import Console, colourful

if TYPE_CHECKING:
    from gpt_cli.inspecting.tokens import Tokens


def show(result: Tokens, console: Console) -> None:
    """The figures on stderr; the pieces and their ids, which on a terminal have colours."""
    console.notice(result.summary)
    for line in result.lines(shutil.get_terminal_size().columns, colour=colourful(sys.stdout)):
        console.result(line)
