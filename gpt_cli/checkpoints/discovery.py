"""Loads the model of the checkpoint that a user means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpt_cli.checkpoints.checkpoint import parse_checkpoint
from gpt_cli.checkpoints.find import first_usable
from gpt_cli.checkpoints.header import Header
from gpt_cli.checkpoints.verified import ReadVerified, read_verified
from gpt_cli.config import Config
from gpt_cli.model import GPT
from gpt_cli.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Loaded:
    """A trained model with all that is needed to use it."""

    model: GPT
    tokenizer: Tokenizer
    config: Config
    step: int
    path: Path
    data_digest: str  # of the training and validation ids, as `text.tokens.data_digest` gives it


def load(
    path: str | Path | None = None,
    checkpoint: str | None = None,
    warn: Callable[[str], object] | None = None,
    read: ReadVerified = read_verified,
    found: Header | None = None,
) -> Loaded:
    """The model of a run directory or file, on the CPU; `find.first_usable` says which, and what `warn` receives.

    `read` may have read ahead; `found` is the header by which the caller has checked what it asks for, so that another
    model is refused. Raises CheckpointError.
    """

    def use(file: Path) -> Loaded:
        stored = parse_checkpoint(read(file), found)
        progress = stored.progress
        return Loaded(stored.build_model(), stored.tokenizer, stored.config, progress.step, file, progress.data_digest)

    return first_usable(path, checkpoint, use, warn, found)
