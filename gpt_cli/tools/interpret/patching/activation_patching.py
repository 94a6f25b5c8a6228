"""What patches change: the metric of a corrupt prompt with activations of a clean one, exactly and as an estimate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from gpt_cli.common.machine.devices import float64_device as exact_on
from gpt_cli.evaluation.nll import LOGITS_AT_ONCE
from gpt_cli.model import GPT, Block
from gpt_cli.tools.interpret.interventions import Recorded, finish, head_change, mix, record
from gpt_cli.tools.interpret.patching.request import FEED_FORWARD, LOGITS, Edge

Unit = tuple[str, int | None]  # a part of a layer, and of heads which
INPUTS = ("all", "queries", "keys", "values")  # what a head reads an edge by


class Task(NamedTuple):
    """A clean and a corrupt prompt of T tokens each that differ from `first` on, and what is measured after both."""

    clean: Tensor  # ids [T]
    corrupt: Tensor
    first: int
    answer: int
    against: int | None


def metric(model: GPT, x: Tensor, task: Task) -> Tensor:
    """The logit of the answer minus that of the other, or its log probability: streams [N, D] -> float64 [N]."""
    if task.against is not None:
        # in float64, where the order of a sum does not show: a whole clean stream gives the clean metric
        seen, weights = (
            each.to(exact_on(x.device)).double()
            for each in (model.final_norm(x), model.output_weight[[task.answer, task.against]])
        )
        return (seen * (weights[0] - weights[1])).sum(-1)
    parts = x.split(max(1, LOGITS_AT_ONCE // model.vocab_size))
    return torch.cat([model.logits(some).log_softmax(dim=-1)[:, task.answer].double() for some in parts])


def units(parts: Sequence[str], heads: Sequence[int]) -> list[Unit]:
    """What is patched in each layer."""
    return [(part, head) for part in parts for head in (heads if part == "head" else [None])]


@torch.no_grad()
def exact(
    model: GPT,
    clean: Recorded,
    corrupt: Recorded,
    task: Task,
    layers: Sequence[int],
    chosen: Sequence[Unit],
    places: Sequence[int | None],
    count: Callable[[int], object] = lambda _: None,
) -> Tensor:
    """The metric minus that of the corrupt run, with each unit of each layer at each place: [layers, units, places].

    Meng et al. 2022; Heimersheim and Nanda 2024. A place is a position, or None for all positions together. Positions
    before the first difference, and all but the last one in the last layer, change nothing. `count` hears of places.
    """
    T, top, first = len(task.clean), len(model.blocks) - 1, task.first
    base = metric(model, corrupt.left[-1][-1:], task)
    # a block after its attention treats each position by itself, so all positions are patched at once
    new = {layer: _patched(model.blocks[layer], clean, corrupt, layer, chosen, first) for layer in layers}
    found = base.new_zeros(len(layers), len(chosen), len(places))
    for column, place in enumerate(places):
        count(1)
        if place is None:
            start, changed = first, new
        elif place < first:
            continue
        else:
            start, changed = place, dict[int, Tensor]()
            for layer, of_layer in new.items():
                if layer < top or place == T - 1:
                    changed[layer] = corrupt.left[layer][place:].repeat(len(chosen), 1, 1)
                    changed[layer][:, 0] = of_layer[:, place - first]
        if changed:
            differences = metric(model, finish(model, corrupt, start, changed), task) - base
            found[: len(changed), :, column] = differences.view(len(changed), len(chosen))
    return found


def _patched(
    block: Block, clean: Recorded, corrupt: Recorded, layer: int, chosen: Sequence[Unit], first: int
) -> Tensor:
    """The stream after a block at the positions from `first` on, each with its own patch: [units, T - first, D]."""
    entered, attended, own, left, fed = (
        found[layer][first:] for found in (corrupt.entered, corrupt.attended, clean.attended, clean.left, clean.fed)
    )
    change = (clean.heads[layer] - corrupt.heads[layer])[:, first:]
    found = []
    for part, head in chosen:
        if part == "residual":
            found.append(left)
        elif part == "feed_forward":
            found.append(block.after_feed_forward(block.feed_forward_input(entered, attended)[0], fed))
        else:
            new = own if head is None else attended + head_change(block, head, change[head])
            found.append(block.after_attention(entered, new))
    return torch.stack(found)


def estimated(
    model: GPT, clean: Recorded, task: Task, layers: Sequence[int], chosen: Sequence[Unit], places: Sequence[int | None]
) -> Tensor:
    """The same to first order, (clean - corrupt) · gradient, by one backward pass of the corrupt run.

    Nanda 2023, "Attribution patching"; Syed et al. 2023.
    """
    with torch.enable_grad():
        corrupt = record(model, task.corrupt)
        kinds = _by_part(corrupt)
        wanted = [tensor for kind in kinds.values() for tensor in kind]
        gradients = iter(torch.autograd.grad(metric(model, corrupt.left[-1][-1:], task).sum(), wanted))
    products = {
        part: [
            ((new - own.detach()) * next(gradients)).double().sum(-1)
            for new, own in zip(news, kinds[part], strict=True)
        ]
        for part, news in _by_part(clean).items()
    }

    def product(layer: int, part: str, head: int | None) -> Tensor:
        return products[part][layer] if head is None else products[part][layer][head]

    by_position = torch.stack([torch.stack([product(layer, *unit) for unit in chosen]) for layer in layers])
    at = [by_position.sum(-1) if place is None else by_position[:, :, place] for place in places]
    return torch.stack(at, dim=-1)


def _by_part(found: Recorded) -> dict[str, list[Tensor]]:
    """What each part of a block made, by layer."""
    return {"residual": found.left, "attention": found.attended, "feed_forward": found.fed, "head": found.heads}


@torch.no_grad()
def along(
    model: GPT, clean: Recorded, corrupt: Recorded, task: Task, edge: Edge, places: Sequence[int | None]
) -> Tensor:
    """The metric minus that of the corrupt run, with one edge patched: [inputs, places]; a place is of the sender.

    What the receiver reads has the sender's clean output; all that lies between keeps the outputs of the corrupt run.
    A head reads by all of INPUTS, or by one alone. Goldowsky-Dill et al. 2023.
    """
    base = metric(model, corrupt.left[-1][-1:], task)
    block = model.blocks[edge.layer]
    change = (clean.heads[edge.layer] - corrupt.heads[edge.layer])[edge.head].expand(len(places), -1, -1).clone()
    for row, place in enumerate(places):
        if place is not None:
            change[row, :place] = change[row, place + 1 :] = 0
    attended = corrupt.attended[edge.layer] + head_change(block, edge.head, change)
    x = corrupt.entered[edge.layer].expand_as(attended)
    for layer in range(edge.layer, edge.to_layer):
        x, _ = model.blocks[layer].feed_forward_input(x, attended)
        x = model.blocks[layer].after_feed_forward(x, corrupt.fed[layer])
        if layer + 1 < len(model.blocks):
            attended = corrupt.attended[layer + 1]
    if edge.to == LOGITS:
        return (metric(model, x[:, -1], task) - base)[None]
    block, entered = model.blocks[edge.to_layer], corrupt.entered[edge.to_layer]
    if edge.to == FEED_FORWARD:
        _, seen = block.feed_forward_input(x, attended)
        stream, _ = block.feed_forward_input(entered, corrupt.attended[edge.to_layer])
        changed = block.after_feed_forward(stream, block.feed_forward(seen))
        inputs = 1
    else:
        changed = _read_by_head(block, int(edge.to), x, corrupt, edge.to_layer)
        inputs = len(INPUTS)
    last = finish(model, corrupt, 0, {edge.to_layer: changed})
    return (metric(model, last, task) - base).view(inputs, len(places))


def _read_by_head(block: Block, head: int, x: Tensor, corrupt: Recorded, layer: int) -> Tensor:
    """The streams after a block of which one head reads x [n, T, D], by all INPUTS and by each: [4 n, T, D]."""
    attention, rotation, entered = block.attention, corrupt.rotation, corrupt.entered[layer]
    own = attention.project(block.attention_input(x), rotation, [head])
    usual = attention.project(block.attention_input(entered[None]), rotation, [head])
    found = []
    for read in INPUTS:
        mixed = mix(
            attention,
            *(
                new if read in ("all", name) else old.expand_as(new)
                for name, new, old in zip(INPUTS[1:], own, usual, strict=True)
            ),
            heads=range(head, head + 1),
        )
        found.append(mixed[:, 0] - corrupt.heads[layer][head])
    attended = corrupt.attended[layer] + head_change(block, head, torch.cat(found))
    return block.after_attention(entered.expand_as(attended), attended)
