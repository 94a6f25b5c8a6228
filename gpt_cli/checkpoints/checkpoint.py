"""One checkpoint, one safetensors file: weights, tokenizer, config and training state; never a pickle.

Layout: header, weights, then optimizer moments. Two digests stand in the header: one over the rest of the
header and the weights, so that a reader of weights can check all it uses, and one over what follows.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import ConfigDict, TypeAdapter
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from torch import Tensor

from gpt_cli.config import Config
from gpt_cli.config.reading import validate
from gpt_cli.errors import CheckpointError, GptError, shown
from gpt_cli.files import read_bytes, write_durably
from gpt_cli.model import GPT
from gpt_cli.text.tokenizer import Tokenizer, tokenizer_from_dict
from gpt_cli.version import __version__

FORMAT = "gpt-cli checkpoint"
FORMAT_VERSION = 1
OPTIMIZER_PREFIX = "optimizer."
METADATA = (
    "format", "format_version", "written_by", "step", "config", "tokenizer", "progress", "digest_rest",
    "digest_weights",
)  # fmt: skip
MAX_HEADER = 64_000_000  # bytes; a published vocabulary takes a few million
_BLANK = "0" * 64


@dataclass(frozen=True)
class Progress:
    """How far a training has come, besides what (seed, step) gives back."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    step: int
    observed_step: int  # the last step whose evaluation, log line and sample are done: `step` or the one before
    loss: float | None  # of the last step, in nats per token; None before the first
    gradient_norm: float | None
    seconds: float  # of training steps
    best_loss: float | None  # nats per token on the evaluation's windows
    evaluations_without_best: int
    num_training_tokens: int  # of the corpus
    data_digest: str  # of training and validation ids
    environment: Mapping[str, str]  # what bit-exactness depends on: torch, processor, threads, ...
    learning_rate: float | None = None  # of the last step
    elapsed: float = 0.0  # seconds, those of evaluations, samples and saves included
    evaluated_step: int = 0  # the last step that was evaluated

    @classmethod
    def at_the_start(cls, num_training_tokens: int, data_digest: str, environment: Mapping[str, str]) -> Progress:
        """Before the first step."""
        return cls(
            step=0, observed_step=0, loss=None, gradient_norm=None, seconds=0.0, best_loss=None,
            evaluations_without_best=0, num_training_tokens=num_training_tokens, data_digest=data_digest,
            environment=environment,
        )  # fmt: skip

    @property
    def observed(self) -> bool:
        """Whether nothing is left to do about the last step."""
        return self.observed_step == self.step


@dataclass(frozen=True)
class Checkpoint:
    """All that a file holds; `moments` is empty in a file that is for sampling alone."""

    config: Config
    tokenizer: Tokenizer
    progress: Progress
    weights: Mapping[str, Tensor]
    moments: Mapping[str, Tensor]

    def build_model(self) -> GPT:
        """The model with these weights, on the CPU, in evaluation mode; raises CheckpointError on a misfit."""
        sizes = self.config.model
        # tensors are counted first: a hostile config may name a model of a million blocks
        fits = sizes.num_blocks * sizes.num_heads <= len(self.weights)
        if fits:
            with torch.device("meta"):
                model = GPT(sizes, self.tokenizer.vocab_size)
            expected = {name: tensor.shape for name, tensor in model.state_dict().items()}
            fits = expected == {name: tensor.shape for name, tensor in self.weights.items()}
            fits = fits and all(tensor.dtype == torch.float32 for tensor in self.weights.values())
            if fits:
                if not all(bool(tensor.isfinite().all()) for tensor in self.weights.values()):
                    raise CheckpointError("checkpoint", "its weights are not finite", "it cannot be used")
                model.load_state_dict(dict(self.weights), assign=True)
                return model.eval()
        raise CheckpointError("checkpoint", "its weights do not fit its config")


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint durably; raises EnvironmentFailure when the system refuses."""
    weights = {name: _plain(tensor) for name, tensor in checkpoint.weights.items()}
    moments = {OPTIMIZER_PREFIX + name: _plain(tensor) for name, tensor in checkpoint.moments.items()}
    metadata = {
        "format": FORMAT,
        "format_version": str(FORMAT_VERSION),
        "written_by": f"gpt-cli {__version__}",
        "step": str(checkpoint.progress.step),
        "config": _canonical(checkpoint.config.model_dump(mode="json")),
        "tokenizer": _canonical(checkpoint.tokenizer.to_dict()),
        "progress": _canonical(asdict(checkpoint.progress)),
        "digest_rest": _digest(_contents(moments)),
        "digest_weights": _BLANK,
    }
    assert tuple(metadata) == METADATA
    tensors = weights | moments
    blank = _header(tensors, metadata)
    metadata["digest_weights"] = _digest([blank, *_contents(weights)])
    write_durably(path, [_header(tensors, metadata), *_contents(tensors)])


def read_checkpoint(path: Path, *, everything: bool = False) -> Checkpoint:
    """A checkpoint whose header and weights are verified; with `everything` the rest too.

    Raises CheckpointError for a file that is missing, damaged, foreign or newer.
    """
    content = read_bytes(path, CheckpointError)
    where = shown(path)
    header, metadata, num_weight_bytes = _read_header(content, where)
    data = memoryview(content)[len(header) :]
    blank = header.replace(metadata["digest_weights"].encode(), _BLANK.encode(), 1)
    damage = CheckpointError(where, "damaged: its content does not match its digest", hint="use another checkpoint")
    if _digest([blank, data[:num_weight_bytes]]) != metadata["digest_weights"]:
        raise damage
    if everything and _digest([data[num_weight_bytes:]]) != metadata["digest_rest"]:
        raise damage
    try:
        tensors = load_safetensors(content)
        config = validate(_strict_json(metadata["config"]), where)
        tokenizer = tokenizer_from_dict(_strict_json(metadata["tokenizer"]))
        _strict_json(metadata["progress"])
        progress = TypeAdapter(Progress).validate_json(metadata["progress"], strict=True)
    except (SafetensorError, KeyError, TypeError, ValueError, RecursionError, GptError) as error:
        raise CheckpointError(where, f"not a valid checkpoint, {shown(error)}") from error
    moments = {n.removeprefix(OPTIMIZER_PREFIX): t for n, t in tensors.items() if n.startswith(OPTIMIZER_PREFIX)}
    weights = {name: tensor for name, tensor in tensors.items() if not name.startswith(OPTIMIZER_PREFIX)}
    return Checkpoint(config, tokenizer, progress, weights, moments)


def is_checkpoint(path: Path) -> bool:
    """Whether a file begins as ours do; nothing is verified."""
    beginning = f'{{"__metadata__":{{"format":"{FORMAT}"'.encode()
    with open(path, "rb") as file:
        return file.read(8 + len(beginning))[8:] == beginning


def _read_header(content: bytes, where: str) -> tuple[bytes, dict[str, str], int]:
    """The header's bytes, its metadata, and how many bytes of data are weights."""
    if content[:2] in (b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"):
        raise CheckpointError(where, "a PyTorch pickle file", "this program never loads pickles")
    foreign = CheckpointError(where, "not a checkpoint of this program", hint="gpt train writes them")
    if len(content) < 8:
        raise foreign
    (length,) = struct.unpack("<Q", content[:8])
    if length > MAX_HEADER:
        raise foreign
    if len(content) < 8 + length:
        raise CheckpointError(where, f"truncated: {len(content):,} bytes end inside its header")
    try:
        header = _strict_json(content[8 : 8 + length].decode("utf-8"))
        metadata = header.pop("__metadata__")
        if metadata["format"] != FORMAT:
            raise foreign
        version = int(metadata["format_version"])
        ends = {name: int(entry["data_offsets"][1]) for name, entry in header.items()}
        for name in ("digest_weights", "digest_rest"):
            if len(bytes.fromhex(metadata[name])) != 32:
                raise foreign
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError):
        raise foreign from None
    if version <= FORMAT_VERSION and set(metadata) != set(METADATA):
        raise foreign
    if version > FORMAT_VERSION:
        raise CheckpointError(
            where,
            f"written by {shown(metadata.get('written_by'))} in format {version}",
            f"this gpt-cli {__version__} reads up to format {FORMAT_VERSION}",
            hint="pip install --upgrade gpt-cli",
        )
    expected = 8 + length + max(ends.values(), default=0)
    if len(content) != expected:
        raise CheckpointError(where, f"truncated: {len(content):,} of {expected:,} bytes")
    num_weight_bytes = max((end for name, end in ends.items() if not name.startswith(OPTIMIZER_PREFIX)), default=0)
    return content[: 8 + length], metadata, num_weight_bytes


def _header(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """The length-prefixed JSON header of a safetensors file, with the tensors in the order given."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name, tensor in tensors.items():
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def _plain(tensor: Tensor) -> Tensor:
    assert tensor.dtype == torch.float32, "weights and moments are float32"
    return tensor.detach().cpu().contiguous()


def _contents(tensors: Mapping[str, Tensor]) -> Iterator[memoryview]:
    return (tensor.numpy().reshape(-1).view("uint8").data for tensor in tensors.values())


def _digest(chunks: Any) -> str:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def _canonical(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _strict_json(text: str) -> Any:
    """JSON without repeated keys and with finite numbers alone; raises ValueError."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) != len(pairs):
            raise ValueError("a key stands twice")
        return content

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is no JSON")

    def finite(number: str) -> float:
        if math.isinf(float(number)):
            refuse(number)
        return float(number)

    return json.loads(text, object_pairs_hook=unique, parse_constant=refuse, parse_float=finite)
