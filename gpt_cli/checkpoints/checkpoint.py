"""One checkpoint, one safetensors file: weights, tokenizer, config and training state; never a pickle.

Layout: header, weights, then optimizer moments. The header contains two digests: one over the rest of the
header and the weights, so that a reader of weights can check all it uses, and one over what follows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from torch import Tensor

from gpt_cli.checkpoints.header import (
    FORMAT,
    FORMAT_VERSION,
    METADATA,
    OPTIMIZER_PREFIX,
    Header,
    Progress,
    require_few_tensors,
)
from gpt_cli.checkpoints.verified import BLANK, OTHER, Verified, digest, read_verified
from gpt_cli.config import Config
from gpt_cli.config.reading import validate
from gpt_cli.errors import CheckpointError, GptError, counted, shown, within
from gpt_cli.files import Buffer, write_durably
from gpt_cli.model import GPT
from gpt_cli.model.costs import parameters_by_part
from gpt_cli.safetensors_header import header_bytes
from gpt_cli.strict_json import strict_json
from gpt_cli.text.tokenizer import Tokenizer, tokenizer_from_dict
from gpt_cli.version import __version__


@dataclass(frozen=True)
class Checkpoint:
    """All that a file contains; `moments` is empty in a file for sampling alone."""

    config: Config
    tokenizer: Tokenizer
    progress: Progress
    weights: Mapping[str, Tensor]
    moments: Mapping[str, Tensor]

    where: str = "checkpoint"  # the file it was read from, as errors name it

    def build_model(self) -> GPT:
        """The model with these weights, on the CPU, in evaluation mode; raises CheckpointError on a misfit."""
        sizes, vocab_size = self.config.model, self.tokenizer.vocab_size
        misfit = CheckpointError(self.where, "its weights do not fit its config")
        # tensors are counted first: a hostile config may name a model of a million blocks
        if sizes.num_blocks * sizes.num_heads > len(self.weights):
            raise misfit
        # then their numbers: a model is not built for a file that is too small for it
        if sum(parameters_by_part(sizes, vocab_size).values()) > sum(map(Tensor.numel, self.weights.values())):
            raise misfit
        with torch.device("meta"):
            model = GPT(sizes, vocab_size)
        expected = {name: (tensor.shape, torch.float32) for name, tensor in model.state_dict().items()}
        if expected != {name: (tensor.shape, tensor.dtype) for name, tensor in self.weights.items()}:
            raise misfit
        return model.take_weights(self.weights).eval()


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint durably; raises EnvironmentFailure when the system refuses."""
    weights = {name: _plain(tensor) for name, tensor in checkpoint.weights.items()}
    save_made(path, checkpoint, {name: tensor.shape for name, tensor in weights.items()}, lambda: _contents(weights))


def save_made(
    path: Path, checkpoint: Checkpoint, shapes: Mapping[str, Sequence[int]], weights: Callable[[], Iterator[Buffer]]
) -> None:
    """As `save_checkpoint`, with the weights of such shapes that `weights` makes, one at a time.

    It is called twice, for the digest and for the file, so that the whole of a large model is never in memory.
    """
    moments = {OPTIMIZER_PREFIX + name: _plain(tensor) for name, tensor in checkpoint.moments.items()}
    metadata = {
        "format": FORMAT,
        "format_version": str(FORMAT_VERSION),
        "written_by": f"gpt-cli {__version__}",
        "step": str(checkpoint.progress.step),
        "config": _canonical(checkpoint.config.model_dump(mode="json")),
        "tokenizer": _canonical(checkpoint.tokenizer.to_dict()),
        "progress": _canonical(asdict(checkpoint.progress)),
        "digest_rest": digest(_contents(moments)),
        "digest_weights": BLANK,
    }
    assert tuple(metadata) == METADATA
    shapes = {**shapes, **{name: tensor.shape for name, tensor in moments.items()}}
    metadata["digest_weights"] = digest(chain([header_bytes(shapes, metadata)], weights()))
    write_durably(path, chain([header_bytes(shapes, metadata)], weights(), _contents(moments)))


def read_checkpoint(path: Path, *, everything: bool = False) -> Checkpoint:
    """A checkpoint whose header and weights are verified; with `everything` the rest too.

    Raises CheckpointError for a file that is missing, damaged, foreign or newer, or whose numbers are not finite.
    """
    found = parse_checkpoint(read_verified(path, everything=everything))
    if everything:
        _require_finite(found.moments, found.where, "state of the optimizer")
    return found


def parse_checkpoint(read: Verified, expected: Header | None = None) -> Checkpoint:
    """The checkpoint that a verified file contains.

    Raises CheckpointError for a content that no version of gpt writes, weights that are not finite, and a model or a
    tokenizer other than `expected`, the header that was found there before.
    """
    where, metadata = read.header.where, read.header.metadata
    try:
        config = validate(strict_json(metadata["config"]), where)
        require_few_tensors(len(read.header.shapes), config.model)  # before each of them becomes one
        found = load_safetensors(read.content)
        tensors = {name: found[name] for name in read.header.shapes}  # in the order of the file
        tokenizer = tokenizer_from_dict(strict_json(metadata["tokenizer"]))
    except (SafetensorError, KeyError, TypeError, ValueError, RecursionError, GptError) as error:
        raise CheckpointError(where, f"this is not a valid checkpoint, {shown(within(error, where))}") from error
    if expected and (config.model, metadata["tokenizer"]) != (expected.config.model, expected.metadata["tokenizer"]):
        raise CheckpointError(where, "another training replaced this model while gpt read it", hint="try again")
    progress = read.header.progress
    if (step := read.header.step) != progress.step:
        wrong = f"this is not a valid checkpoint: its header names step {step}, its progress {progress.step}"
        raise CheckpointError(where, wrong)
    moments = {n.removeprefix(OPTIMIZER_PREFIX): t for n, t in tensors.items() if n.startswith(OPTIMIZER_PREFIX)}
    weights = {name: tensor for name, tensor in tensors.items() if not name.startswith(OPTIMIZER_PREFIX)}
    _require_finite(weights, where, "weights")
    return Checkpoint(config, tokenizer, progress, weights, moments, where)


def _require_finite(tensors: Mapping[str, Tensor], where: str, what: str) -> None:
    """Raises CheckpointError where a number is NaN or infinite."""
    # one pass, where isfinite() of each number takes ten times as long; NaN passes through
    floats = {name: one for name, one in tensors.items() if one.dtype == torch.float32 and one.numel()}
    wrong = {name: one for name, one in floats.items() if not all(bound.isfinite() for bound in one.aminmax())}
    if not wrong:
        return
    number = sum(tensor.numel() - int(tensor.isfinite().sum()) for tensor in wrong.values())
    first, of_tensors = shown(next(iter(wrong))), counted(len(wrong), "tensor")
    sentence = f"there is NaN or infinity in its {what}: {counted(number, 'number')} of {of_tensors}, as in {first}"
    raise CheckpointError(where, sentence, hint=OTHER)


def _plain(tensor: Tensor) -> Tensor:
    assert tensor.dtype == torch.float32, "weights and moments are float32"
    return tensor.detach().cpu().contiguous()


def _contents(tensors: Mapping[str, Tensor]) -> Iterator[memoryview]:
    return (tensor.numpy().reshape(-1).view("uint8").data for tensor in tensors.values())


def _canonical(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)
