"""Weights rounded to 8-bit integers: a quarter of float32's memory to read, at the price of a small error."""

import torch
from torch import Tensor, nn

from gpt_cli.model import GPT

LEVELS = 127
_ROWS = 4096  # rounded at once: temporary copies of a large embedding would take many times its memory


def to_int8(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Round a weight to integers -127..127 with a scale for each row: [out, in] -> int8 [out, in], bfloat16 [out].

    A scale is the largest absolute entry of its row / 127, rounded to bfloat16. Each entry is off by at most half a
    scale, apart from the rounding of the scale.
    """
    parts = [_part_to_int8(float32_weight(rows)) for rows in weight.split(_ROWS)]
    return torch.cat([numbers for numbers, _ in parts]), torch.cat([scales for _, scales in parts])


def _part_to_int8(weight: Tensor) -> tuple[Tensor, Tensor]:
    scales = (weight.abs().amax(dim=1) / LEVELS).clamp(min=1e-30).to(torch.bfloat16)
    return (weight / scales.to(weight.dtype)[:, None]).round().clamp(-LEVELS, LEVELS).to(torch.int8), scales


def float32_weight(weight: Tensor) -> Tensor:
    """Return a 16-bit weight converted to float32, without loss; return any other weight unchanged."""
    return weight if weight.dtype.itemsize > 2 else weight.float()


def rounded(weight: Tensor) -> Tensor:
    """Return a weight [out, in] rounded to the values that `to_int8` stores, in the dtype of the weight."""
    numbers, scales = to_int8(weight)
    return numbers * scales.to(weight.dtype)[:, None]


@torch.no_grad()
def round_weights(model: GPT) -> GPT:
    """Round in place the weights that int8 decoding rounds, to measure the effect on the loss; return the model.

    int8 decoding rounds the weights of all linear layers, and the token embedding only if it is the output layer too.
    """
    for weight in _weights_to_round(model):
        weight.copy_(rounded(weight))
    return model


def rounding_bytes(model: GPT) -> int:
    """Estimate the bytes that `round_weights` needs in addition to the model: two copies of the largest matrix."""
    return 2 * max(weight.nbytes for weight in _weights_to_round(model))


def _weights_to_round(model: GPT) -> list[Tensor]:
    layers = [module.weight for module in model.modules() if isinstance(module, nn.Linear)]
    return [*layers, *([model.token_embedding.weight] if model.output_layer is None else [])]
