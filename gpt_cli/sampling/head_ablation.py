"""Switch off attention heads of a model, named by `--without` of `gpt sample` and `gpt eval`. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpt_cli.common.mistyped import full_width, half_width
from gpt_cli.errors import UsageError, shown

if TYPE_CHECKING:
    from gpt_cli.config import ModelConfig
    from gpt_cli.model import GPT


def parse_heads(text: str, sizes: ModelConfig, model: str = "this model") -> tuple[tuple[int, int], ...]:
    """Parse names of heads, `2.3,4.0` for head 3 of layer 2 and head 0 of layer 4, to sorted pairs without repeats.

    Raises UsageError for a wrong name; the message calls the model `model`.
    """
    if wrong_mark := full_width(text):
        raise UsageError("‹without›", wrong_mark, hint=f"‹without={half_width(text)}›")
    chosen: set[tuple[int, int]] = set()
    for part in text.split(","):
        layer, _, head = part.strip().partition(".")
        if not (layer.isdecimal() and head.isdecimal()) or len(part) > 20:
            wrong = f"{shown(part)} is not a head; name the heads, as in 2.3 or 2.3,4.0"
            raise UsageError("‹without›", wrong, hint="‹without=0.1,1.0›")
        if int(layer) >= sizes.num_blocks or int(head) >= sizes.num_heads:
            has = f"{model} has layers 0 to {sizes.num_blocks - 1} with heads 0 to {sizes.num_heads - 1}"
            raise UsageError("‹without›", f"{has}, so {shown(part)} is out of range")
        chosen.add((int(layer), int(head)))
    return tuple(sorted(chosen))


def head_names(heads: Sequence[tuple[int, int]]) -> list[str]:
    """Format pairs (layer, head) as names that `parse_heads` reads, such as 2.3."""
    return [f"{layer}.{head}" for layer, head in heads]


def remove_heads(model: GPT, heads: Sequence[tuple[int, int]]) -> None:
    """Zero in place the columns of projection_layer for each (layer, head) in `heads`, so that the heads add nothing.

    The bias of projection_layer stays, because it belongs to no head.
    """
    for layer, head in heads:
        weight = model.blocks[layer].attention.projection_layer.weight.detach()
        weight.unflatten(1, (model.config.num_heads, -1))[:, head] = 0
