"""What `gpt attn-dump` does with the model: run it on the prompt, then write a file or draw in the terminal."""

from __future__ import annotations

import shutil
import sys

from rich.console import Console as RichConsole
from rich.text import Text

from gpt_cli.checkpoints.discovery import Loaded, load
from gpt_cli.checkpoints.run_files import run_name
from gpt_cli.checkpoints.verified import ReadVerified
from gpt_cli.cli.signals import removing_unfinished
from gpt_cli.cli.terminal import Console, colourful
from gpt_cli.cli.work.wanted import STDOUT, DumpWanted
from gpt_cli.drawing.labels import label_of
from gpt_cli.errors import counted, shown, visible
from gpt_cli.inspecting.dump import AttentionDump, Origin, dump_attention
from gpt_cli.inspecting.export import num_rows, pieces, write_dump
from gpt_cli.inspecting.heads.on_page import with_heads
from gpt_cli.inspecting.maps import colour_scale, draw_map, maps_to_draw
from gpt_cli.inspecting.room import require_room_for_dump
from gpt_cli.inspecting.stages import parse_selection
from gpt_cli.language import say
from gpt_cli.machine.devices import choose_device
from gpt_cli.sampling.decoder import Decoder
from gpt_cli.sampling.generate import continuations
from gpt_cli.sampling.next_token import SamplingParameters
from gpt_cli.sampling.prompts import encode_prompt
from gpt_cli.tables import table


def dump_and_show(wanted: DumpWanted, console: Console, read: ReadVerified) -> None:
    """Run the model on the prompt, write or draw its attention, and print what the flags ask for.

    `read` may have read the checkpoint ahead.
    """
    device = choose_device(wanted.device)
    loaded = load(wanted.run, wanted.checkpoint, console.warn, read)
    loaded.model.to(device)
    dump = _dumped(wanted, loaded, console)
    written = dump.tokens[len(dump.tokens) - len(dump.chances) :]
    generated = [
        {"text": text, "probability": chance.probability, "rank": chance.rank}
        for text, chance in zip(written, dump.chances, strict=True)
    ]
    if generated:
        rows = [(say("generated"), say("probability"), say("rank"))]
        rows += [(label_of(found["text"]), f"{found['probability']:.4f}", str(found["rank"])) for found in generated]
        console.notice(table(rows))
    if wanted.out is None:
        num_read = counted(len(dump.tokens) - len(dump.chances), "token")
        console.notice(f"{run_name(loaded.path)}, step {loaded.step:,}: {num_read} of the prompt")
    _write(wanted, dump, console)
    if wanted.json:
        console.json(
            {
                "checkpoint": str(loaded.path),
                "out": wanted.out and str(wanted.out),
                "layers": dump.layers,
                "heads": dump.heads,
                "tokens": dump.tokens,
                "stages": wanted.stages,
                **({"generated": generated} if wanted.num_generated else {}),
            }
        )


def _dumped(wanted: DumpWanted, loaded: Loaded, console: Console) -> AttentionDump:
    """The attention of a model to the prompt and to what it writes after it."""
    sizes, model = loaded.config.model, loaded.model
    layers = parse_selection(wanted.layers, sizes.num_blocks, "--layers")
    heads = parse_selection(wanted.heads, sizes.num_heads, "--heads")
    ids = encode_prompt(
        loaded.tokenizer,
        wanted.prompt,
        sizes.context_length,
        wanted.num_generated,
        source=wanted.prompt_source,
        truncate=wanted.truncate,
    )
    require_room_for_dump(
        "attn-dump",
        model,
        len(ids) + wanted.num_generated,
        layers=layers,
        heads=heads,
        stages=wanted.stages,
        ending=wanted.ending,
        out=None if wanted.out == STDOUT else wanted.out,
        shorter="use a shorter prompt or a smaller --generate" if wanted.num_generated else "use a shorter prompt",
    )
    with console.working("generating"):
        added = _continuation(loaded, ids, wanted) if wanted.num_generated else []
    with console.working("computing attention"):
        dump = dump_attention(
            model,
            loaded.tokenizer,
            ids + added,
            layers=layers,
            heads=heads,
            stages=wanted.stages,
            file_dtype=wanted.file_dtype,
            num_generated=len(added),
            origin=Origin(str(loaded.path), loaded.step, wanted.prompt),
        )
        if wanted.ending == ".html":
            dump = with_heads(dump, model, loaded.tokenizer, console.notice)
    return dump


def _continuation(loaded: Loaded, ids: list[int], wanted: DumpWanted) -> list[int]:
    """What the model writes after ids, until it ends the text."""
    (tokens,) = continuations(
        Decoder(loaded.model),
        [ids],
        SamplingParameters(temperature=wanted.temperature),
        max_new_tokens=wanted.num_generated,
        seed=wanted.seed,
        end_of_text=loaded.tokenizer.end_of_text,
        where=shown(loaded.path),
    )
    return tokens


def _write(wanted: DumpWanted, dump: AttentionDump, console: Console) -> None:
    """A file, or stdout, or a drawing on stdout."""
    if wanted.out is None or wanted.ending is None:
        _draw(console, dump)
        return
    if wanted.out == STDOUT:
        console.pieces(piece.decode() for piece in pieces(dump, wanted.ending))
        return
    counting = console.counting(f"writing {visible(wanted.out)}", num_rows(dump, wanted.ending), "rows")
    with removing_unfinished(), counting as count:
        count(0)
        write_dump(wanted.out, dump, console.notice, count)
    numbers = (("layer", dump.layers), ("head", dump.heads), ("token", dump.tokens))
    console.notice(f"wrote {visible(wanted.out)}: {', '.join(counted(len(found), noun) for noun, found in numbers)}")


def _draw(console: Console, dump: AttentionDump) -> None:
    """Draw on stdout: in colour on a terminal, in shades elsewhere."""
    width = shutil.get_terminal_size().columns
    terminal = RichConsole(
        file=sys.stdout, width=width, no_color=not colourful(sys.stdout), highlight=False, soft_wrap=True
    )
    # with sixteen colours, the shades of one scale cannot be told apart
    colour = colourful(sys.stdout) and terminal.color_system in ("256", "truecolor")
    for title, weights in maps_to_draw(dump).items():
        drawing, num_shown = draw_map(dump.tokens, weights, width, colour=colour)
        if num_shown < len(dump.tokens):
            console.notice(f"the last {num_shown} of {len(dump.tokens)} tokens fit here; --out FILE.png shows all")
        _print(console, terminal, title, drawing)
    if colour:
        _print(console, terminal, colour_scale(say("yellow: looks much, violet: little")))


def _print(console: Console, terminal: RichConsole, *texts: str | Text) -> None:
    """Print with colours; captured first, since rich would end the process when the reader of stdout goes away."""
    with terminal.capture() as capture:
        for text in texts:
            terminal.print(text)
    console.result(capture.get().rstrip("\n"))
