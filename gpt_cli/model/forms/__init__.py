"""The forms of attention that a config can choose, and parts that the default model does not use."""

from __future__ import annotations

from typing import Any

from gpt_cli.config import ModelConfig
from gpt_cli.config.model import unknown_form
from gpt_cli.model.attention import MultiHeadAttention, SelfAttention
from gpt_cli.model.forms.grouped_query import GroupedQueryAttention
from gpt_cli.model.forms.latent import LatentAttention, LatentSizes


def make_attention(config: ModelConfig) -> SelfAttention:
    """Make the attention module that a config names, such as grouped-query attention: [B, T, D] -> [B, T, D]."""
    D, H, dropout = config.d_model, config.num_heads, config.dropout
    common: dict[str, Any] = {"bias": config.bias, "scaled": config.scale == "head", "head_size": config.value_size}
    if config.attention == "latent":
        sizes = LatentSizes(config.key_value_latent, config.query_latent_size, config.turned_size)
        return LatentAttention(D, H, sizes, dropout, **common)
    common |= {"qkv_bias": config.qkv_bias, "norm_epsilon": config.epsilon if config.qk_norm else None}
    if config.attention == "multi_head":
        return MultiHeadAttention(D, H, dropout, **common)
    if config.attention == "grouped_query":
        return GroupedQueryAttention(D, H, config.key_value_heads, dropout, **common)
    raise unknown_form("the model", config.attention)
