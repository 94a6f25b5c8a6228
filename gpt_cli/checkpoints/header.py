"""Read the header of a checkpoint: format, config, progress and shapes, from the first bytes and without torch."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from gpt_cli.checkpoints.run_paths import RunFiles
from gpt_cli.common import __version__
from gpt_cli.common.file_signatures import FORMAT
from gpt_cli.common.limits import CHECKPOINT_HEADER_BYTES, FIGURE, SECONDS, STEPS, TRAINING_TOKENS
from gpt_cli.common.safetensors_header import MALFORMED, TensorEntry, parse_header, read_header_bytes
from gpt_cli.common.strict_json import strict_json
from gpt_cli.common.untrusted_files import reading
from gpt_cli.config import Config
from gpt_cli.config.load import validate, without_retired
from gpt_cli.errors import CheckpointError, GptError, shown, visible

if TYPE_CHECKING:
    from gpt_cli.text.tokenizers import Tokenizer

FORMAT_VERSION = 2
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
_PROGRESS_CHARACTERS = 2**16  # ours has a few hundred
_PICKLES = (b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")


@dataclass(frozen=True)
class Header:
    """The header of a checkpoint file, read without the weights.

    The header is not verified, because the file's digest covers the header together with the weights.
    """

    path: Path
    content: bytes  # the header, after the 8 bytes that state its length
    metadata: Mapping[str, str]
    tensors: Mapping[str, TensorEntry]  # optimizer moments included
    step: int

    @property
    def where(self) -> str:
        """The path of the file as error messages show it."""
        return shown(self.path)

    @property
    def run(self) -> RunFiles:
        """The paths of the run two directories above the file; `run.exists()` tells whether a run is there."""
        return RunFiles(self.path.parent.parent)

    @cached_property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of each weight, in the order of the header, without the optimizer's moments."""
        return {name: one.shape for name, one in self.tensors.items() if not name.startswith(OPTIMIZER_PREFIX)}

    @cached_property
    def config(self) -> Config:
        """The config of the model; raises CheckpointError if it is not valid or does not fit the tensors."""
        try:
            config = validate(without_retired(strict_json(self.metadata["config"]), whole=True), self.where)
        except (ValueError, RecursionError, GptError) as error:
            raise self._not_valid(error) from error
        number, num_blocks, num_heads = len(self.tensors), config.model.num_blocks, config.model.num_heads
        # a stranger's config may name a million heads, for which nothing should be allocated
        if num_blocks * num_heads > number:
            raise CheckpointError(self.where, "its weights do not fit its config")
        # the largest block has 10 weights, and 6 for each head; each has two moments, or low-rank factors with moments
        if number > 4 * (40 + num_blocks * (40 + 8 * num_heads)):
            raise self._not_valid(f"it has {number:,} tensors, far more than its config asks for")
        return config

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model; raises CheckpointError if it is not valid."""
        from gpt_cli.text.train_tokenizer import tokenizer_from_dict  # which loads numpy

        try:
            return tokenizer_from_dict(strict_json(self.metadata["tokenizer"]))
        except (TypeError, ValueError, RecursionError, GptError) as error:
            raise self._not_valid(error) from error

    def _not_valid(self, error: object) -> CheckpointError:
        problem = str(error).removeprefix(f"{self.where}: ")
        return CheckpointError(self.where, f"this is not a valid checkpoint, {shown(problem)}")

    @cached_property
    def progress(self) -> Progress:
        """The progress of the training; raises CheckpointError if it is not valid."""
        text = self.metadata["progress"]
        try:
            if len(text) > _PROGRESS_CHARACTERS:  # a stranger's text may have more errors than fit in memory
                strict_json(text)
            progress = _reader().validate_json(text, strict=True)  # its errors name the key
            strict_json(text)  # which also refuses repeated keys
            return progress
        except ValidationError as error:
            key = ".".join(map(str, error.errors()[0]["loc"]))
            wrong = f"its progress is not valid: the wrong key is {shown(key)}" if key else "its progress is not valid"
            raise CheckpointError(self.where, wrong) from error
        except (ValueError, RecursionError) as error:
            raise CheckpointError(self.where, "its progress is not valid") from error


def read_header(path: Path) -> Header:
    """Return the header of a checkpoint file, and read nothing else.

    Raises CheckpointError for a file that is missing, not of gpt, of a newer format, or not as long as its header says.
    """
    with reading(path, CheckpointError) as file:
        return header_of(file, path)


def header_of(file: BinaryIO, path: Path) -> Header:
    """Return the header of the open checkpoint `file` at `path`; raise the errors of `read_header` for a bad file."""
    where = shown(path)
    length, content = read_header_bytes(file, CHECKPOINT_HEADER_BYTES)
    if content[:2] in _PICKLES and content[8:9] != b"{":  # else these bytes are the length of a header
        sentence = "this is a PyTorch pickle, which gpt never loads because a pickle can run code"
        raise CheckpointError(where, sentence)
    if content[:4] == b"GGUF":
        hint = f"gpt import {shlex.quote(visible(path))}"
        raise CheckpointError(where, "this is a GGUF file, not a checkpoint of gpt", hint=hint)
    foreign = CheckpointError(where, "this is not a checkpoint of gpt", hint="gpt train writes checkpoints")
    if len(content) < 8 or length > CHECKPOINT_HEADER_BYTES:
        raise foreign
    if len(content) < 8 + length:
        raise CheckpointError(where, f"the file is truncated: it ends inside its header, after {len(content):,} bytes")
    try:
        metadata, tensors = parse_header(content)
        if metadata["format"] != FORMAT:
            raise foreign
        version, step = int(metadata["format_version"]), int(metadata["step"])
        digests = [bytes.fromhex(metadata[name]) for name in ("digest_weights", "digest_rest")]
        # a number has one byte at least
        fit = all(len(one.shape) <= _MOST_DIMENSIONS and math.prod(one.shape) <= one.stop for one in tensors.values())
        if not fit or {*map(type, metadata.values())} != {str} or {*map(len, digests)} != {32}:
            raise foreign
    except MALFORMED:
        raise foreign from None
    if version > FORMAT_VERSION:
        writer = shown(metadata.get("written_by"))
        sentence = (
            f"{writer} wrote this file in format {version}, but gpt {__version__} reads formats 1 to {FORMAT_VERSION}"
        )
        raise CheckpointError(where, sentence, hint="in the clone of gpt: git pull, then pip install -e .")
    if version < 1 or not 0 <= step <= STEPS or set(metadata) != set(METADATA):
        raise foreign
    num_bytes = os.fstat(file.fileno()).st_size
    expected = len(content) + max((one.stop for one in tensors.values()), default=0)
    if num_bytes < expected:
        raise CheckpointError(where, f"the file is truncated: it has {num_bytes:,} of {expected:,} bytes")
    if num_bytes > expected:
        extra = f"the file is damaged: it has {num_bytes:,} bytes, but its header describes {expected:,}"
        raise CheckpointError(where, extra)
    # the first versions called imported tokenizers kept; headers of one tokenizer are equal
    metadata["tokenizer"] = metadata["tokenizer"].replace('"kind":"kept"', '"kind":"imported"')
    return Header(path, content, metadata, tensors, step)


Step = Annotated[int, Field(ge=0, le=STEPS)]
Seconds = Annotated[float, Field(ge=0, le=SECONDS)]
Figure = Annotated[float, Field(ge=-FIGURE, le=FIGURE)]


@dataclass(frozen=True)
class Progress:
    """The progress of a training: steps, losses, times, and other state that does not follow from seed and step."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    step: Step
    observed_step: Step  # the last step whose evaluation, log line and sample are done: `step` or the one before
    loss: Figure | None  # of the last step, in nats per token; None before the first
    gradient_norm: Figure | None
    seconds: Seconds  # of training steps
    best_loss: Figure | None  # nats per token on the evaluation's windows
    evaluations_without_best: Step
    num_training_tokens: Annotated[int, Field(ge=0, le=TRAINING_TOKENS)]  # of the corpus
    data_digest: str  # of training and validation ids, as `text.encode.digest_of` gives it
    environment: Mapping[str, str]  # what bit-exactness depends on: torch, processor, threads, ...
    learning_rate: Figure | None = None  # of the last step
    elapsed: Seconds = 0.0  # evaluations, samples and saves included
    evaluated_step: Step = 0  # the last step that was evaluated
    smoothed_loss: Figure | None = None  # the mean of the losses so far that `gpt train` shows
    began_from: str | None = None  # the name of the model whose weights step 0 had; None for random ones
    teachers: tuple[Step, ...] = ()  # the last step of each model before the current one
    model_elapsed: Seconds = 0.0  # `elapsed` when the current model began

    @classmethod
    def at_the_start(
        cls, num_training_tokens: int, data_digest: str, environment: Mapping[str, str], began_from: str | None = None
    ) -> Progress:
        """Return the progress at step 0; `began_from` names the model that gave the weights (None: random weights).

        `data_digest` is the sha256 of all token ids; `environment` lists what exact results depend on (processor...).
        """
        return cls(
            step=0,
            observed_step=0,
            loss=None,
            gradient_norm=None,
            seconds=0.0,
            best_loss=None,
            evaluations_without_best=0,
            num_training_tokens=num_training_tokens,
            data_digest=data_digest,
            environment=environment,
            began_from=began_from,
        )

    @property
    def imported(self) -> bool:
        """Whether the weights were imported from another program; only then is num_training_tokens 0."""
        return self.num_training_tokens == 0

    @property
    def model_step(self) -> int:
        """The last step of the previous model, if a run trains several in turn; 0 if the current model is the first."""
        return self.teachers[-1] if self.teachers else 0

    @property
    def observed(self) -> bool:
        """Whether the evaluation, log line and sample of the last step are done."""
        return self.observed_step == self.step


@cache
def _reader() -> TypeAdapter[Progress]:
    # cached, because building this adapter takes longer than reading many files
    return TypeAdapter(Progress)
