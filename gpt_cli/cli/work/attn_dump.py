"""What `gpt attn-dump` does before it loads torch: it refuses what the flags and the checkpoint's header rule out."""

from __future__ import annotations

import sys
from pathlib import Path

from gpt_cli.checkpoints.find import find_header
from gpt_cli.checkpoints.lock import require_foreign
from gpt_cli.checkpoints.verified import ReadingAhead
from gpt_cli.cli.importing import importing_torch
from gpt_cli.cli.terminal import Console
from gpt_cli.cli.work.film import film
from gpt_cli.cli.work.wanted import STDOUT, DumpWanted
from gpt_cli.errors import UsageError
from gpt_cli.inspecting.formats import check_format, format_of
from gpt_cli.inspecting.stages import STAGES, parse_selection
from gpt_cli.machine.sharing import sharing
from gpt_cli.sampling.prompts import prompt_source, read_prompt


def attn_dump(
    *,
    prompt: str | None,
    prompt_file: Path | None,
    out: Path | None,
    form: str | None,
    run: Path | None,
    checkpoint: str | None,
    layers: str | None,
    heads: str | None,
    generate: int | None,
    temperature: float | None,
    seed: int | None,
    stage: list[str] | None,
    file_dtype: str,
    truncate: bool,
    over_training: bool,
    device: str | None,
    json: bool,
    quiet: bool,
) -> None:
    """Show or save where each head looks on a prompt."""
    if over_training:
        others = {
            "--prompt": prompt,
            "--prompt-file": prompt_file,
            "--format": form,
            "--checkpoint": checkpoint,
            "--generate": generate,
            "--temperature": temperature,
            "--seed": seed,
            "--stage": stage,
            "--file-dtype": None if file_dtype == "float32" else file_dtype,
            "--truncate": truncate or None,
            "--device": device,
        }
        film(run, out, layers, heads, others=others, json=json, console=Console(quiet))
        return
    stages = ("weights", *(name for name in STAGES[1:] if name in (stage or [])))
    if out is None:
        if stage or file_dtype != "float32":
            flag = "--stage" if stage else "--file-dtype"
            raise UsageError(flag, "the drawing in the terminal shows weights only", hint="--out FILE.npz")
        ending = None
    else:
        ending = f".{form or 'json'}" if out == STDOUT else format_of(out)
        check_format(ending, stages, file_dtype)
    if form and out != STDOUT:
        raise UsageError("--format", "only --out - needs it; a file's ending names its format", hint="--out -")
    if json and out == STDOUT:
        raise UsageError("--json", "--json and --out - cannot be combined; leave one of them out")
    if generate is None and (temperature is not None or seed is not None):
        flag = "--seed" if temperature is None else "--temperature"
        raise UsageError(flag, "it changes what --generate adds, so it needs --generate", hint="--generate 20")
    if out is not None and out != STDOUT:
        require_foreign(out)
    header = find_header(run, checkpoint)
    sizes = header.config.model
    parse_selection(layers, sizes.num_blocks, "--layers")
    parse_selection(heads, sizes.num_heads, "--heads")
    wanted = DumpWanted(
        prompt=read_prompt(prompt, prompt_file, header, sys.stdin),
        prompt_source=prompt_source(prompt, prompt_file),
        out=out,
        ending=ending,
        run=run,
        checkpoint=checkpoint,
        layers=layers,
        heads=heads,
        num_generated=generate or 0,
        temperature=0.8 if temperature is None else temperature,
        seed=seed or 0,
        stages=stages,
        file_dtype=file_dtype,
        truncate=truncate,
        device=device or "auto",
        json=json,
    )
    console, ahead = Console(quiet), ReadingAhead(header.path)
    with sharing():
        with importing_torch():
            from gpt_cli.cli.work.attention import dump_and_show  # only now torch
        dump_and_show(wanted, console, ahead.read)
