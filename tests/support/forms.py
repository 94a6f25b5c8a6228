"""A form of attention that no part of the package knows."""

import pytest

from gpt_cli.config import ModelConfig
from gpt_cli.model import MultiHeadAttention
from gpt_cli.model.attention import SelfAttention
from gpt_cli.model.block import make_attention

UNHEARD_OF = "unheard_of"


class UnheardOf(MultiHeadAttention):
    """A form derived from a known one, which may compute something else."""


def make(config: ModelConfig) -> SelfAttention:
    if config.attention == UNHEARD_OF:
        return UnheardOf(config.d_model, config.num_heads, config.dropout)
    return make_attention(config)


def register(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let configs name the form and models have it."""
    monkeypatch.setattr("gpt_cli.model.block.make_attention", make)
