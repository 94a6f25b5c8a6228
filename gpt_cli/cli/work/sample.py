"""What `gpt sample` does before it loads torch: it refuses what the flags and the checkpoint's header rule out."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path

from gpt_cli.checkpoints.find import find_header
from gpt_cli.checkpoints.verified import ReadingAhead
from gpt_cli.cli.importing import importing_torch
from gpt_cli.cli.interactive import EMPTY_STOP, SamplingChoices
from gpt_cli.cli.terminal import Console
from gpt_cli.cli.work.wanted import SamplesWanted
from gpt_cli.errors import UsageError
from gpt_cli.machine.sharing import sharing
from gpt_cli.sampling.prompts import prompt_source, read_prompts
from gpt_cli.sampling.removing import parse_heads


def sample(
    *,
    prompt: str | None,
    prompt_file: Path | None,
    run: Path | None,
    checkpoint: str | None,
    max_new_tokens: int,
    temperature: float | None,
    top_k: int | None,
    top_p: float | None,
    min_p: float | None,
    repetition_penalty: float,
    stop: list[str] | None,
    num_samples: int,
    seed: int | None,
    greedy: bool,
    stream: bool,
    without: list[str] | None,
    device: str | None,
    dtype: str | None,
    quantize: str | None,
    threads: int | None,
    json: bool,
    quiet: bool,
) -> None:
    """Continue prompts and print the continuations."""
    if not all(stop or []):
        raise UsageError("--stop", EMPTY_STOP)
    if greedy and temperature:
        raise UsageError("--temperature", "--temperature and --greedy cannot be combined; leave one of them out")
    header = find_header(run, checkpoint)
    off = ",".join(without) if without else None
    if off is not None:
        parse_heads(off, header.config.model)
    unasked = prompt is None and prompt_file is None and not json
    interactive = unasked and sys.stdin.isatty() and sys.stdout.isatty()
    prompts = [] if interactive else read_prompts(prompt, prompt_file, header, sys.stdin)
    seed_is_ours = seed is None and not greedy and not interactive
    choices = {
        "seed": secrets.randbelow(2**31) if seed_is_ours else seed,
        "temperature": 0.0 if greedy else 0.8 if temperature is None else temperature,
        "top-k": top_k,
        "top-p": top_p,
        "min-p": min_p,
        "repetition-penalty": repetition_penalty,
        "max-new-tokens": max_new_tokens,
        "stop": tuple(stop or ()),
        "without": off,
        "checkpoint": checkpoint,
    }
    wanted = SamplesWanted(
        prompts=prompts,
        prompt_source="prompt" if interactive else prompt_source(prompt, prompt_file),
        run=run,
        choices=SamplingChoices(choices),
        seed_is_ours=seed_is_ours,
        num_samples=num_samples,
        stream=stream,
        device=device or "auto",
        dtype=dtype or "float32",
        quantize=quantize,
        threads=threads,
        json=json,
    )
    console, ahead = Console(quiet), ReadingAhead(header.path)
    with sharing():
        with importing_torch():
            from gpt_cli.cli.work.sampling import sample_and_show  # only now torch
        sample_and_show(wanted, console, ahead.read)
