"""Weights as whole numbers of 8 bits: a quarter of the memory to read, at the price of a small error."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gpt_cli.model import GPT

LEVELS = 127
_ROWS = 4096  # that are rounded at once: the steps of a large embedding would take many times its memory


def to_int8(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Round to whole numbers from -127 to 127 with a scale for each row: [out, in] -> int8 [out, in], bfloat16 [out].

    A scale is the largest absolute entry of its row / 127, rounded to bfloat16. The error of an entry is at most half a
    scale, apart from that rounding.
    """
    parts = [_part_to_int8(float32_weight(rows)) for rows in weight.split(_ROWS)]
    return torch.cat([numbers for numbers, _ in parts]), torch.cat([scales for _, scales in parts])


def _part_to_int8(weight: Tensor) -> tuple[Tensor, Tensor]:
    scales = (weight.abs().amax(dim=1) / LEVELS).clamp(min=1e-30).to(torch.bfloat16)
    rounded = (weight / scales.to(weight.dtype)[:, None]).round().clamp(-LEVELS, LEVELS)
    return rounded.to(torch.int8), scales


def float32_weight(weight: Tensor) -> Tensor:
    """Return a weight of 16 bits converted to float32, without loss; return other weights as they are."""
    return weight if weight.dtype.itemsize > 2 else weight.float()


@torch.no_grad()
def round_weights(model: GPT) -> GPT:
    """Round in place the weights that decoding with int8 rounds, to measure what that does to the loss.

    These are the weights of all products; embeddings stay, unless the output layer shares them.
    """
    for weight in _rounded(model):
        numbers, scales = to_int8(weight)
        weight.copy_(numbers * scales.to(weight.dtype)[:, None])
    return model


def rounding_bytes(model: GPT) -> int:
    """Estimate the memory that `round_weights` takes beside the model: two copies of the largest matrix."""
    return 2 * max(weight.nbytes for weight in _rounded(model))


def _rounded(model: GPT) -> list[Tensor]:
    layers = [module.weight for module in model.modules() if isinstance(module, nn.Linear)]
    return [*layers, *([model.token_embedding.weight] if model.output_layer is None else [])]
