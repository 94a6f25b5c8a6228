"""What the flags of a command ask for once they are checked; needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gpt_cli.config import DataConfig

STDOUT = Path("-")


@dataclass(frozen=True)
class DumpWanted:
    """Attention to show or save, checked against the flags and the header alone."""

    prompt: str
    prompt_source: str
    out: Path | None  # None draws in the terminal
    ending: str | None  # the format of `out`
    run: Path | None
    checkpoint: str | None
    layers: str | None
    heads: str | None
    num_generated: int
    temperature: float
    seed: int
    stages: tuple[str, ...]
    file_dtype: str
    truncate: bool
    device: str
    json: bool


@dataclass(frozen=True)
class HeadsWanted:
    """A report on the heads of a model, checked against the flags and the header alone."""

    prompt: str | None  # None: `data`, and without it the validation part of `text`
    prompt_source: str
    data: list[str] | None
    text: DataConfig  # how the run reads text, and what it was trained on where that is to be read
    max_tokens: int  # of a text
    run: Path | None
    checkpoint: str | None
    layers: str | None
    heads: str | None
    ablate: str | None  # one of zero, mean, layer
    query: int | None  # a position of the prompt
    sort: str | None
    out: Path | None  # None: a table in the terminal
    truncate: bool
    device: str
    dtype: str
    threads: int | None
    json: bool
