"""A transformer block, built from a config: attention and feed-forward, each with a norm and a residual connection."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from gpt_cli.config import ModelConfig
from gpt_cli.config.model import unknown_form
from gpt_cli.model.attention import MultiHeadAttention, SelfAttention
from gpt_cli.model.dropout import DropMasks, Dropout, Keep
from gpt_cli.model.forms.grouped_query import GroupedQueryAttention
from gpt_cli.model.forms.latent import LatentAttention


class FeedForward(nn.Module):
    """Feed-forward network, two linear layers and an activation, on each token by itself: [B, T, D] -> [B, T, D].

    With a gate, the network computes contract(activation(gate(x)) * expand(x)): Shazeer 2020, eq. 6.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.gate = nn.Linear(config.d_model, config.hidden_size, bias=config.bias) if config.gated else None
        self.expand = nn.Linear(config.d_model, config.hidden_size, bias=config.bias)
        self.contract = nn.Linear(config.hidden_size, config.d_model, bias=config.bias)
        plain = {"gelu": F.gelu, "gelu_tanh": gelu_tanh, "relu": F.relu, "relu2": relu_squared}
        self.activation = (plain | {"swiglu": F.silu, "geglu": F.gelu})[config.activation]

    def forward(self, x: Tensor) -> Tensor:
        if self.gate is None:
            return self.contract(self.activation(self.expand(x)))
        return self.contract(self.activation(self.gate(x)) * self.expand(x))


def gelu_tanh(x: Tensor) -> Tensor:
    """Compute GELU by the tanh approximation, as GPT-2 does, for any shape. Hendrycks and Gimpel 2016, section 2."""
    return F.gelu(x, approximate="tanh")


def relu_squared(x: Tensor) -> Tensor:
    """Compute max(x, 0)^2 for each element of a tensor of any shape. So et al. 2021 (Primer)."""
    return F.relu(x).square()


class Block(nn.Module):
    """Transformer block, [B, T, D] -> [B, T, D], with norms before each branch (pre) or after each residual sum (post).

    With `parallel_branches`, attention and feed-forward both read the block's input (Wang and Komatsuzaki 2021). The
    block's index `number` selects its attention window from the config.
    """

    def __init__(self, config: ModelConfig, number: int = 0):
        super().__init__()
        self.norm_1 = make_norm(config)
        self.attention = make_attention(config)
        self.attention.window = config.windows[number]
        self.norm_2 = make_norm(config)
        self.feed_forward = FeedForward(config)
        self.dropout = Dropout(config.dropout)
        self.pre_norm = config.norm_position == "pre"
        self.parallel = config.parallel_branches

    def attention_input(self, x: Tensor) -> Tensor:
        """Compute the input of this block's attention from the residual stream: [B, T, D] -> [B, T, D]."""
        return self.norm_1(x) if self.pre_norm else x

    def forward(
        self,
        x: Tensor,
        rotation: Tensor | None = None,
        keep: Keep | DropMasks | None = None,
        document_mask: Tensor | None = None,
    ) -> Tensor:
        """Run the block on the residual stream: [B, T, D] -> [B, T, D]. If `keep` is None, torch draws dropout masks.

        `rotation` has RoPE's cosines and sines; `document_mask` [B, T, T] is True for query and key of different texts.
        """
        if isinstance(keep, DropMasks):  # torch.compile fuses the draws with the operations that use them
            keep = self.draw_masks(keep, x, document_mask)
        weights = keep.weights if keep else None
        return self.after_attention(x, self.attention(self.attention_input(x), rotation, weights, document_mask), keep)

    def draw_masks(self, masks: DropMasks, x: Tensor, document_mask: Tensor | None) -> Keep:
        """Draw dropout masks for input x [B, T, D]; with keys on the device, a kernel may draw the weights' mask."""
        (B, T, _), attention = x.shape, self.attention
        by_kernel = document_mask is None and attention.kernel is not None and isinstance(masks.keys, Tensor)
        weights = masks if by_kernel else masks.keep("weights", (B, attention.num_heads, T, T), x.device)
        return Keep(weights, masks.keep("attention", x.shape, x.device), masks.keep("feed_forward", x.shape, x.device))

    def after_attention(self, x: Tensor, attended: Tensor, keep: Keep | None = None) -> Tensor:
        """Compute the block's output [B, T, D] from input x, attention output `attended` and dropout masks `keep`."""
        _, attention, feed_forward = keep or (None, None, None)
        x, feed_forward_input = self.feed_forward_input(x, attended, attention)
        return self.after_feed_forward(x, self.feed_forward(feed_forward_input), feed_forward)

    def feed_forward_input(self, x: Tensor, attended: Tensor, keep: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Add `attended`, after dropout (mask `keep`), to x; return the new x and the feed-forward input, [B, T, D]."""
        before, x = x, x + self.dropout(attended, keep)
        if self.pre_norm:
            return x, self.norm_2(before if self.parallel else x)
        x = self.norm_1(x)
        return x, x

    def after_feed_forward(self, x: Tensor, fed: Tensor, keep: Tensor | None = None) -> Tensor:
        """Return x plus feed-forward output `fed` after dropout (mask `keep`), [B, T, D], normalised if post-norm."""
        x = x + self.dropout(fed, keep)
        return x if self.pre_norm else self.norm_2(x)


def make_norm(config: ModelConfig) -> nn.LayerNorm | nn.RMSNorm:
    """Make the norm that a config names, LayerNorm or RMSNorm: [B, T, D] -> [B, T, D]."""
    if config.norm == "rmsnorm":
        return nn.RMSNorm(config.d_model, eps=config.epsilon)
    return nn.LayerNorm(config.d_model, eps=config.epsilon, bias=config.bias)


def make_attention(config: ModelConfig) -> SelfAttention:
    """Make the attention module that a config names, such as grouped-query attention: [B, T, D] -> [B, T, D]."""
    D, H, dropout = config.d_model, config.num_heads, config.dropout
    common: dict[str, Any] = {"bias": config.bias, "scaled": config.scale == "head", "head_size": config.value_size}
    if config.attention == "latent":
        common |= {"query_latent_size": config.query_latent_size, "rotary_size": config.rotated_size}
        return LatentAttention(D, H, config.key_value_latent, dropout, **common)
    common |= {"qkv_bias": config.qkv_bias, "norm_epsilon": config.epsilon if config.qk_norm else None}
    if config.attention == "multi_head":
        return MultiHeadAttention(D, H, dropout, **common)
    if config.attention == "grouped_query":
        return GroupedQueryAttention(D, H, config.key_value_heads, dropout, **common)
    raise unknown_form("the model", config.attention)
