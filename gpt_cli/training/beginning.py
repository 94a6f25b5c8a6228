"""Puts the weights of `--init-from` in the place of random ones."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path

import torch
from torch import Tensor

from gpt_cli.callbacks import Notify
from gpt_cli.checkpoints.checkpoint import read_checkpoint
from gpt_cli.checkpoints.run_files import run_of_checkpoint
from gpt_cli.errors import CheckpointError
from gpt_cli.model import GPT
from gpt_cli.text.tokenizer import Tokenizer
from gpt_cli.training.initial import FLAG, Given, Initial

# the parameters that belong to a vocabulary
_OF_TOKENS = ("token_embedding.", "output_layer.", "ngram_embedding.")
_POSITIONS = "position_embedding.weight"


def given_by(initial: Initial) -> Given:
    """The tokenizer and the weights to begin with; raises CheckpointError for a damaged checkpoint.

    Its hint names an intact one of the same run, where there is one.
    """
    if initial.given is not None:
        return initial.given
    assert initial.header is not None
    path = initial.header.path
    try:
        stored = read_checkpoint(path)
    except CheckpointError as error:
        if (other := _intact_beside(path)) is not None:
            error.hint = f"this checkpoint of the run is intact: {FLAG} {shlex.quote(str(other))}"
        raise
    weights = stored.build_model().state_dict()
    return Given(stored.tokenizer, lambda name: weights[name].numpy())


def _intact_beside(damaged: Path) -> Path | None:
    """The newest intact checkpoint of the run that a damaged one belongs to, the best after all others."""
    if (run := run_of_checkpoint(damaged)) is None:
        return None
    names = [path.name for path in (*reversed(run.steps().values()), run.best)]
    for file in (damaged.parent / name for name in names if name != damaged.name):
        with contextlib.suppress(CheckpointError):
            read_checkpoint(file)
            return file
    return None


@torch.no_grad()
def begin_with(model: GPT, given: Given, tokenizer: Tokenizer, notice: Notify) -> None:
    """Copy the weights into a model of the same sizes, but for embeddings of another tokenizer.

    Of learned positions a shorter context takes the first.
    """
    same_tokens = tokenizer.digest == given.tokenizer.digest
    for name, parameter in model.state_dict().items():
        if name.startswith(_OF_TOKENS) and not same_tokens:
            continue
        weight: Tensor = torch.from_numpy(given.weight(name))
        if name == _POSITIONS and len(weight) > len(parameter):
            notice(f"the first {len(parameter)} of {len(weight)} positions are used, as model.context_length says")
            weight = weight[: len(parameter)]
        parameter.copy_(weight)
    if not same_tokens:
        notice(f"new embeddings: they begin at random, for {tokenizer.vocab_size:,} tokens of kind {tokenizer.kind}")
