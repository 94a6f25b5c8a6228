"""`gpt attn-dump`: its flags."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpt_cli.cli import options
from gpt_cli.inspecting.stages import STAGES


def attn_dump(
    prompt: options.Prompt = None,
    prompt_file: options.PromptFile = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            parser=options.path,
            help="A .npz, .safetensors, .json, .csv, .png, .svg or .html file; - writes JSON or CSV to stdout. "
            "Default: a drawing in the terminal.",
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            **options.one_of("json", "csv"),
            help="What --out - writes: json or csv. Default: json.",
        ),
    ] = None,
    run: options.WhichRun = None,
    checkpoint: options.WhichCheckpoint = None,
    layers: Annotated[str | None, typer.Option(metavar="LIST", help="Layers, such as 0,3-5. Default: all.")] = None,
    heads: Annotated[str | None, typer.Option(metavar="LIST", help="Heads, such as 0-3. Default: all.")] = None,
    generate: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=options.whole_number(1, 65_536),
            help="Let the model add N tokens, and show their attention too.",
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            parser=options.TEMPERATURE,
            help="For --generate; 0 always takes the likeliest token. Default: 0.8.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", parser=options.whole_number(0, options.MAX_SEED), help="For --generate. Default: 0."),
    ] = None,
    stage: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STAGE",
            **options.one_of(*STAGES),
            help="Write more than the weights: scores (neither divided nor masked), queries, keys, values, heads. "
            "Repeatable.",
        ),
    ] = None,
    file_dtype: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            **options.one_of("float32", "float16"),
            help="float32, or float16 in .npz and .safetensors.",
        ),
    ] = "float32",
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Keep the last tokens of a prompt that is too long.")
    ] = False,
    over_training: Annotated[
        bool,
        typer.Option(
            "--over-training",
            help="Write a film of the steps that gpt train --watch has kept, as a page: --out film.html.",
        ),
    ] = False,
    device: options.Device = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Show or save where each head looks.

    Each row of a map is a token that looks, each column a token it looks at.
    """
    given = locals()
    from gpt_cli.cli.work.attn_dump import attn_dump as work

    return work(**given)
