"""Writes a trained model for others, in the form that they need."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpt_cli.amounts import size
from gpt_cli.callbacks import Host
from gpt_cli.checkpoints.checkpoint import Checkpoint, parse_checkpoint
from gpt_cli.checkpoints.finding import first_usable
from gpt_cli.checkpoints.run_files import RunFiles
from gpt_cli.checkpoints.verified import ReadVerified
from gpt_cli.errors import visible
from gpt_cli.exchange.handout import write_handout
from gpt_cli.exchange.model_page import model_page, write_model_page
from gpt_cli.exchange.request import ExportRequest
from gpt_cli.exchange.writing import write_file, write_for_transformers
from gpt_cli.inspecting.attention import with_heads
from gpt_cli.inspecting.dump import AttentionDump, Origin, dump_attention
from gpt_cli.inspecting.film import make_film, tell_omissions
from gpt_cli.inspecting.room import require_room_for_dump
from gpt_cli.results import WIDTH, Result
from gpt_cli.sampling.prompts import encode_prompt

_KINDS = {
    "html": "a page in which the model runs",
    "handout": "pages for a class, of which index.html is the first",
    "safetensors": "a checkpoint of gpt",
}


@dataclass(frozen=True)
class Exported(Result):
    """What was written, and where; `class_name` is the class of transformers that loads it, for the format hf."""

    out: str
    format: str
    class_name: str | None
    parameters: int
    num_bytes: int

    def as_dict(self) -> dict[str, Any]:
        """What `gpt export --json` prints."""
        what = {"out": self.out, "format": self.format, "class": self.class_name}
        return {**what, "parameters": self.parameters, "bytes": self.num_bytes}

    def as_text(self, width: int = WIDTH) -> str:
        """One line."""
        kind = f"{self.class_name} of transformers" if self.class_name else _KINDS[self.format]
        return f"{visible(self.out)}: {kind}, {self.parameters:,} parameters, {size(self.num_bytes)}"


def export(request: ExportRequest, found: tuple[Path, str | None, ReadVerified], host: Host) -> Exported:
    """Write the export.

    Raises CheckpointError for a checkpoint that is damaged or does not fit the form, EnvironmentFailure where memory
    is short or the system refuses.
    """
    out, title, class_name = request.out, request.title or "", None
    chosen, prompt, read = found
    run = RunFiles(chosen.resolve().parent.parent)
    name = run.path.name if run.exists() else chosen.stem
    stored = first_usable(request.run, request.checkpoint, lambda path: parse_checkpoint(read(path)), host.warn)
    writing = f"writing {visible(out)}"
    if request.format == "hf":
        with host.working(writing):
            fitted = write_for_transformers(out, stored)
        class_name, num_parameters = fitted.class_name, fitted.num_parameters
        for note in fitted.notes:
            host.notice(note)
    elif request.format == "safetensors":
        num_parameters = sum(parameter.numel() for parameter in stored.build_model().parameters())
        with host.working(writing):
            write_file(out, stored)
    else:
        with host.working(writing):
            page = model_page(stored, request.quantize, name, title=title, prompt=prompt)
            if request.format == "html":
                write_model_page(out, page)
        if request.format == "handout":
            dump, film = _attention(stored, page.content["prompt"], out, name, host), None
            if run.exists() and run.snapshots():
                film = make_film(run, name=name, title=title)
                tell_omissions(film, host.notice)
            with host.working(writing):
                write_handout(out, page, dump, film)
        num_parameters = page.num_parameters
    num_bytes = sum(path.stat().st_size for path in ([out] if out.is_file() else out.iterdir()))
    return Exported(str(out), request.format, class_name, num_parameters, num_bytes)


def _attention(stored: Checkpoint, prompt: str, out: Path, name: str, host: Host) -> AttentionDump:
    """The attention of all heads to the last tokens of a prompt; by its name alone, no page tells where a run lies."""
    model, tokenizer, sizes = stored.build_model(), stored.tokenizer, stored.config.model
    ids = encode_prompt(tokenizer, prompt, sizes.context_length, source="--prompt", truncate=True)
    layers, heads = range(sizes.num_blocks), range(sizes.num_heads)
    require_room_for_dump("export", model, len(ids), layers=layers, heads=heads, ending=".html", out=out)
    origin = Origin(name, stored.progress.step, prompt)
    with host.working("computing attention"):
        dump = dump_attention(model, tokenizer, ids, layers=layers, heads=heads, origin=origin)
        return with_heads(dump, model, tokenizer, host.notice)
