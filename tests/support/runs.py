"""Runs of a small model, and how tests compare two of them."""

import json
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from gpt_cli.checkpoints.checkpoint import Checkpoint
from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.common.host import NOBODY, Host
from gpt_cli.config import Config
from gpt_cli.text.corpus import SurveyedCorpus
from gpt_cli.text.encode import encode_parts
from gpt_cli.training.events import Finished
from gpt_cli.training.loop import train
from gpt_cli.training.run import Run
from gpt_cli.training.state import TrainingState
from support.corpora import Texts
from support.helpers import CORPUS_TEXT

CORPUS = Texts((CORPUS_TEXT,))


def start(folder: Path, config: Config, continued: Checkpoint | None = None, corpus: SurveyedCorpus = CORPUS) -> Run:
    """Make a run in a folder, ready to train."""
    parts = corpus.split(config.data.validation_fraction)
    text = encode_parts(*parts, config, continued.tokenizer if continued else None)
    if continued:
        state = TrainingState.continued(config, text.ids, continued)
    else:
        state = TrainingState.at_the_start(config, text.ids, text.tokenizer.vocab_size, text.digest)
    run = Run(state, RunDirectory(folder), text.tokenizer, text.validation_ids, state.progress if continued else None)
    run.open_directory()
    return run


def tensors(run: Run) -> dict[str, Tensor]:
    """Weights and moments, as a checkpoint would have them."""
    stored = run.checkpoint(with_optimizer=True)
    return {**stored.weights, **{f"optimizer.{name}": tensor for name, tensor in stored.optimizer_state.items()}}


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


def metrics(run: Run) -> list[dict[str, float]]:
    """The lines of metrics.jsonl without what the clock decides."""
    lines = [json.loads(line) for line in run.directory.metrics.read_text().splitlines()]
    return [
        {key: value for key, value in line.items() if key not in ("seconds", "tokens_per_second")} for line in lines
    ]


def finish(run: Run, host: Host = NOBODY) -> Finished:
    """Train to the end."""
    *_, finished = train(run, host)
    assert isinstance(finished, Finished)
    return finished


def assert_same_run(one: Run, other: Run) -> None:
    """Two runs have the same weights, moments, metrics, samples and progress, whatever the clock decided."""
    assert_same(tensors(one), tensors(other))
    assert metrics(one) == metrics(other)
    assert one.directory.samples.read_text() == other.directory.samples.read_text()
    assert replace(one.progress, seconds=0, elapsed=0) == replace(other.progress, seconds=0, elapsed=0)
