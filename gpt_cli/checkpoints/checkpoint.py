"""Read and write checkpoints: safetensors files with weights, tokenizer, config and training state, never pickles.

Layout: header, weights, then optimizer moments. The header contains two digests: one over the rest of the
header and the weights, so that a reader of weights can check all that it reads, and one over the moments.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gpt_cli.checkpoints.array_file import canonical_json
from gpt_cli.checkpoints.header import FORMAT_VERSION, METADATA, OPTIMIZER_PREFIX, Header, Progress
from gpt_cli.checkpoints.verify import BLANK, OTHER, digest, read_verified
from gpt_cli.common import __version__
from gpt_cli.common.file_signatures import FORMAT
from gpt_cli.common.files import Buffer, write_durably
from gpt_cli.common.safetensors_header import header_bytes
from gpt_cli.config import Config
from gpt_cli.errors import CheckpointError, counted, shown
from gpt_cli.model import GPT
from gpt_cli.model.costs import parameters_by_part
from gpt_cli.text.tokenizers import Tokenizer

# dtypes of weights in files; a training's weights and all moments are float32
TYPES: Mapping[str, torch.dtype] = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint file; `optimizer_state` is empty in a file that is only for sampling."""

    config: Config
    tokenizer: Tokenizer
    progress: Progress
    weights: Mapping[str, Tensor]  # each with one of the dtypes in TYPES
    optimizer_state: Mapping[str, Tensor]

    header: Header | None = None  # of the file it was read from

    @property
    def where(self) -> str:
        """The file that the checkpoint was read from, as errors name it."""
        return "checkpoint" if self.header is None else self.header.where

    def build_model(self) -> GPT:
        """Build the checkpoint's model, on the CPU in eval mode; raise CheckpointError if weights and config disagree.

        Matrices of 16 bits keep their dtype; norms and biases become float32.
        """
        sizes, vocab_size = self.config.model, self.tokenizer.vocab_size
        misfit = CheckpointError(self.where, "its weights do not fit its config")
        # a model is not built for a file that is too small for it
        if sum(parameters_by_part(sizes, vocab_size).values()) > sum(map(Tensor.numel, self.weights.values())):
            raise misfit
        with torch.device("meta"):
            model = GPT(sizes, vocab_size)
        expected = {name: tensor.shape for name, tensor in model.state_dict().items()}
        if expected != {name: tensor.shape for name, tensor in self.weights.items()}:
            raise misfit
        # norms and biases are small
        weights = {name: one if one.dim() > 1 else one.float() for name, one in self.weights.items()}
        model.where = self.where
        return model.take_weights(weights).eval()


def on_cpu(checkpoint: Checkpoint) -> Checkpoint:
    """Return the checkpoint with all tensors on the CPU; copy only tensors that are on another device."""
    return replace(checkpoint, weights=_plain(checkpoint.weights), optimizer_state=_plain(checkpoint.optimizer_state))


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint file, or raise EnvironmentFailure; a crash leaves the complete old or complete new file."""
    weights = _plain(checkpoint.weights)
    stored = {name: (type_of(tensor.dtype), tensor.shape) for name, tensor in weights.items()}
    write_durably(path, prepared(checkpoint, stored, lambda: map(bytes_of, weights.values())))


def prepared(
    checkpoint: Checkpoint, stored: Mapping[str, tuple[str, Sequence[int]]], weights: Callable[[], Iterator[Buffer]]
) -> Iterator[Buffer]:
    """Return the bytes of a checkpoint file in chunks, with weights from `weights` instead of `checkpoint.weights`.

    `stored` maps the name of each weight to its type, such as F32, and its shape. `weights` is called twice, for the
    digest and for the file; each call yields the bytes weight by weight, so that memory need not hold a large model.
    """
    optimizer_state = {OPTIMIZER_PREFIX + name: moment for name, moment in _plain(checkpoint.optimizer_state).items()}
    metadata = {
        "format": FORMAT,
        "format_version": str(FORMAT_VERSION),
        "written_by": f"gpt-cli {__version__}",
        "step": str(checkpoint.progress.step),
        "config": canonical_json(checkpoint.config.model_dump(mode="json")),
        "tokenizer": canonical_json(checkpoint.tokenizer.to_dict()),
        "progress": canonical_json(asdict(checkpoint.progress)),
        "digest_rest": digest(map(bytes_of, optimizer_state.values())),
        "digest_weights": BLANK,
    }
    assert tuple(metadata) == METADATA
    every = {**stored, **{name: ("F32", tensor.shape) for name, tensor in optimizer_state.items()}}
    metadata["digest_weights"] = digest(chain([header_bytes(every, metadata)], weights()))
    return chain([header_bytes(every, metadata)], weights(), map(bytes_of, optimizer_state.values()))


def read_checkpoint(
    path: Path, expected: Header | None = None, *, everything: bool = False, keep: bool = True, as_stored: bool = False
) -> Checkpoint:
    """Read a checkpoint, and verify its header and weights; with `everything`, also the optimizer state.

    Weights become float32, unless `as_stored`. Tensors have no data (device meta) if they are not verified, or without
    `keep`. Raises CheckpointError for a file that is missing, damaged, not written by gpt or of a newer format, or that
    contains NaN or infinity, and for another model or tokenizer than in `expected`, which the caller read earlier.
    """
    header, content, not_finite = read_verified(path, everything=everything, keep=keep)
    where, metadata, config, tokenizer = header.where, header.metadata, header.config, header.tokenizer
    try:
        tensors = {name: _taken(header, content, name, as_stored=as_stored) for name in header.tensors}
    except ValueError as error:
        raise CheckpointError(where, f"this is not a valid checkpoint, {shown(error)}") from error
    if expected and (config.model, metadata["tokenizer"]) != (expected.config.model, expected.metadata["tokenizer"]):
        raise CheckpointError(where, "another training replaced this model while gpt read it", hint="try again")
    progress = header.progress
    if (step := header.step) != progress.step:
        wrong = f"this is not a valid checkpoint: its header names step {step}, but its progress step {progress.step}"
        raise CheckpointError(where, wrong)
    optimizer_state = {n.removeprefix(OPTIMIZER_PREFIX): t for n, t in tensors.items() if _is_moment(n)}
    weights = {name: tensor for name, tensor in tensors.items() if not _is_moment(name)}
    for are_moments, what in ((False, "weights"), (True, "state of the optimizer")):
        if counts := {name: number for name, number in not_finite.items() if _is_moment(name) == are_moments}:
            number, of_tensors = counted(sum(counts.values()), "number"), counted(len(counts), "tensor")
            name = shown(next(iter(counts)).removeprefix(OPTIMIZER_PREFIX))
            sentence = f"there is NaN or infinity in its {what}: {number} in {of_tensors}, for example in {name}"
            raise CheckpointError(where, sentence, hint=OTHER)
    return Checkpoint(config, tokenizer, progress, weights, optimizer_state, header)


def _is_moment(name: str) -> bool:
    return name.startswith(OPTIMIZER_PREFIX)


def _taken(header: Header, content: dict[str, np.ndarray], name: str, *, as_stored: bool) -> Tensor:
    """Take a tensor from `content`, as float32 unless `as_stored`; raise ValueError if its type is not in TYPES."""
    kind, shape, *_ = header.tensors[name]
    if kind not in TYPES:
        raise ValueError(f"{shown(name)} is {kind}, but gpt reads {', '.join(TYPES)}")
    if name not in content:
        return torch.empty(shape, dtype=TYPES[kind], device="meta")
    tensor = torch.from_numpy(content.pop(name)).view(TYPES[kind]).view(shape)
    return tensor if as_stored else tensor.float()


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    assert {tensor.dtype for tensor in tensors.values()} <= {*TYPES.values()}, "readers know the types of all tensors"
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def type_of(dtype: torch.dtype) -> str:
    """Return the name of a dtype in checkpoint files, one of TYPES, such as F32."""
    return next(name for name, candidate in TYPES.items() if candidate == dtype)


def bytes_of(tensor: Tensor) -> memoryview:
    """Return a view of the bytes of a contiguous tensor on the CPU."""
    return tensor.view(-1).view(torch.uint8).numpy().data
