"""What `gpt heads` does before it loads torch: it refuses what the flags and the checkpoint's header rule out."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from gpt_cli.checkpoints.find import find_header
from gpt_cli.checkpoints.lock import require_foreign
from gpt_cli.checkpoints.own_text import own_config, readable_prompt, trusted_config
from gpt_cli.checkpoints.verified import ReadingAhead
from gpt_cli.cli.importing import importing_torch
from gpt_cli.cli.terminal import Console
from gpt_cli.cli.work.flags import refuse, refuse_beside
from gpt_cli.cli.work.wanted import STDOUT, HeadsWanted
from gpt_cli.errors import UsageError, shown
from gpt_cli.inspecting.heads.report import FORMATS, LOSS_CHANGE
from gpt_cli.inspecting.stages import parse_selection
from gpt_cli.limits import HEADS_TOKENS
from gpt_cli.machine.sharing import sharing
from gpt_cli.sampling.prompts import prompt_source, read_prompt


def report_heads(
    *,
    prompt: str | None,
    prompt_file: Path | None,
    data: list[str] | None,
    max_tokens: int | None,
    run: Path | None,
    checkpoint: str | None,
    layers: str | None,
    heads: str | None,
    ablate: str | None,
    query: int | None,
    over_training: bool,
    sort: str | None,
    out: Path | None,
    truncate: bool,
    device: str | None,
    dtype: str | None,
    threads: int | None,
    json: bool,
    quiet: bool,
) -> None:
    """Report what each head does on a prompt or a text, and what it is worth; or its scores over a training."""
    of_prompt = {"--query": query, "--truncate": truncate or None}
    of_text = {"--max-tokens": max_tokens}
    if over_training:
        others = {"--prompt": prompt, "--prompt-file": prompt_file, "--data": data, "--checkpoint": checkpoint}
        others |= {"--ablate": ablate, **of_prompt, **of_text, "--device": device, "--dtype": dtype}
        refuse_beside("--over-training", others | {"--threads": threads})
    if prompt is None and prompt_file is None:
        for flag, value in of_prompt.items():
            if value is not None:
                hint = f"--prompt {shlex.quote(readable_prompt(find_header(run, checkpoint)))}"
                raise UsageError(flag, f"{flag} needs --prompt or --prompt-file", hint=hint)
    else:
        refuse_beside("--prompt" if prompt_file is None else "--prompt-file", {"--data": data, **of_text})
    if ablate is None:
        refuse({"--dtype": dtype}, "it is for --ablate; scores are always in float32", hint="--ablate zero")
    if sort == LOSS_CHANGE and ablate in (None, "layer"):
        wrong = "only --ablate zero and --ablate mean tell the loss change of a head"
        raise UsageError("--sort", wrong, hint=None if over_training else "--ablate zero")
    if out is not None:
        _check_file(out, over_training=over_training, query=query)
    header = find_header(run, checkpoint)
    parse_selection(layers, header.config.model.num_blocks, "--layers")
    parse_selection(heads, header.config.model.num_heads, "--heads")
    console = Console(quiet)
    if over_training:
        from gpt_cli.cli.work.head_history import HistoryWanted, show_history

        show_history(HistoryWanted(run=run, layers=layers, heads=heads, sort=sort, out=out, json=json), console)
        return
    has_prompt = prompt is not None or prompt_file is not None
    wanted = HeadsWanted(
        prompt=read_prompt(prompt, prompt_file, header, sys.stdin) if has_prompt else None,
        prompt_source=prompt_source(prompt, prompt_file),
        data=data,
        text=(trusted_config(header) if has_prompt or data else own_config(header)).data,
        max_tokens=max_tokens or HEADS_TOKENS,
        run=run,
        checkpoint=checkpoint,
        layers=layers,
        heads=heads,
        ablate=ablate,
        query=query,
        sort=sort,
        out=out,
        truncate=truncate,
        device=device or "auto",
        dtype=dtype or "auto",
        threads=threads,
        json=json,
    )
    ahead = ReadingAhead(header.path)
    with sharing():
        with importing_torch():
            from gpt_cli.cli.work.head_report import report_and_show  # only now torch
        report_and_show(wanted, console, ahead.read)


def _check_file(out: Path, *, over_training: bool, query: int | None) -> None:
    ending = out.suffix.lower()
    if ending not in FORMATS:
        page = "gpt attn-dump --out attention.html"
        if over_training:
            page = "gpt attn-dump --over-training --out film.html"
        hint = {".html": page, "": "--json prints JSON to stdout" if out == STDOUT else None}.get(ending)
        raise UsageError("--out", f"{shown(out.name)} ends in none of {', '.join(FORMATS)}", hint=hint)
    if ending == ".png" and query is not None:
        raise UsageError("--query", "a .png file shows no tokens; use .json or .csv", hint="--out heads.csv")
    require_foreign(out)
