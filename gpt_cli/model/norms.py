"""Normalisation layers: for the residual stream, and for the queries and keys of a head."""

from __future__ import annotations

from torch import Tensor, nn

from gpt_cli.config import ModelConfig


def make_norm(config: ModelConfig) -> nn.LayerNorm | nn.RMSNorm:
    """Make the norm that a config names, LayerNorm or RMSNorm: [B, T, D] -> [B, T, D]."""
    if config.norm == "rmsnorm":
        return nn.RMSNorm(config.d_model, eps=config.epsilon)
    return nn.LayerNorm(config.d_model, eps=config.epsilon, bias=config.bias)


class HeadNorm(nn.RMSNorm):
    """RMSNorm of the queries or keys of each head: [..., K] -> [..., K], computed in the dtype of the norm's weight.

    Henry et al. 2020 normalise queries and keys so that scores stay bounded; this form is Qwen3's (Yang et al. 2025).
    """

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.to(self.weight.dtype)).to(x.dtype)
