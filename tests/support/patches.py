"""Patches as hooks of plain PyTorch write them, one at a time: the readable twin of `gpt patch`."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from gpt_cli.model import GPT

Change = Callable[[Tensor], Tensor]


def _site(model: GPT, part: str, layer: int) -> tuple[Any, bool]:
    """The module of a part, and whether its input is meant: that of the projection layer has the heads."""
    block = model.blocks[layer]
    sites = {"residual": block, "attention": block.attention, "feed_forward": block.feed_forward}
    return (block.attention.projection_layer, True) if part == "head" else (sites[part], False)


@contextlib.contextmanager
def hooked(model: GPT, part: str, layer: int, change: Change) -> Iterator[None]:
    """What a part of a layer gives, [1, T, ...], goes through a function while this is open."""
    module, is_input = _site(model, part, layer)
    if is_input:
        hook = module.register_forward_pre_hook(lambda _, given: (change(given[0]),))
    else:
        hook = module.register_forward_hook(lambda _, __, made: change(made))
    try:
        yield
    finally:
        hook.remove()


def kept(model: GPT, ids: Tensor, part: str, layer: int) -> Tensor:
    """What a part of a layer gives on ids [T]: [T, ...]."""
    found = list[Tensor]()
    with torch.no_grad(), hooked(model, part, layer, lambda made: found.append(made) or made):
        model(ids[None])
    return found[0][0]


def measured(logits: Tensor, answer: int, against: int | None) -> Tensor:
    """The metric of logits [1, T, V]."""
    last = logits[0, -1]
    return last.log_softmax(-1)[answer] if against is None else last[answer] - last[against]


@torch.no_grad()
def patched(model: GPT, task: Any, own: Tensor, part: str, layer: int, head: int | None, place: int | None) -> float:
    """The metric of the corrupt prompt with one activation of a part replaced by that of the clean prompt.

    `own` has all clean activations of the part.
    """

    def change(made: Tensor) -> Tensor:
        made = made.clone()
        rows = slice(None) if place is None else slice(place, place + 1)
        width = made.shape[-1] // model.config.num_heads
        columns = slice(None) if head is None else slice(head * width, (head + 1) * width)
        made[:, rows, columns] = own[rows, columns]
        return made

    with hooked(model, part, layer, change):
        return measured(model(task.corrupt[None]), task.answer, task.against).item()
