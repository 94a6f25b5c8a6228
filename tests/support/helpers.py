"""What tests of several packages need: commands run in this process, and a config that trains in a moment."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from gpt_cli.__main__ import run
from gpt_cli.config import Config
from gpt_cli.config.load import build_config
from gpt_cli.config.strict_yaml import Document
from support.messages import listening

if TYPE_CHECKING:
    from gpt_cli.model import GPT


class Terminal(io.StringIO):
    """A terminal in place of a standard stream."""

    def isatty(self) -> bool:
        return True


@dataclass(frozen=True)
class Outcome:
    """The exit code of a command and what it wrote."""

    code: int
    out: str
    err: str


RunCommand = Callable[..., Outcome]
WAIT = 100.0  # seconds, on a machine that is busy with other tests


class _Standard(io.TextIOWrapper):
    """A standard stream in memory, with the bytes below it."""

    def __init__(self, content: bytes = b""):
        super().__init__(io.BytesIO(content), encoding="utf-8", write_through=True, newline="")

    def text(self) -> str:
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode()


def run_command(*arguments: str | Path, stdin: bytes = b"", exits: int | None = None) -> Outcome:
    """Run `gpt` in this process, with stdin piped. Fails unless the exit code is `exits`, where that is given."""
    streams = sys.stdin, sys.stdout, sys.stderr
    given, out, err = _Standard(stdin), _Standard(), _Standard()
    sys.stdin, sys.stdout, sys.stderr = given, out, err
    try:
        with listening():
            code = run([str(argument) for argument in arguments])
    finally:
        sys.stdin, sys.stdout, sys.stderr = streams
    assert exits in (None, code), f"gpt {' '.join(map(str, arguments))}\n{err.text()}"
    return Outcome(code, out.text(), err.text())


class InThisProcess:
    """A training of a sweep that is over when it has begun, in place of a process that imports torch first."""

    def __init__(self, words: list[str], **_: object):
        outcome = run_command(*words[words.index("train") :])
        self.returncode = outcome.code
        sys.stderr.write(outcome.err)

    def poll(self) -> int:
        return self.returncode


# in place of the module `subprocess` where sweeps start trainings
TRAINING_HERE = SimpleNamespace(Popen=InThisProcess, DEVNULL=subprocess.DEVNULL)


@contextlib.contextmanager
def unread_pipe(pages: int = 0) -> Iterator[int]:
    """The end for writers of a pipe that takes a number of pages of 4,096 bytes, and then nothing, as nobody reads."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(writer, bytes(4096)):
            pass
    os.set_blocking(writer, True)
    for _ in range(pages):
        os.read(reader, 4096)
    try:
        yield writer
    finally:
        os.close(writer)
        os.close(reader)


def wait_until(what: str, holds: Callable[[], object]) -> None:
    """Wait while something does not hold; fail with `what` after a time that is long on a busy machine too."""
    deadline = time.monotonic() + WAIT
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


_SMALL = """
model.context_length=16 model.d_model=16 model.num_heads=2 model.num_blocks=2
tokenizer.kind=byte
train.batch_size=4 train.max_steps=8 train.warmup_steps=2 train.device=cpu train.dtype=float32
train.log_every=2 train.eval_every=4 train.eval_tokens=64 train.save_every=4 train.sample_every=4
"""


def small_config(*settings: str) -> Config:
    """A config that trains in a moment, with `section.key=value` settings over it."""
    by_clock = any("max_time=" in one for one in settings) and not any("max_steps=" in one for one in settings)
    length = ["train.max_steps=null"] if by_clock else []
    return build_config(Document({}), "test", [*_SMALL.split(), *length, *settings])


CORPUS_TEXT = "".join(f"{i} squared is {i * i}, and doubled {2 * i}.\n" for i in range(200))


def damage(path: Path) -> None:
    """Flip a bit in the middle of a checkpoint."""
    content = bytearray(path.read_bytes())
    content[len(content) // 4] ^= 1  # among the weights
    path.write_bytes(content)


def overflow(path: Path) -> None:
    """Make the weights of a checkpoint so large that its logits are not finite, while the file stays intact."""
    from dataclasses import replace

    from gpt_cli.checkpoints.checkpoint import read_checkpoint, save_checkpoint

    stored = read_checkpoint(path, everything=True)
    huge = {name: weight * 1e30 for name, weight in stored.weights.items()}
    save_checkpoint(path, replace(stored, weights=huge))


def sharp_model(vocab_size: int, *settings: str) -> GPT:
    """A model in float64 with weights as large as trained ones, so that a fault in its attention shows."""
    import torch

    from gpt_cli.model import GPT

    model = GPT(small_config(*settings).model, vocab_size, torch.Generator().manual_seed(1))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)))
    return model.double().eval()
