"""`read_checkpoint` notices any damage to a checkpoint."""

import contextlib
import random
import struct
from pathlib import Path

import pytest
from support.faults import START, new_folder, scaled, some_of
from support.helpers import run_command

from gpt_cli.checkpoints.checkpoint import read_checkpoint
from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.errors import CheckpointError


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The checkpoint of a training with learned byte pairs."""
    small = ("tokenizer.kind=bpe", "tokenizer.vocab_size=300", "model.d_model=8", "train.max_steps=2")
    folder = new_folder(tmp_path_factory.mktemp("damage") / "a", *small)
    with contextlib.chdir(folder):
        run_command(*START, "--quiet", exits=0)
    return RunDirectory(folder / "run").step_file(2).read_bytes()


@pytest.fixture
def begin(content: bytes) -> int:
    """The byte at which the tensors begin."""
    return 8 + struct.unpack("<Q", content[:8])[0]


def test_every_truncation_is_noticed(content: bytes, begin: int, tmp_path: Path, tally) -> None:
    damaged = tmp_path / "damaged.safetensors"
    draw = random.Random(0)
    lengths = [
        *some_of(range(begin), 50),
        *(draw.randrange(begin, len(content)) for _ in range(scaled(1000, 20))),
        len(content) - 1,
    ]
    for length in lengths:
        damaged.write_bytes(content[:length])
        with pytest.raises(CheckpointError, match=r"truncated|not a checkpoint"):
            read_checkpoint(damaged)
    tally(f"truncations, at every byte of the {begin:,} of the header and at random beyond: noticed", len(lengths))


def test_every_flipped_bit_is_noticed(content: bytes, begin: int, tmp_path: Path, tally) -> None:
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(content)
    draw = random.Random(0)
    header = some_of(range(8 * begin), 150, cost=8)
    beyond = [draw.randrange(8 * begin, 8 * len(content)) for _ in range(scaled(10_000, 100))]
    read_checkpoint(damaged, everything=True)
    for bit in [*header, *beyond]:
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        damaged.write_bytes(flipped)
        with pytest.raises(CheckpointError):
            read_checkpoint(damaged, everything=True)
    tally("flipped bits of the header: noticed", len(header))
    tally("flipped bits of tensors: noticed", len(beyond))
