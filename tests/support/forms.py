"""A form of attention that no part of the package knows: multi-head attention whose scores depend on distance."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from gpt_cli.config import ModelConfig
from gpt_cli.model import MultiHeadAttention
from gpt_cli.model.attention import SelfAttention
from gpt_cli.model.forms import make_attention
from gpt_cli.sampling.kv_cache import CACHES, KeyValueCache

BY_DISTANCE = "unheard_of"


class ByDistance(MultiHeadAttention):
    """Head j adds -distance / 2^j to its scores. Press et al. 2022, section 3."""

    def distance_bias(self, num_queries: int, num_keys: int, heads: Sequence[int], like: Tensor) -> Tensor:
        places = torch.arange(num_keys, dtype=like.dtype)
        distances = places[-num_queries:, None] - places
        return torch.stack([-distances / 2**head for head in heads])


def make(config: ModelConfig) -> SelfAttention:
    if config.attention == BY_DISTANCE:
        return ByDistance(config.d_model, config.num_heads, config.dropout)
    return make_attention(config)


def register(monkeypatch: pytest.MonkeyPatch, *, cached: bool) -> None:
    """Let configs name the form and models have it; with `cached`, decoders too."""
    monkeypatch.setattr("gpt_cli.model.block.make_attention", make)
    if cached:
        monkeypatch.setitem(CACHES, ByDistance, KeyValueCache)  # type: ignore[arg-type]
