"""What `gpt export` does once its flags are checked."""

from __future__ import annotations

from gpt_cli.amounts import size
from gpt_cli.checkpoints.checkpoint import parse_checkpoint
from gpt_cli.checkpoints.finding import first_usable
from gpt_cli.checkpoints.verified import ReadVerified
from gpt_cli.cli.terminal import Console
from gpt_cli.cli.work.wanted import ExportWanted
from gpt_cli.errors import visible
from gpt_cli.exchange.model_page import model_page, write_model_page
from gpt_cli.exchange.writing import write_file, write_for_transformers

_KINDS = {"html": "a page in which the model runs", "safetensors": "a checkpoint of gpt"}


def export_and_show(wanted: ExportWanted, console: Console, read: ReadVerified) -> None:
    """Write the export, and print its class, its parameters and its size."""
    out = wanted.out
    stored = first_usable(wanted.run, wanted.checkpoint, lambda path: parse_checkpoint(read(path)), console.warn)
    if wanted.form == "hf":
        with console.working(f"writing {visible(out)}"):
            found = write_for_transformers(out, stored)
        class_name, num_parameters = found.class_name, found.num_parameters
        for note in found.notes:
            console.notice(note)
        num_bytes = sum(path.stat().st_size for path in out.iterdir())
    elif wanted.form == "html":
        with console.working(f"writing {visible(out)}"):
            page = model_page(stored, wanted.quantize, wanted.name)
            write_model_page(out, page)
        class_name, num_parameters, num_bytes = None, page.num_parameters, out.stat().st_size
    else:
        num_parameters = sum(parameter.numel() for parameter in stored.build_model().parameters())
        with console.working(f"writing {visible(out)}"):
            write_file(out, stored)
        class_name, num_bytes = None, out.stat().st_size
    if wanted.json:
        facts = {"out": str(out), "format": wanted.form, "class": class_name}
        console.json({**facts, "parameters": num_parameters, "bytes": num_bytes})
        return
    kind = f"{class_name} of transformers" if class_name else _KINDS[wanted.form]
    console.result(f"{visible(out)}: {kind}, {num_parameters:,} parameters, {size(num_bytes)}")
