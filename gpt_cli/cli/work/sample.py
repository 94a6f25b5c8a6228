"""What `gpt sample` does before it loads torch: it refuses a run or checkpoint that does not exist."""

from __future__ import annotations

from pathlib import Path

from gpt_cli.checkpoints.ahead import ReadingAhead
from gpt_cli.checkpoints.finding import find_header
from gpt_cli.cli.importing import importing_torch
from gpt_cli.cli.terminal import Console
from gpt_cli.machine.sharing import sharing


def sample(
    *,
    prompt: str | None,
    prompt_file: Path | None,
    run: Path | None,
    checkpoint: str | None,
    max_new_tokens: int,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    min_p: float | None,
    repetition_penalty: float,
    stop: list[str] | None,
    num_samples: int,
    seed: int | None,
    greedy: bool,
    stream: bool,
    device: str | None,
    dtype: str | None,
    quantize: str | None,
    threads: int | None,
    json: bool,
    quiet: bool,
) -> None:
    """Continue prompts and print the continuations."""
    given = locals()
    ahead = ReadingAhead(find_header(run, checkpoint).path)
    with sharing() as shared:
        with importing_torch():
            from gpt_cli.cli.work.sampling import sample_and_show  # only now torch
        shared.remark(Console(quiet).notice)
        sample_and_show(**given, read=ahead.read)
