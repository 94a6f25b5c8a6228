"""The header of a checkpoint: format, step, config and shapes, read from the first bytes and without torch."""

from __future__ import annotations

import contextlib
import json
import math
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from gpt_cli.checkpoints.progress import Progress, read_progress
from gpt_cli.checkpoints.strict_json import strict_json
from gpt_cli.config import Config
from gpt_cli.config.model import ModelConfig
from gpt_cli.config.reading import validate
from gpt_cli.errors import CheckpointError, GptError, shown, within
from gpt_cli.limits import CHECKPOINT_HEADER_BYTES, STEPS
from gpt_cli.opening import reading
from gpt_cli.version import __version__

FORMAT = "gpt-cli checkpoint"
FORMAT_VERSION = 1
OPTIMIZER_PREFIX = "optimizer."
METADATA = (
    "format",
    "format_version",
    "written_by",
    "step",
    "config",
    "tokenizer",
    "progress",
    "digest_rest",
    "digest_weights",
)
_MOST_DIMENSIONS = 8  # of a tensor; ours have three at most
_PICKLES = (b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")


@dataclass(frozen=True)
class Header:
    """What a checkpoint says about itself. Nothing of it is verified: the digests cover the weights too."""

    path: Path
    content: bytes  # of the header, its length included
    metadata: Mapping[str, str]
    shapes: Mapping[str, tuple[int, ...]]  # of each tensor, optimizer moments included
    step: int
    num_weight_bytes: int
    num_data_bytes: int  # of all tensors

    @property
    def where(self) -> str:
        """The file, as errors name it."""
        return shown(self.path)

    @property
    def config(self) -> Config:
        """The settings that made the model; raises CheckpointError where they are not valid or do not fit."""
        try:
            config = validate(strict_json(self.metadata["config"]), self.where)
        except (ValueError, RecursionError, GptError) as error:
            raise CheckpointError(self.where, f"its config is not valid, {shown(within(error, self.where))}") from error
        # a stranger's config may name a million heads, which nothing should be made for
        if config.model.num_blocks * config.model.num_heads > len(self.shapes):
            raise CheckpointError(self.where, "its weights do not fit its config")
        return config

    @property
    def progress(self) -> Progress:
        """How far the training was; raises CheckpointError where that is not valid."""
        try:
            return read_progress(self.metadata["progress"])
        except (ValueError, RecursionError) as error:
            raise CheckpointError(self.where, "its progress is not valid") from error


def read_header(path: Path) -> Header:
    """The header of a file, of which nothing else is read.

    Raises CheckpointError for a file that is missing, foreign, newer, or shorter or longer than its header says.
    """
    with reading(path, CheckpointError) as file:
        return header_of(file, path)


def header_of(file: BinaryIO, path: Path) -> Header:
    """As `read_header`, of the open file `path`: what a file is judged by before it is read whole."""
    content = file.read(8)
    if len(content) == 8:
        (length,) = struct.unpack("<Q", content)
        if length <= CHECKPOINT_HEADER_BYTES:  # else it is foreign
            content += file.read(length)
    header = _parse_header(content, path)
    check_size(header, os.fstat(file.fileno()).st_size)
    return header


def _parse_header(content: bytes, path: Path) -> Header:
    """The header at the beginning of the content of the file `path`. Raises CheckpointError."""
    where = shown(path)
    if content[:2] in _PICKLES:
        sentence = "this is a PyTorch pickle, which gpt never loads because a pickle can run code"
        raise CheckpointError(where, sentence)
    foreign = CheckpointError(where, "this is not a checkpoint of gpt", hint="gpt train writes checkpoints")
    if len(content) < 8:
        raise foreign
    (length,) = struct.unpack("<Q", content[:8])
    if length > CHECKPOINT_HEADER_BYTES:
        raise foreign
    if len(content) < 8 + length:
        raise CheckpointError(where, f"the file is truncated: it ends inside its header, after {len(content):,} bytes")
    content = content[: 8 + length]
    try:
        entries = strict_json(content[8:].decode("utf-8"))
        metadata = entries.pop("__metadata__")
        if metadata["format"] != FORMAT:
            raise foreign
        version, step = int(metadata["format_version"]), int(metadata["step"])
        ends = {name: int(entry["data_offsets"][1]) for name, entry in entries.items()}
        shapes = {name: tuple(map(int, entry["shape"])) for name, entry in entries.items()}
        if not all(isinstance(value, str) for value in metadata.values()) or not _are_sizes(shapes, ends):
            raise foreign
        for name in ("digest_weights", "digest_rest"):
            if len(bytes.fromhex(metadata[name])) != 32:
                raise foreign
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError):
        raise foreign from None
    if version > FORMAT_VERSION:
        writer = shown(metadata.get("written_by"))
        sentence = (
            f"{writer} wrote this file in format {version}, and gpt {__version__} reads formats 1 to {FORMAT_VERSION}"
        )
        raise CheckpointError(where, sentence, hint="pip install --upgrade small-gpt")
    if version < 1 or not 0 <= step <= STEPS or set(metadata) != set(METADATA):
        raise foreign
    num_weight_bytes = max((end for name, end in ends.items() if not name.startswith(OPTIMIZER_PREFIX)), default=0)
    return Header(path, content, metadata, shapes, step, num_weight_bytes, max(ends.values(), default=0))


def _are_sizes(shapes: Mapping[str, tuple[int, ...]], ends: Mapping[str, int]) -> bool:
    """Whether tensors of these shapes can end at these bytes, a number having one at least."""
    return all(
        len(shape) <= _MOST_DIMENSIONS and min(shape, default=0) >= 0 and math.prod(shape) <= ends[name]
        for name, shape in shapes.items()
    )


def check_size(header: Header, num_bytes: int) -> None:
    """Raises CheckpointError where a file of `num_bytes` is shorter or longer than its header says."""
    expected = len(header.content) + header.num_data_bytes
    if num_bytes < expected:
        raise CheckpointError(header.where, f"the file is truncated: it has {num_bytes:,} of {expected:,} bytes")
    if num_bytes > expected:
        extra = f"the file is damaged: it has {num_bytes:,} bytes, and its header describes {expected:,}"
        raise CheckpointError(header.where, extra)


def header_bytes(shapes: Mapping[str, Sequence[int]], metadata: Mapping[str, str]) -> bytes:
    """The length-prefixed JSON header of a safetensors file of float32 tensors, in the order given."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def require_few_tensors(number: int, sizes: ModelConfig) -> None:
    """Raises ValueError for many more tensors than a model of such sizes and its optimizer have."""
    of_a_block = 40 + 8 * sizes.num_heads  # at most: today the largest has 10, and 6 for each head
    if number > 3 * (40 + sizes.num_blocks * of_a_block):  # weights, and two moments of each
        raise ValueError(f"it has {number:,} tensors, far more than its config asks for")


def is_checkpoint(path: Path) -> bool:
    """Whether a file begins as ours do; nothing is verified, and nothing waited for."""
    beginning = f'{{"__metadata__":{{"format":"{FORMAT}"'.encode()
    with contextlib.suppress(CheckpointError), reading(path, CheckpointError) as file:
        return file.read(8 + len(beginning))[8:] == beginning
    return False
