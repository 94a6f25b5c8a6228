"""Trainings of a small model, and what two of them are compared by."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from gpt_cli.training.session import Session, begin
from torch import Tensor

from gpt_cli.checkpoints.checkpoint import Checkpoint
from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.config import Config
from gpt_cli.text.corpus import Corpus
from support.helpers import CORPUS_TEXT

CORPUS = Corpus((CORPUS_TEXT,))


def start(folder: Path, config: Config, continued: Checkpoint | None = None) -> Session:
    directory = RunDirectory(folder)
    directory.begin(config, continued.progress.observed_step if continued else None)
    return begin(config, CORPUS, directory, continued)


def state(session: Session) -> dict[str, Tensor]:
    stored = session.checkpoint(with_moments=True)
    return {**stored.weights, **{f"optimizer.{name}": tensor for name, tensor in stored.moments.items()}}


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


def metrics(session: Session) -> list[dict[str, float]]:
    """The lines of metrics.jsonl without what the clock decides."""
    lines = [json.loads(line) for line in session.directory.metrics.read_text().splitlines()]
    return [
        {key: value for key, value in line.items() if key not in ("seconds", "tokens_per_second")} for line in lines
    ]
