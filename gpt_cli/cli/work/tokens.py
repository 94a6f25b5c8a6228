"""What `gpt tokens` does: it cuts a text, and shows the pieces above their ids. Needs no torch."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.cells import cell_len

from gpt_cli.checkpoints.finding import first_usable
from gpt_cli.checkpoints.header import Header
from gpt_cli.checkpoints.run_files import run_name
from gpt_cli.checkpoints.strict_json import strict_json
from gpt_cli.checkpoints.verified import read_verified
from gpt_cli.cli.terminal import Console, colourful
from gpt_cli.cli.work.flags import refuse_beside
from gpt_cli.errors import CheckpointError, GptError, counted, shown
from gpt_cli.inspecting.labels import label_of
from gpt_cli.sampling.prompts import encode_text, prompt_source, read_prompt
from gpt_cli.text.tokenizer import Tokenizer, named_tokenizer, tokenizer_from_dict

_GROUNDS = ("\033[30;46m", "\033[30;43m")  # by turns: black on cyan and on yellow, which every colour terminal has


def show_tokens(
    *,
    text: str | None,
    prompt: str | None,
    prompt_file: Path | None,
    run: Path | None,
    checkpoint: str | None,
    tokenizer: str | None,
    json: bool,
    quiet: bool,
) -> None:
    """Print the pieces of a text and their ids."""
    if text is not None:
        refuse_beside("TEXT", {"--prompt": prompt, "--prompt-file": prompt_file})
    if tokenizer is not None:
        refuse_beside("--tokenizer", {"--run": run, "--checkpoint": checkpoint})
    console = Console(quiet)
    header = first_usable(run, checkpoint, read_verified, console.warn).header if tokenizer is None else None
    cutter, name = (_named(str(tokenizer)), str(tokenizer)) if header is None else (_of(header), run_name(header.path))
    whole = read_prompt(prompt if text is None else text, prompt_file, header, stdin=sys.stdin)
    source = "TEXT" if text not in (None, "-") else prompt_source(prompt, prompt_file)
    ids = encode_text(cutter, whole, source)
    num_bytes = len(whole.encode())
    if json:
        tokens = [{"id": i, "text": cutter.token_text(i), "bytes": list(cutter.token_bytes[i])} for i in ids]
        figures = {"num_tokens": len(ids), "num_characters": len(whole)}
        figures |= {"bytes_per_token": num_bytes / len(ids) if ids else None}
        console.json({"tokenizer": name, "tokens": tokens, **figures})
        return
    each = f", {num_bytes / len(ids):.2f} bytes per token" if ids else ""
    console.notice(f"{name}: {counted(len(ids), 'token')} for {counted(len(whole), 'character')}{each}")
    # a space between words would not be seen, and is a part of its token
    pieces = [label_of(cutter.token_text(i).replace(" ", "␣"), None) for i in ids]
    for line in _lines(pieces, ids, shutil.get_terminal_size().columns, colour=colourful(sys.stdout)):
        console.result(line)


def _of(header: Header) -> Tokenizer:
    """The tokenizer of a checkpoint; raises CheckpointError."""
    try:
        return tokenizer_from_dict(strict_json(header.metadata["tokenizer"]))
    except (TypeError, ValueError, RecursionError, GptError) as error:
        raise CheckpointError(header.where, f"this is not a valid checkpoint, {shown(error)}") from error


def _named(name: str) -> Tokenizer:
    """A tokenizer without a run; errors are about --tokenizer."""
    try:
        return named_tokenizer(name)
    except GptError as error:
        error.where, error.hint = "--tokenizer", "--tokenizer byte needs no vocabulary"
        raise


def _lines(pieces: Sequence[str], ids: Sequence[int], width: int, *, colour: bool) -> Iterator[str]:
    """Pieces in a row with their ids below them, in as many such pairs of lines as the width asks for."""
    upper, lower, length = "", "", 0
    for number, (piece, id_) in enumerate(zip(pieces, ids, strict=True)):
        cells = max(cell_len(piece), len(str(id_)))
        if length and length + cells > width:
            yield f"{upper.rstrip()}\n{lower.rstrip()}\n"
            upper, lower, length = "", "", 0
        ground, plain = (_GROUNDS[number % 2], "\033[0m") if colour else ("", "")
        upper += f"{ground}{piece}{plain}{' ' * (cells - cell_len(piece) + 1)}"
        lower += f"{id_:<{cells}} "
        length += cells + 1
    if pieces:
        yield f"{upper.rstrip()}\n{lower.rstrip()}"
