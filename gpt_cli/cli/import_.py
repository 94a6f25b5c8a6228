"""`gpt import`: its flags."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpt_cli.cli import options


def import_(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            parser=options.path,
            help="A directory of transformers with a GPT-2, or one that gpt export wrote.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="RUN", parser=options.path, help="The run directory. Default: runs/<name of DIR>."
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in --out.")] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Make a run of a GPT-2, with which all commands work: sample, attn-dump, explain, train --init-from.

    It reads config.json, safetensors and the tokenizer; nothing is downloaded or unpickled.
    """
    given = locals()
    from gpt_cli.cli.work.import_ import import_ as work

    return work(**given)
