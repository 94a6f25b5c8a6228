"""Results in a terminal: as text, and as those show themselves that look into a model."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

from gpt_cli.cli.console import Console, colourful
from gpt_cli.errors import UsageError
from gpt_cli.tools.interpret.request import STDOUT, AttentionRequest

if TYPE_CHECKING:
    from gpt_cli.common.results import Result
    from gpt_cli.tools.explain.explain import Explained
    from gpt_cli.tools.interpret.attention import Attention
    from gpt_cli.tools.interpret.reports import Report
    from gpt_cli.tools.interpret.tokens import Tokens


def show_text(result: Result | Explained, console: Console) -> None:
    """What a result says in a terminal; it may be nothing."""
    show = result.as_coloured_text if colourful(sys.stdout) else result.as_text
    if text := show(shutil.get_terminal_size().columns):
        console.result(text)


def require_shown(request: AttentionRequest, *, json: bool) -> None:
    """Raises UsageError for what stdout cannot show: a film, more than weights in a drawing, two results."""
    if request.out is None and request.over_training:
        sentence = "a film is a page, so it needs a name in .html"
        raise UsageError("--over-training", sentence, hint="--out film.html")
    if request.out is None and (request.stage or request.file_dtype != "float32"):
        flag = "--stage" if request.stage else "--file-dtype"
        raise UsageError(flag, "the drawing in the terminal shows weights only", hint="--out FILE.npz")
    if json and request.out == STDOUT:
        raise UsageError("--json", "--json and --out - cannot be combined; leave one of them out")


def show_tokens(result: Tokens, console: Console) -> None:
    """The figures on stderr; the pieces and their ids, which on a terminal have colours."""
    console.notice(result.summary)
    for line in result.lines(shutil.get_terminal_size().columns, colour=colourful(sys.stdout)):
        console.result(line)


def show_attention(result: Attention, console: Console) -> None:
    """A drawing, or the numbers on stdout; nothing where they are in a file, as a film always is."""
    if result.out is None:
        width = shutil.get_terminal_size().columns
        drawing, num_shown = result.drawing(width, coloured=colourful(sys.stdout))
        if num_shown < len(result.tokens):
            console.notice(f"the last {num_shown} of {len(result.tokens)} tokens fit here; --out FILE.png shows all")
        console.result(drawing)
    elif result.out == str(STDOUT):
        console.pieces(piece.decode() for piece in result.numbers())


def show_report(result: Report | Explained, console: Console) -> None:
    """The table, and what it is about on stderr; nothing where they are in a file."""
    if result.out is None:
        for line in result.legend():
            console.notice(line)
        show_text(result, console)
