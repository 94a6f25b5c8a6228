"""What `gpt export` does before it loads torch: it refuses places that are taken and models that no class fits."""

from __future__ import annotations

import sys
from pathlib import Path

from gpt_cli.amounts import size
from gpt_cli.checkpoints.ahead import ReadingAhead
from gpt_cli.checkpoints.finding import find_header
from gpt_cli.checkpoints.header import Header
from gpt_cli.checkpoints.run_files import RunFiles
from gpt_cli.checkpoints.strict_json import strict_json
from gpt_cli.cli.importing import importing_torch
from gpt_cli.cli.terminal import Console
from gpt_cli.cli.work.wanted import ExportWanted
from gpt_cli.errors import CheckpointError, UsageError
from gpt_cli.exchange.destination import require_directory, require_file
from gpt_cli.exchange.hugging_face import fit
from gpt_cli.exchange.page_size import Kind, chosen_layout
from gpt_cli.exchange.tokenizer_page import tokenizer_content
from gpt_cli.files import require_directory_place
from gpt_cli.sampling.prompts import encode_text, read_prompt
from gpt_cli.text.tokenizer import Tokenizer, tokenizer_from_dict


def export(
    *,
    out: Path,
    form: str,
    quantize: Kind | None,
    title: str | None,
    prompt: str | None,
    run: Path | None,
    checkpoint: str | None,
    json: bool,
    quiet: bool,
) -> None:
    """Write a model for others, and say what it is there."""
    pages = form in ("html", "handout")
    if quantize is not None and not pages:
        raise UsageError("--quantize", f"--format {form} writes weights as they are; only html and handout have others")
    for flag, given in (("--title", title), ("--prompt", prompt)):
        if given is not None and not pages:
            raise UsageError(flag, f"--format {form} writes no page; only html and handout do", hint="--format html")
    if form in ("hf", "handout"):
        require_directory(out, form)
        require_directory_place(out)
    else:
        require_file(out, form)
    console = Console(quiet)
    header = find_header(run, checkpoint)
    if form == "hf":
        vocab_size, *_ = header.shapes.get("token_embedding.weight", (1,))
        fit(header.config.model, vocab_size)  # refuses
    elif pages:
        tokenizer = _tokenizer_of(header)
        if prompt is not None:
            prompt = read_prompt(prompt, None, header, sys.stdin)
            encode_text(tokenizer, prompt, "--prompt")  # refuses
        found, num_bytes = chosen_layout(header.shapes, tokenizer_content(tokenizer), quantize)
        console.notice(f"the page will have about {size(num_bytes)}, with weights in {found.kind}")
    trained = _run_of(header.path)
    wanted = ExportWanted(
        out=out,
        form=form,
        quantize=quantize,
        name=trained.path.name if trained else header.path.stem,
        title=title or "",
        prompt=prompt,
        film=trained if form == "handout" and trained and trained.snapshots() else None,
        run=run,
        checkpoint=checkpoint,
        json=json,
    )
    ahead = ReadingAhead(header.path)
    with importing_torch():
        from gpt_cli.cli.work.exporting import export_and_show  # only now torch
    export_and_show(wanted, console, ahead.read)


def _tokenizer_of(header: Header) -> Tokenizer:
    try:
        return tokenizer_from_dict(strict_json(header.metadata["tokenizer"]))
    except (ValueError, RecursionError):
        raise CheckpointError(header.where, "its tokenizer is not valid") from None


def _run_of(checkpoint: Path) -> RunFiles | None:
    """The run of a checkpoint; None for a file that belongs to none."""
    found = RunFiles(checkpoint.resolve().parent.parent)
    return found if found.exists() else None
