"""Faults at chosen file operations, and small runs to try them on."""

import errno
import hashlib
import importlib
import json
import os
import signal
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from gpt_cli.checkpoints.checkpoint import read_checkpoint
from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.config.load import write_config
from support.helpers import CORPUS_TEXT, small_config

# the share of all cases that runs; `make test-long` runs every one
SCALE = float(os.environ.get("GPT_TEST_SCALE", "0.02"))
# where pytest runs a process for each core, cases wait for each other
NUM_WORKERS = 1 if "PYTEST_XDIST_WORKER" in os.environ else 2
CHANGING = ("open", "write", "fsync", "replace", "unlink", "rmdir", "mkdir", "ftruncate")

Item = TypeVar("Item")
Result = TypeVar("Result")


def scaled(count: int, least: int = 2, cost: int = 1) -> int:
    """How many of `count` cases run at this scale; below the full one, a case of `cost` 2 counts as two."""
    return min(count, max(least, round(count * SCALE / (cost if SCALE < 1 else 1))))


def some_of(items: Sequence[Item], least: int = 2, cost: int = 1) -> list[Item]:
    """Evenly spaced items, the first and the last among them; all at full scale."""
    count = scaled(len(items), least, cost)
    return [items[round(i * (len(items) - 1) / max(1, count - 1))] for i in range(count)]


def in_parallel(case: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """The results of cases, each of which waits for a process of its own."""
    with ThreadPoolExecutor(NUM_WORKERS) as pool:
        return list(pool.map(case, items))


class Operations:
    """Replaces the module `os` in our writers: it calls `before` ahead of every operation that changes a disk.

    `before` receives the operation's number from 1, its name and its arguments.
    """

    def __init__(self, before: Callable[[int, str, tuple[Any, ...]], None]):
        self.before = before
        self.count = 0

    def install(self) -> None:
        for name in ("gpt_cli.common.files", "gpt_cli.checkpoints.lock"):
            importlib.import_module(name).os = self  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in CHANGING:
            return real

        def counted(*arguments: Any) -> Any:
            reads = name == "open" and not arguments[1] & (os.O_WRONLY | os.O_RDWR)
            if not reads:
                self.count += 1
                self.before(self.count, name, arguments)
            return real(*arguments)

        return counted


class KilledError(BaseException):
    """The process dies here."""


@dataclass(frozen=True)
class Fault:
    """What happens at the file operation of that number.

    kill; torn (half written, then killed); an errno's name; dies, where this process plays the killed one: half written,
    then KilledError here and, with `ever_after`, at all operations that follow, so that nobody tidies up.
    """

    number: int
    kind: str
    ever_after: bool = False

    def __call__(self, number: int, name: str, arguments: tuple[Any, ...]) -> None:
        if number < self.number or (number > self.number and not self.ever_after):
            return
        if self.kind in ("torn", "dies") and name == "write" and number == self.number:
            os.write(arguments[0], arguments[1][: len(arguments[1]) // 2])
        if self.kind == "dies":
            raise KilledError
        if self.kind in ("kill", "torn"):
            os.kill(os.getpid(), signal.SIGKILL)
        # removing a file needs no space
        elif name not in ("unlink", "rmdir"):
            raise OSError(getattr(errno, self.kind), os.strerror(getattr(errno, self.kind)))


_TWELVE_STEPS = """
data.source=corpus.txt model.num_blocks=1 model.dropout=0.2
train.micro_batch_size=2 train.max_steps=12 train.log_every=1 train.eval_every=3 train.sample_every=6
"""
# a training that goes on until a signal ends it, and does nothing else meanwhile
ENDLESS = (*(f"train.{each}=1000000" for each in ("max_steps", "eval_every", "save_every")), "train.sample_every=null")


def new_folder(folder: Path, *settings: str) -> Path:
    """A folder with a corpus and c.yaml, whose run takes 12 steps in a moment and saves three times."""
    folder.mkdir(parents=True)
    (folder / "corpus.txt").write_text(CORPUS_TEXT)
    (folder / "c.yaml").write_text(write_config(small_config(*_TWELVE_STEPS.split(), *settings)))
    return folder


START = ("train", "--config", "c.yaml", "--out", "run")
# continues whatever is there, from nothing at all to a finished run
RESUME = (*START, "--resume")


def weights(checkpoint: Path) -> str:
    """A digest of the weights alone."""
    stored = read_checkpoint(checkpoint)
    tensors = (name.encode() + stored.weights[name].numpy().tobytes() for name in sorted(stored.weights))
    return hashlib.sha256(b"".join(tensors)).hexdigest()


def fingerprint(run: Path, without: Collection[str] = ()) -> str:
    """A digest of all that a run leaves, except what the clock decides, which checkpoints were kept, and figures named."""
    directory = RunDirectory(run)
    digest = hashlib.sha256()

    def figures(content: dict[str, Any]) -> bytes:
        left_out = {"seconds", "elapsed", "model_elapsed", "tokens_per_second", "environment", *without}
        return json.dumps({key: content[key] for key in sorted({*content} - left_out)}).encode()

    for path in (directory.step_file(max(directory.steps())), directory.best):
        stored = read_checkpoint(path, everything=True)
        for name, tensor in sorted([*stored.weights.items(), *stored.optimizer_state.items()]):
            digest.update(name.encode() + tensor.numpy().tobytes())
        digest.update(figures(asdict(stored.progress)))
    for line in directory.metrics.read_text().splitlines():
        digest.update(figures(json.loads(line)))
    digest.update(directory.samples.read_bytes())
    for path in directory.snapshots().values():
        digest.update(path.name.encode() + path.read_bytes())
    digest.update(figures(json.loads(directory.outcome.read_text())))
    return digest.hexdigest()


def strays(run: Path) -> list[str]:
    """Files that no finished command may leave: temporary ones and locks."""
    return [str(path) for path in run.rglob(".*")]
