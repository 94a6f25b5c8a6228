"""A run that is stopped anywhere, any number of times, ends with the same files, and watching it changes nothing."""

import random
import shutil
import signal
from pathlib import Path

import pytest
from support.faults import START, fingerprint, in_parallel, new_folder, scaled, some_of, weights
from support.forks import Servers
from support.helpers import CORPUS_TEXT, small_config
from support.runs import start

from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.common.host import Host
from gpt_cli.config import Config
from gpt_cli.training.loop import train
from gpt_cli.training.run import Run

# 40 steps of 16 windows: 6,740 tokens make 421 windows of 16, so the second epoch begins at step 27
STEPS = """
train.max_steps=40 train.batch_size=16 train.log_every=3 train.save_every=13 train.sample_every=null model.num_blocks=1
"""
KINDS = {
    "dropout": ("model.dropout=0.3", "train.eval_every=40"),
    "accumulation": ("train.micro_batch_size=4", "model.dropout=0.1", "train.eval_every=40"),
    "evaluation": ("train.eval_every=3", "train.patience=100"),
    "bfloat16": ("train.dtype=bfloat16", "train.micro_batch_size=8", "train.eval_every=10"),
    "muon": (
        *("train.optimizer=muon", "train.schedule=stable", "train.eval_every=10"),
        *("model.ngram_embedding=3", "model.ngram_rows=300"),
    ),
}


class StopAt:
    """Asks to stop at its call of that number, or at a step, and counts its calls."""

    def __init__(self, number: int | None = None, step: int | None = None):
        self.number = number
        self.step = step
        self.asked = 0

    def __call__(self, run: Run) -> int | None:
        self.asked += 1
        at_number = self.number is not None and self.asked >= self.number
        return 15 if at_number or (self.step is not None and run.progress.step >= self.step) else None


def run(path: Path, config: Config, stop: StopAt) -> None:
    """Start or continue a run, until it is stopped or complete."""
    trained = start(path, config, RunDirectory(path).newest(pytest.fail))
    for _ in train(trained, Host(stop=lambda: stop(trained))):
        pass


def whole(path: Path, config: Config) -> tuple[str, int]:
    """The fingerprint of the uninterrupted run, and how often it asks whether to stop."""
    stop = StopAt()
    run(path, config, stop)
    return fingerprint(path), stop.asked


# below full scale the first two are stopped five times, and accumulation has dropout too
RARE = ("muon", "bfloat16", "dropout")


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.long] * (kind in RARE)) for kind in KINDS])
def test_stopped_anywhere(tmp_path: Path, tally, kind: str) -> None:
    """With the first seed between any two micro-batches, evaluated batches or sampled tokens; with others after any step."""
    places = 0
    for seed in range(scaled(3, 1)):
        config = small_config(*STEPS.split(), *KINDS[kind], f"train.seed={seed}")
        expected, asked = whole(tmp_path / f"{seed}", config)
        anywhere = [StopAt(number=number) for number in range(1, asked + 1)]
        after_a_step = [StopAt(step=step) for step in range(1, 41)]
        for number, stop in enumerate(some_of(after_a_step if seed else anywhere, cost=2)):
            path = tmp_path / f"{seed}-{number}"
            run(path, config, stop)
            run(path, config, StopAt())
            assert fingerprint(path) == expected, f"seed {seed}, stopped at call {stop.asked} of {asked}"
            shutil.rmtree(path)
            places += 1
    tally(f"places to stop in 40 steps over two epochs, {kind}: bit for bit", places)


def test_stopped_five_times(tmp_path: Path, tally) -> None:
    draw = random.Random(0)
    count = scaled(60, 1)
    for number in range(count):
        config = small_config(*STEPS.split(), *list(KINDS.values())[-1 - number % len(KINDS)], f"train.seed={number}")
        expected, asked = whole(tmp_path / f"{number}-whole", config)
        path = tmp_path / f"{number}"
        for _ in range(5):
            run(path, config, StopAt(draw.randint(1, asked // 5)))
        run(path, config, StopAt())
        assert fingerprint(path) == expected
        for finished in (path, tmp_path / f"{number}-whole"):
            shutil.rmtree(finished)
    tally("chains of five stops: bit for bit", count)


def test_a_second_epoch_is_reached() -> None:
    windows = (len(CORPUS_TEXT) * 9 // 10 - 1) // 16
    assert 40 * 16 > windows > 20 * 16


OBSERVERS = {
    "plain": (),
    "never logged": ("--set", "train.log_every=1000"),
    "evaluated each step": ("--set", "train.eval_every=1"),
    "saved each step": ("--set", "train.save_every=1"),
    "evaluated on more": ("--set", "train.eval_tokens=640"),
    "never evaluated": ("--set", "train.eval_every=1000"),  # the second of four outside `make test-long`
    "saved at the end": ("--set", "train.save_every=1000"),
    "one checkpoint": ("--set", "train.keep_checkpoints=1"),
    "sampled often": ("--set", "train.sample_every=10"),
    "never sampled": ("--set", "train.sample_every=null"),
    "patient": ("--set", "train.patience=1000"),
    "quiet": ("--quiet",),
    "json": ("--json",),
    "on a terminal": (),
    "suspended": (),
    "asked to save": (),
}


SIGNALS = {"asked to save": [signal.SIGUSR1], "suspended": [signal.SIGSTOP, signal.SIGCONT]}


def test_watching_changes_nothing(tmp_path: Path, servers: Servers, tally) -> None:
    def watched(name: str) -> str:
        folder = new_folder(tmp_path / name, "train.max_steps=40")
        directory = RunDirectory(folder / "run")
        first, *later = SIGNALS.get(name, [0])
        signals = [(directory.metrics.exists, first), *((0.3, number) for number in later)] if first else ()
        watching = (*START, *OBSERVERS[name])
        ended = servers.gpt(folder, *watching, terminal=name == "on a terminal", signals=signals, exits=0)
        assert ("as SIGUSR1 requested" in ended.err) == (name == "asked to save")
        return weights(directory.step_file(40))

    names = some_of(list(OBSERVERS), 4)
    found = dict(zip(names, in_parallel(watched, names), strict=True))
    assert len(set(found.values())) == 1, found
    tally("ways to watch a run: same weights", len(names))
