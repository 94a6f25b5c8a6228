"""Export a trained model: for transformers, llama.cpp or gpt itself, or as web pages."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from gpt_cli.attention_maps.patterns import AttentionDump, Origin, dump_attention, require_room_for_dump
from gpt_cli.attention_maps.snapshots import kept_steps
from gpt_cli.checkpoints.checkpoint import Checkpoint, read_checkpoint, save_checkpoint
from gpt_cli.checkpoints.header import Header
from gpt_cli.checkpoints.run_paths import RunFiles
from gpt_cli.checkpoints.select import first_usable
from gpt_cli.checkpoints.training_text import opening, readable_prompt
from gpt_cli.common.drawing.token_labels import label_of
from gpt_cli.common.files import write_durably
from gpt_cli.common.host import Host
from gpt_cli.common.machine.memory import reuse_memory
from gpt_cli.common.results import WIDTH, Result
from gpt_cli.common.units import size
from gpt_cli.errors import shown, visible
from gpt_cli.sampling.prompts import encode_prompt
from gpt_cli.tools.exchange.export_hf import shareable, write_export, write_for_transformers
from gpt_cli.tools.exchange.gguf.export_gguf import write_gguf
from gpt_cli.tools.exchange.model_page import ModelPage, first_prompt, model_page
from gpt_cli.tools.exchange.request import FILES, PAGES, ExportRequest
from gpt_cli.tools.interpret.attention import with_heads
from gpt_cli.tools.interpret.attention_files import attention_page
from gpt_cli.tools.interpret.over_training import Film, make_film
from gpt_cli.tools.pages.html_page import HANDOUT, MODEL, build_page

_KINDS = {
    "hf": "{} of transformers",
    "gguf": "{} of llama.cpp",
    "html": "a page in which the model runs",
    "handout": "pages for a class, of which index.html is the first",
    "safetensors": "a checkpoint of gpt",
}


@dataclass(frozen=True)
class Exported(Result):
    """Result of an export; `class_name` is the transformers class or llama.cpp architecture, None for other formats."""

    out: str
    format: str
    class_name: str | None
    parameters: int
    num_bytes: int

    def as_dict(self) -> dict[str, Any]:
        """Return the object that `gpt export --json` prints."""
        what = {"out": self.out, "format": self.format, "class": self.class_name}
        return {**what, "parameters": self.parameters, "bytes": self.num_bytes}

    def as_text(self, width: int = WIDTH) -> str:
        """Return a line with the export's path, format, number of parameters and file size."""
        kind = _KINDS[self.format].format(self.class_name)
        return f"{visible(self.out)}: {kind}, {self.parameters:,} parameters, {size(self.num_bytes)}"


def export(request: ExportRequest, checkpoint: tuple[Header, str | None], host: Host) -> Exported:
    """Export a checkpoint to `request.out` in the format of `request`; return the export's path, class and sizes.

    `checkpoint` is the result of `request.find`: a header, and a prompt for web pages. Raises CheckpointError if the
    checkpoint is damaged or does not fit the format, EnvironmentFailure if memory is short or a file cannot be written.
    """
    out, title, class_name = request.out, request.title or "", None
    header, prompt = checkpoint
    reuse_memory()
    run = RunFiles(header.path.resolve().parent.parent)
    name = run.path.name if run.exists() else header.path.stem
    as_stored = request.format in ("hf", "gguf", "safetensors")
    read = partial(read_checkpoint, expected=header, as_stored=as_stored)
    stored = first_usable(request.run, request.checkpoint, read, host.warn, header)
    writing, notes, page = f"writing {visible(out)}", list[str](), None
    with host.working(writing):
        if request.format == "hf":
            fitted = write_for_transformers(out, stored, readable_prompt(header))
            class_name, num_parameters, notes = fitted.class_name, fitted.num_parameters, fitted.notes
        elif request.format == "gguf":
            class_name, num_parameters, notes = write_gguf(out, stored, name, request.quantize)
        elif request.format == "safetensors":
            num_parameters = sum(parameter.numel() for parameter in stored.build_model().parameters())
            write_file(out, stored)
        else:
            opens = first_prompt(stored.config, stored.tokenizer, opening(header)) if prompt is None else prompt
            page = model_page(stored, request.quantize, name, title=title, prompt=opens)
            num_parameters = page.content["origin"]["parameters"]
            if request.format == "html":
                write_durably(out, [build_page(MODEL, *page)])
    host.notices(notes)
    if page and request.format == "handout":
        dump, film = _attention(stored, page.content["prompt"], out, name, host), None
        if run.exists() and run.snapshots():
            film = make_film(kept_steps(run), name=name, title=title, notice=host.notice)
        with host.working(writing):
            write_handout(out, page, dump, film)
    names = FILES if request.format == "hf" else PAGES
    written = [out] if out.is_file() else [path for path in out.iterdir() if path.name in names]
    num_bytes = sum(path.stat().st_size for path in written)
    return Exported(str(out), request.format, class_name, num_parameters, num_bytes)


def _attention(stored: Checkpoint, prompt: str, out: Path, name: str, host: Host) -> AttentionDump:
    """Compute the attention of all heads on `prompt`, cut to the context length; pages and errors name it `name`."""
    model, tokenizer, sizes = stored.build_model(), stored.tokenizer, stored.config.model
    model.where = shown(name)
    ids = encode_prompt(tokenizer, prompt, sizes.context_length, source="‹prompt›", truncate=True)
    layers, heads = range(sizes.num_blocks), range(sizes.num_heads)
    require_room_for_dump("export", model, len(ids), layers=layers, heads=heads, ending=".html", out=out)
    origin = Origin(name, stored.progress.step, prompt)
    with host.working("computing attention"):
        dump = dump_attention(model, tokenizer, ids, layers=layers, heads=heads, origin=origin)
        return with_heads(dump, model, tokenizer, host.notice)


def write_file(out: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint to share: no optimizer state, environment or folder names. May raise EnvironmentFailure."""
    config, progress = shareable(checkpoint.config), replace(checkpoint.progress, environment={})
    save_checkpoint(out, replace(checkpoint, config=config, progress=progress, optimizer_state={}))


def write_handout(out: Path, model: ModelPage, dump: AttentionDump, film: Film | None) -> None:
    """Write HTML pages for a school class into the directory `out`: an index, the model, and its attention `dump`.

    `film` becomes a page that shows attention during training. Raises EnvironmentFailure if a page cannot be written.
    """
    title, prompt, origin = (model.content[key] for key in ("title", "prompt", "origin"))
    pages = {"model": build_page(MODEL, *model), "attention": attention_page(dump, title)}
    if film:
        pages["film"] = film.as_page().encode()
    about = {"title": title, "prompt": label_of(prompt, limit=80), "origin": origin, "pages": list(pages)}
    first = build_page(HANDOUT, {"handout": about})
    write_export(out, {"index.html": [first], **{f"{name}.html": [page] for name, page in pages.items()}}, PAGES)
