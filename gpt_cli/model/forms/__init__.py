"""The forms of attention that a config can choose, and parts that the default model does not use."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpt_cli.config import ModelConfig
from gpt_cli.config.model import unknown_form
from gpt_cli.model.attention import MultiHeadAttention, SelfAttention
from gpt_cli.model.forms.grouped_query import GroupedQueryAttention
from gpt_cli.model.forms.latent import LatentAttention, LatentSizes


def make_attention(config: ModelConfig) -> SelfAttention:
    """The form of attention that a config names: [B, T, D] -> [B, T, D]."""
    if config.attention not in FORMS:
        raise unknown_form("the model", config.attention)
    return FORMS[config.attention](config)


def _multi_head(config: ModelConfig) -> SelfAttention:
    D, H, scaled = config.d_model, config.num_heads, config.scale == "head"
    return MultiHeadAttention(D, H, config.dropout, bias=config.bias, qkv_bias=config.qkv_bias, scaled=scaled)


def _grouped_query(config: ModelConfig) -> SelfAttention:
    D, H, G, scaled = config.d_model, config.num_heads, config.key_value_heads, config.scale == "head"
    return GroupedQueryAttention(D, H, G, config.dropout, bias=config.bias, qkv_bias=config.qkv_bias, scaled=scaled)


def _latent(config: ModelConfig) -> SelfAttention:
    sizes = LatentSizes(config.key_value_latent, config.query_latent_size, config.turned_size)
    scaled = config.scale == "head"
    return LatentAttention(config.d_model, config.num_heads, sizes, config.dropout, bias=config.bias, scaled=scaled)


FORMS: Mapping[str, Callable[[ModelConfig], SelfAttention]] = {
    "multi_head": _multi_head,
    "grouped_query": _grouped_query,
    "latent": _latent,
}
