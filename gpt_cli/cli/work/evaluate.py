"""What `gpt eval` does before it loads torch: it refuses a run or checkpoint that does not exist."""

from __future__ import annotations

from pathlib import Path

from gpt_cli.checkpoints.ahead import ReadingAhead
from gpt_cli.checkpoints.finding import find_header
from gpt_cli.cli.importing import importing_torch
from gpt_cli.cli.terminal import Console
from gpt_cli.machine.sharing import sharing


def evaluate(
    *,
    data: list[str] | None,
    run: list[Path] | None,
    checkpoint: str | None,
    stride: int | None,
    per_token: bool,
    memorised: bool,
    num_samples: int,
    max_new_tokens: int,
    seed: int,
    device: str | None,
    dtype: str | None,
    quantize: str | None,
    threads: int | None,
    json: bool,
    quiet: bool,
) -> None:
    """Measure runs on a text, or each on its own, and print a table of their losses."""
    given = locals()
    first, *_ = [find_header(path, checkpoint).path for path in run or [None]]
    ahead = ReadingAhead(first)
    with sharing(Console(quiet).notice):
        with importing_torch():
            from gpt_cli.cli.work.evaluating import evaluate_and_show  # only now torch
        evaluate_and_show(**given, read=ahead.read)
