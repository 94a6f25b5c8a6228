"""What `gpt explain` does before it loads torch: it refuses what the flags and the checkpoint's header rule out."""

from __future__ import annotations

import sys
from pathlib import Path

from gpt_cli.checkpoints.ahead import ReadingAhead
from gpt_cli.checkpoints.finding import find_header
from gpt_cli.checkpoints.protection import require_foreign
from gpt_cli.checkpoints.verified import ReadVerified, read_verified
from gpt_cli.cli.importing import importing_torch
from gpt_cli.cli.terminal import Console
from gpt_cli.cli.work.flags import refuse_beside
from gpt_cli.cli.work.wanted import HeadWanted, StudyWanted
from gpt_cli.errors import UsageError, shown
from gpt_cli.inspecting.formats import PICTURES
from gpt_cli.inspecting.stages import out_of_range
from gpt_cli.language import language as of_user
from gpt_cli.sampling.prompts import prompt_source, read_prompt


def explain(
    *,
    prompt: str | None,
    prompt_file: Path | None,
    run: Path | None,
    checkpoint: str | None,
    layer: int | None,
    head: int | None,
    query: str | None,
    example: str | None,
    study: str | None,
    out: Path | None,
    truncate: bool,
    form: str | None,
    language: str | None,
    json: bool,
    quiet: bool,
) -> None:
    """Explain one head of a model, or a published example, or work through a study."""
    of_head = {
        "--prompt": prompt,
        "--prompt-file": prompt_file,
        "--layer": layer,
        "--head": head,
        "--query": query,
        "--truncate": truncate or None,
    }
    of_model = {"--run": run, "--checkpoint": checkpoint}
    if example:
        refuse_beside("--example", {"--study": study, **of_head, **of_model})
    elif study:
        refuse_beside(f"--study {study}", of_head | ({} if study == "scaling" else of_model))
    if json:
        refuse_beside("--json", {"--format": form})
    if out is not None:
        _check_picture(out, study)
    wanted: HeadWanted | StudyWanted | None = None  # None: the example
    read: ReadVerified = read_verified
    if study:
        wanted = StudyWanted(study, run, checkpoint)
    elif not example:
        wanted, path = _head(prompt, prompt_file, run, checkpoint, layer or 0, head or 0, query, truncate=truncate)
        read = ReadingAhead(path).read
    with importing_torch():
        from gpt_cli.cli.work.explanations import explain_and_show  # only now torch
    form = None if json else form or "terminal"
    explain_and_show(wanted, Console(quiet), out=out, form=form, language=language or of_user(), read=read)


def _check_picture(out: Path, study: str | None) -> None:
    if study is None:
        wrong = "only a study has a picture; redirect an explanation with --format html > FILE"
        raise UsageError("--out", wrong, hint="--study mask")
    if out.suffix.lower() not in PICTURES:
        raise UsageError("--out", f"{shown(out.name)} ends in neither {' nor '.join(PICTURES)}")
    require_foreign(out)


def _head(
    prompt: str | None,
    prompt_file: Path | None,
    run: Path | None,
    checkpoint: str | None,
    layer: int,
    head: int,
    query: str | None,
    *,
    truncate: bool,
) -> tuple[HeadWanted, Path]:
    """The head that is wanted, and the file of its model.

    Raises UsageError for what the model of this header does not have.
    """
    if query is not None and query != "all" and not (query.isdecimal() and len(query) <= 9):
        raise UsageError("--query", f"use the position of a token, from 0, or all instead of {shown(query)}")
    header = find_header(run, checkpoint)
    sizes = header.config.model
    for flag, value, count in (("--layer", layer, sizes.num_blocks), ("--head", head, sizes.num_heads)):
        if value >= count:
            raise UsageError(flag, out_of_range(flag, value, count))
    text, source = read_prompt(prompt, prompt_file, header, stdin=sys.stdin), prompt_source(prompt, prompt_file)
    return HeadWanted(text, source, run, checkpoint, layer, head, query, truncate), header.path
