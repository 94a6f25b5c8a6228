"""What `gpt export` does once its flags are checked."""

from __future__ import annotations

from pathlib import Path

from gpt_cli.amounts import size
from gpt_cli.checkpoints.checkpoint import Checkpoint, parse_checkpoint
from gpt_cli.checkpoints.discovery import Loaded
from gpt_cli.checkpoints.finding import first_usable
from gpt_cli.checkpoints.verified import ReadVerified
from gpt_cli.cli.terminal import Console
from gpt_cli.cli.work.attention import dumped
from gpt_cli.cli.work.film import tell_omissions
from gpt_cli.cli.work.wanted import DumpWanted, ExportWanted
from gpt_cli.errors import visible
from gpt_cli.exchange.handout import write_handout
from gpt_cli.exchange.model_page import ModelPage, model_page, write_model_page
from gpt_cli.exchange.writing import write_file, write_for_transformers
from gpt_cli.inspecting.film import make_film

_KINDS = {
    "html": "a page in which the model runs",
    "handout": "pages for a class, of which index.html is the first",
    "safetensors": "a checkpoint of gpt",
}


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
            page = _page(stored, wanted)
            write_model_page(out, page)
        class_name, num_parameters, num_bytes = None, page.num_parameters, out.stat().st_size
    elif wanted.form == "handout":
        class_name, num_parameters = None, _write_handout(stored, wanted, console)
        num_bytes = sum(path.stat().st_size for path in out.iterdir())
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


def _page(stored: Checkpoint, wanted: ExportWanted) -> ModelPage:
    return model_page(stored, wanted.quantize, wanted.name, title=wanted.title, prompt=wanted.prompt)


def _write_handout(stored: Checkpoint, wanted: ExportWanted, console: Console) -> int:
    """Write the pages of a model, of its attention to the prompt, and of its training; returns its parameters."""
    with console.working(f"writing {visible(wanted.out)}"):
        page = _page(stored, wanted)
    # by its name alone: the pages tell nobody where a run lies
    loaded = Loaded(stored.build_model(), stored.tokenizer, stored.config, stored.progress.step, Path(wanted.name), "")
    attention = DumpWanted(
        prompt=page.content["prompt"],
        prompt_source="--prompt",
        out=wanted.out,
        ending=".html",
        run=None,
        checkpoint=None,
        layers=None,
        heads=None,
        num_generated=0,
        temperature=0.0,
        seed=0,
        stages=("weights",),
        file_dtype="float32",
        truncate=True,
        device="cpu",
        json=False,
    )
    dump = dumped(attention, loaded, console, "export")
    film = wanted.film and make_film(wanted.film, name=wanted.name, title=wanted.title)
    if film:
        tell_omissions(film, console)
    with console.working(f"writing {visible(wanted.out)}"):
        write_handout(wanted.out, page, dump, film)
    return page.num_parameters
