"""What the flags of a command ask for once they are checked; needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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
class HeadWanted:
    """One head of a model on a prompt; `query` is a position, `all`, or None for the last."""

    prompt: str
    prompt_source: str
    run: Path | None
    checkpoint: str | None
    layer: int
    head: int
    query: str | None
    truncate: bool


@dataclass(frozen=True)
class StudyWanted:
    """A study; `run` and `checkpoint` are for the one that looks into a model too."""

    name: str
    run: Path | None
    checkpoint: str | None
