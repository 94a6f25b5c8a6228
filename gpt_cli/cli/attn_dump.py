"""`gpt attn-dump`"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpt_cli.cli import options
from gpt_cli.cli.prompts import read_prompt
from gpt_cli.cli.terminal import Console, colourful
from gpt_cli.errors import DataError

if TYPE_CHECKING:
    from gpt_cli.inspecting.dump import AttentionDump

STAGES = ("weights", "scores", "queries", "keys", "values", "heads")


def attn_dump(
    prompt: options.Prompt = None,
    prompt_file: options.PromptFile = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help=".npz, .safetensors, .json, .csv or .png; left out, it draws in the terminal.",
        ),
    ] = None,
    run: options.Run = None,
    checkpoint: options.Checkpoint = None,
    layers: Annotated[str | None, typer.Option(metavar="LIST", help="Layers, such as 0,3-5. Default: all.")] = None,
    heads: Annotated[str | None, typer.Option(metavar="LIST", help="Heads, such as 0-3. Default: all.")] = None,
    stage: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STAGE",
            parser=options.one_of(*STAGES),
            help="More than the weights: scores (undivided, unmasked), queries, keys, values, heads. Repeatable.",
        ),
    ] = None,
    file_dtype: Annotated[
        str,
        typer.Option(metavar="NAME", parser=options.one_of("float32", "float16"), help="float32 or float16."),
    ] = "float32",
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Keep the last tokens of a prompt that is too long.")
    ] = False,
    device: options.Device = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Show or save where each head looks on a prompt. Row: the token that looks. Column: what it looks at."""
    console = Console(quiet)
    stages = ("weights", *(name for name in STAGES[1:] if name in (stage or [])))
    text = read_prompt(prompt, prompt_file)

    from gpt_cli.checkpoints.discovery import load
    from gpt_cli.inspecting.dump import dump_attention, parse_selection
    from gpt_cli.model.device import choose_device

    if out is not None:
        from gpt_cli.inspecting.export import check_format

        check_format(out, stages)
    where = choose_device(device or "auto")
    loaded = load(run, checkpoint, console.warn)
    sizes = loaded.config.model
    ids = loaded.tokenizer.encode(text) or [loaded.tokenizer.end_of_text]
    if len(ids) > sizes.context_length:
        if not truncate:
            raise DataError(
                "prompt", f"has {len(ids)} tokens", f"this model sees {sizes.context_length}",
                hint="--truncate keeps the last ones",
            )  # fmt: skip
        ids = ids[-sizes.context_length :]
    dump = dump_attention(
        loaded.model.to(where), loaded.tokenizer, ids,
        layers=parse_selection(layers, sizes.num_blocks, "--layers"),
        heads=parse_selection(heads, sizes.num_heads, "--heads"),
        stages=stages, file_dtype=file_dtype,
    )  # fmt: skip
    if out is None:
        _draw(console, dump)
    else:
        from gpt_cli.inspecting.export import write_dump

        write_dump(out, dump, console.notice)
        console.notice(f"wrote {out}: {len(dump.layers)} layers, {len(dump.heads)} heads, {len(ids)} tokens")
    if json:
        console.json({
            "checkpoint": str(loaded.path), "out": out and str(out), "layers": dump.layers, "heads": dump.heads,
            "tokens": dump.tokens, "stages": stages,
        })  # fmt: skip


def _draw(console: Console, dump: AttentionDump) -> None:
    """Draw on stdout: in colour on a terminal, in shades elsewhere."""
    from rich.console import Console as RichConsole

    from gpt_cli.inspecting.drawing import draw_map, maps_to_draw

    width = shutil.get_terminal_size().columns
    terminal = RichConsole(
        file=sys.stdout, width=width, no_color=not colourful(sys.stdout), highlight=False, soft_wrap=True
    )
    # sixteen colours cannot be told apart as shades of one scale
    colour = colourful(sys.stdout) and terminal.color_system in ("256", "truecolor")
    for title, weights in maps_to_draw(dump).items():
        drawing, num_shown = draw_map(dump.tokens, weights, width, colour=colour)
        if num_shown < len(dump.tokens):
            console.notice(f"the last {num_shown} of {len(dump.tokens)} tokens fit here; --out FILE.png shows all")
        # captured, since rich would end the process by itself when the reader of stdout goes away
        with terminal.capture() as capture:
            terminal.print(title)
            terminal.print(drawing)
        console.result(capture.get().rstrip("\n"))
