"""`gpt attn-dump`"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpt_cli.cli import options
from gpt_cli.cli.prompts import encode_prompt, read_prompt
from gpt_cli.cli.terminal import Console, colourful, size, table
from gpt_cli.errors import EnvironmentFailure, UsageError, counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpt_cli.config import ModelConfig
    from gpt_cli.inspecting.dump import AttentionDump
    from gpt_cli.model import GPT
    from gpt_cli.text.tokenizer import Tokenizer

STAGES = ("weights", "scores", "queries", "keys", "values", "heads")


def attn_dump(
    prompt: options.Prompt = None,
    prompt_file: options.PromptFile = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help=".npz, .safetensors, .json, .csv, .png, .svg or .html; left out, it draws in the terminal.",
        ),
    ] = None,
    run: options.Run = None,
    checkpoint: options.Checkpoint = None,
    layers: Annotated[str | None, typer.Option(metavar="LIST", help="Layers, such as 0,3-5. Default: all.")] = None,
    heads: Annotated[str | None, typer.Option(metavar="LIST", help="Heads, such as 0-3. Default: all.")] = None,
    generate: Annotated[
        int | None,
        typer.Option(
            parser=options.whole_number(1, 65_536), help="Let the model go on for N tokens, and show these too."
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(parser=options.number(0), help="Of --generate; 0 always takes the likeliest token. Default: 0.8."),
    ] = None,
    seed: Annotated[int | None, typer.Option(parser=options.whole_number(0), help="Of --generate. Default: 0.")] = None,
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
        typer.Option(
            metavar="NAME",
            parser=options.one_of("float32", "float16"),
            help="float32, or float16 in .npz and .safetensors.",
        ),
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
    from gpt_cli.inspecting.labels import label_of
    from gpt_cli.machine import choose_device

    if out is not None:
        from gpt_cli.inspecting.export import check_format

        check_format(out, stages, file_dtype)
    if generate is None and (temperature is not None or seed is not None):
        raise UsageError("--seed" if temperature is None else "--temperature", "is for --generate", "add --generate N")
    if out is None and (stage or file_dtype != "float32"):
        raise UsageError("--stage" if stage else "--file-dtype", "needs a file", "use --out FILE.npz")
    where = choose_device(device or "auto")
    loaded = load(run, checkpoint, console.warn)
    sizes = loaded.config.model
    ids = encode_prompt(loaded.tokenizer, text, sizes.context_length, generate or 0, truncate=truncate)
    chosen_layers = parse_selection(layers, sizes.num_blocks, "--layers")
    chosen_heads = parse_selection(heads, sizes.num_heads, "--heads")
    _require_room(out, chosen_layers, chosen_heads, stages, len(ids), generate or 0, sizes)
    model = loaded.model.to(where)
    prompt_length = len(ids)
    if generate:
        ids = ids + _continuation(
            model, loaded.tokenizer, ids, generate, 0.8 if temperature is None else temperature, seed or 0
        )
    dump = dump_attention(
        model, loaded.tokenizer, ids, layers=chosen_layers, heads=chosen_heads, stages=stages, file_dtype=file_dtype,
        num_generated=len(ids) - prompt_length,
    )  # fmt: skip
    generated = [
        {"text": text, "probability": chance.probability, "rank": chance.rank}
        for text, chance in zip(dump.tokens[prompt_length:], dump.chances, strict=True)
    ]
    if generated:
        rows = [("generated", "probability", "rank")]
        rows += [(label_of(found["text"]), f"{found['probability']:.4f}", str(found["rank"])) for found in generated]
        console.notice(table(rows))
    if out is None:
        _draw(console, dump)
    else:
        from gpt_cli.inspecting.export import write_dump

        write_dump(out, dump, console.notice)
        numbers = (("layer", dump.layers), ("head", dump.heads), ("token", ids))
        console.notice(f"wrote {out}: {', '.join(counted(len(found), noun) for noun, found in numbers)}")
    if json:
        console.json({
            "checkpoint": str(loaded.path), "out": out and str(out), "layers": dump.layers, "heads": dump.heads,
            "tokens": dump.tokens, "stages": stages, **({"generated": generated} if generate else {}),
        })  # fmt: skip


def _continuation(
    model: GPT, tokenizer: Tokenizer, ids: list[int], count: int, temperature: float, seed: int
) -> list[int]:
    """What the model writes after ids, until it ends the text."""
    from gpt_cli.sampling.decoder import Decoder
    from gpt_cli.sampling.generate import continuations
    from gpt_cli.sampling.next_token import SamplingParameters

    parameters = SamplingParameters(temperature=temperature)
    (tokens,) = continuations(
        Decoder(model), [ids], parameters, max_new_tokens=count, seed=seed, end_of_text=tokenizer.end_of_text
    )
    return tokens


def _require_room(
    out: Path | None,
    layers: Sequence[int],
    heads: Sequence[int],
    stages: Sequence[str],
    prompt_length: int,
    num_generated: int,
    sizes: ModelConfig,
) -> None:
    """Refuse what memory or disk cannot hold, before anything is computed, and name flags that make it fit."""
    from gpt_cli.inspecting.dump import count_numbers
    from gpt_cli.inspecting.export import writing_bytes
    from gpt_cli.machine import available_memory

    num_tokens = prompt_length + num_generated
    of_head = count_numbers(stages, num_tokens, sizes)
    writing, written = (0, 0) if out is None else writing_bytes(out, of_head)
    # the arrays of all layers, and once more while they are put together
    needs = [(8 * of_head + writing, available_memory(), "memory")]
    if out is not None:
        folder = next(parent for parent in out.absolute().parents if parent.is_dir())
        needs.append((written, shutil.disk_usage(folder).free, "disk"))
    count = len(layers) * len(heads)
    for need, free, what in needs:
        if free is None or need * count <= free:
            continue
        num_heads = free // max(1, need)
        if num_heads >= len(heads):
            fits = f"--layers {','.join(map(str, layers[: num_heads // len(heads)]))}"
        elif num_heads:
            fits = f"--layers {layers[0]} --heads {','.join(map(str, heads[:num_heads]))}"
        else:
            fits = "use a shorter prompt" + (" or a smaller --generate" if num_generated else "")
        raise EnvironmentFailure(
            "attn-dump",
            f"{counted(count, 'head')} on {counted(num_tokens, 'token')} take about {size(need * count)} of {what}",
            f"{size(free)} are free", hint=fits,
        )  # fmt: skip


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
