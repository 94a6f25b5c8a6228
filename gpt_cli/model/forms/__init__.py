"""The forms of attention that a config can choose, and parts that the default model does not use."""

from __future__ import annotations

from gpt_cli.config import ModelConfig
from gpt_cli.config.model import unknown_form
from gpt_cli.model.attention import MultiHeadAttention, SelfAttention
from gpt_cli.model.forms.grouped_query import GroupedQueryAttention
from gpt_cli.model.forms.latent import LatentAttention, LatentSizes


def make_attention(config: ModelConfig) -> SelfAttention:
    """The form of attention that a config names: [B, T, D] -> [B, T, D]."""
    D, H, scaled = config.d_model, config.num_heads, config.scale == "head"
    if config.attention == "multi_head":
        return MultiHeadAttention(D, H, config.dropout, bias=config.bias, qkv_bias=config.qkv_bias, scaled=scaled)
    if config.attention == "grouped_query":
        groups = config.key_value_heads
        return GroupedQueryAttention(
            D, H, groups, config.dropout, bias=config.bias, qkv_bias=config.qkv_bias, scaled=scaled
        )
    if config.attention == "latent":
        sizes = LatentSizes(config.key_value_latent, config.query_latent_size, config.turned_size)
        return LatentAttention(D, H, sizes, config.dropout, bias=config.bias, scaled=scaled)
    raise unknown_form("the model", config.attention)
