"""What `gpt export` does before it loads torch: it refuses places that are taken and models that no class fits."""

from __future__ import annotations

from pathlib import Path

from gpt_cli.checkpoints.ahead import ReadingAhead
from gpt_cli.checkpoints.finding import find_header
from gpt_cli.cli.importing import importing_torch
from gpt_cli.cli.terminal import Console
from gpt_cli.cli.work.wanted import ExportWanted
from gpt_cli.exchange.destination import require_directory, require_file
from gpt_cli.exchange.hugging_face import fit


def export(*, out: Path, form: str, run: Path | None, checkpoint: str | None, json: bool, quiet: bool) -> None:
    """Write a model for others, and say what it is there."""
    if form == "hf":
        require_directory(out)
    else:
        require_file(out)
    header = find_header(run, checkpoint)
    if form == "hf":
        vocab_size, *_ = header.shapes.get("token_embedding.weight", (1,))
        fit(header.config.model, vocab_size)  # refuses
    wanted = ExportWanted(out=out, form=form, run=run, checkpoint=checkpoint, json=json)
    console, ahead = Console(quiet), ReadingAhead(header.path)
    with importing_torch():
        from gpt_cli.cli.work.exporting import export_and_show  # only now torch
    export_and_show(wanted, console, ahead.read)
