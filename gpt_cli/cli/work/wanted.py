"""What the flags of a command ask for once they are checked; needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gpt_cli.cli.interactive import SamplingChoices


@dataclass(frozen=True)
class SamplesWanted:
    """Continuations of prompts; without prompts, of the lines that the user types."""

    prompts: list[str]
    prompt_source: str
    run: Path | None
    choices: SamplingChoices
    seed_is_ours: bool  # the user named none, so the command shows the one it chose
    num_samples: int
    stream: bool
    device: str
    dtype: str
    quantize: str | None
    threads: int | None
    json: bool
