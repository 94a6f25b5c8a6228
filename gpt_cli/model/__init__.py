"""The model: attention heads, blocks and the whole GPT.

Shapes in all docstrings: B batch, T tokens, D d_model, H num_heads, K head size, V vocabulary, L num_blocks.
"""

from gpt_cli.model.attention import Attention, MultiHeadAttention
from gpt_cli.model.block import Block, FeedForward
from gpt_cli.model.forms.cross_attention import CrossAttention
from gpt_cli.model.forms.grouped_query import GroupedQueryAttention
from gpt_cli.model.forms.latent import LatentAttention
from gpt_cli.model.gpt import GPT

__all__ = [
    "GPT",
    "Attention",
    "Block",
    "CrossAttention",
    "FeedForward",
    "GroupedQueryAttention",
    "LatentAttention",
    "MultiHeadAttention",
]
