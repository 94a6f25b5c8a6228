"""Measure how activations of a clean prompt, patched into a corrupt one, change a metric, exactly or by estimate.

A change of the residual stream reaches only later positions and higher blocks. So the keys and values of earlier
positions are those of the corrupt prompt, and in the last block only the last position has to be computed.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gpt_cli.attention_maps.activations import Activations, head_columns, walk
from gpt_cli.checkpoints.load import Loaded
from gpt_cli.common.machine.devices import float64_device, tokens_at_once
from gpt_cli.evaluation.nll import LOGITS_AT_ONCE
from gpt_cli.model import GPT, Block
from gpt_cli.model.gpt import require_finite
from gpt_cli.tools.interpret.patching.request import FEED_FORWARD, LOGITS, Edge, PatchRequest, ToPatch

INPUTS = ("all", "queries", "keys", "values")  # the inputs by which a head reads an edge
Unit = tuple[str, int | None]  # a part of a layer, and the number of a head if the part is `head`
Positions = Sequence[int | None]  # of a prompt; None: all of them together
Recorded = Sequence[Activations]  # of the blocks of a run of one prompt: [1, T, D]


class Task(NamedTuple):
    """A clean and a corrupt prompt of T tokens that first differ at `first`, and the tokens that `metric` compares."""

    clean: Tensor  # ids [T]
    corrupt: Tensor
    first: int
    answer: int
    against: int | None


class PatchMeasurement(NamedTuple):
    """The metric on the `clean` and the `corrupt` prompt of P pairs, [P] each, and how patches change it.

    `changes` are exact, `estimates` come from gradients; None if not requested. Both are [P, layers, units, positions],
    where a unit is a part or a head; or, if an edge from a head to its reader is patched, [P, inputs, positions].
    """

    clean: np.ndarray
    corrupt: np.ndarray
    changes: np.ndarray | None
    estimates: np.ndarray | None

    @property
    def gaps(self) -> np.ndarray:
        return self.clean - self.corrupt


def measure_patches(
    loaded: Loaded,
    tasks: Sequence[Task],
    target: ToPatch,
    chosen: Sequence[Unit],
    positions: Positions,
    request: PatchRequest,
    count: Callable[[int], object],
) -> PatchMeasurement:
    """Measure the metric on both prompts of each task, and its change by each patch; CheckpointError for NaN or inf.

    A patch acts at one of `positions` (None: at all). It replaces one of the `chosen` units (part, head) in one of
    `target.layers`, or `target.edge`, if set. For exact patches of units, `count` receives 1 for each position.
    """
    model, metrics, changes, estimates = loaded.model, list[list[float]](), list[np.ndarray](), list[np.ndarray]()
    for task in tasks:
        with torch.no_grad():
            clean, corrupt = record(model, task.clean), record(model, task.corrupt)
            both = torch.cat([run[-1].resid_post[:, -1] for run in (clean, corrupt)])
            metrics.append(metric(model, both, task).tolist())
        if target.edge is not None:
            changes.append(along(model, clean, corrupt, task, target.edge, positions).cpu().numpy())
        elif request.exact:
            changes.append(exact(model, clean, corrupt, task, target.layers, chosen, positions, count).cpu().numpy())
        if request.estimate:
            estimates.append(estimated(model, clean, task, target.layers, chosen, positions).cpu().numpy())
    sides = np.array(metrics).T
    arrays = [np.array(each) if each else None for each in (changes, estimates)]
    for numbers in (sides, *arrays):
        if numbers is not None:
            require_finite(torch.from_numpy(numbers), "logits", model.where)
    return PatchMeasurement(sides[0], sides[1], arrays[0], arrays[1])


def record(model: GPT, ids: Tensor) -> Recorded:
    """Run a model on ids [T] and return the activations of its blocks, with gradients if torch's grad mode is on."""
    x, rotation = model.embed(ids[None])
    if torch.is_grad_enabled():
        x = x.detach().requires_grad_()
    return list(walk(model, x, rotation))


def metric(model: GPT, x: Tensor, task: Task) -> Tensor:
    """Logit of `answer` minus that of `against`; without `against`, log-probability of `answer`: x [N, D] -> [N]."""
    if task.against is not None:
        # in float64, so that the order of sums hardly matters: a whole clean stream gives the clean metric
        seen, weights = (
            each.to(float64_device(x.device)).double()
            for each in (model.final_norm(x), model.output_weight[[task.answer, task.against]])
        )
        return (seen * (weights[0] - weights[1])).sum(-1)
    parts = x.split(max(1, LOGITS_AT_ONCE // model.vocab_size))
    of_answer = torch.cat([model.logits(some).log_softmax(dim=-1)[:, task.answer] for some in parts])
    return of_answer.to(float64_device(x.device)).double()


def units(parts: Sequence[str], heads: Sequence[int]) -> list[Unit]:
    """Return the (part, head) pairs to patch in each layer; head is None except for the part `head`."""
    return [(part, head) for part in parts for head in (heads if part == "head" else [None])]


@torch.no_grad()
def exact(
    model: GPT,
    clean: Recorded,
    corrupt: Recorded,
    task: Task,
    layers: Sequence[int],
    chosen: Sequence[Unit],
    positions: Positions,
    count: Callable[[int], object] = lambda _: None,
) -> Tensor:
    """Change of the corrupt prompt's metric by a patch of each unit (part, head): [layers, units, positions].

    Meng et al. 2022; Heimersheim and Nanda 2024. Patches at positions before the first difference, and in the last
    layer at all positions but the last, change nothing. Position None patches all at once. `count` receives 1 for
    each position.
    """
    T, top, first = len(task.clean), len(model.blocks) - 1, task.first
    base = metric(model, corrupt[-1].resid_post[:, -1], task)
    # a block after its attention treats each position by itself, so all positions are patched at once
    new = {layer: _patched(clean[layer], corrupt[layer], chosen, first) for layer in layers}
    effects = base.new_zeros(len(layers), len(chosen), len(positions))
    for column, position in enumerate(positions):
        count(1)
        if position is None:
            changed = new
        elif position < first:
            continue
        else:
            changed = dict[int, Tensor]()
            for layer, of_layer in new.items():
                if layer < top or position == T - 1:
                    changed[layer] = corrupt[layer].resid_post[:, position:].repeat(len(chosen), 1, 1)
                    changed[layer][:, 0] = of_layer[:, position - first]
        if changed:
            differences = metric(model, finish(model, corrupt, changed), task) - base
            effects[: len(changed), :, column] = differences.view(len(changed), len(chosen))
    return effects


def _patched(clean: Activations, corrupt: Activations, chosen: Sequence[Unit], first: int) -> Tensor:
    """Residual stream after a block with each unit (part, head) patched, from `first` on: [units, T - first, D]."""
    block, streams = corrupt.block, list[Tensor]()
    entered, attended, clean_attended, left, fed = (
        site[:, first:]
        for site in (corrupt.resid_pre, corrupt.attn_out, clean.attn_out, clean.resid_post, clean.mlp_out)
    )
    change = (clean.heads - corrupt.heads)[:, :, first:]
    for part, head in chosen:
        if part == "residual":
            streams.append(left)
        elif part == "feed_forward":
            streams.append(block.after_feed_forward(block.feed_forward_input(entered, attended)[0], fed))
        else:
            new = clean_attended if head is None else attended + head_change(block, head, change[:, head])
            streams.append(block.after_attention(entered, new))
    return torch.cat(streams)


def head_change(block: Block, head: int, change: Tensor) -> Tensor:
    """Change of a block's attention output that a change of one head's output causes: [..., K] -> [..., D]."""
    return change @ head_columns(block)[head].T


def finish(model: GPT, recorded: Recorded, changed: Mapping[int, Tensor]) -> Tensor:
    """Finish N forward passes after a change of a block's output; return the stream at the last position, [N, D].

    `changed` maps a layer to n changed outputs of its block at the last t positions, [n, t, D]; `recorded` has keys and
    values of earlier positions. N is the sum of n over layers; the results of the lowest layer come first.
    """
    first, last = min(changed), len(model.blocks) - 1
    running = changed[first]
    at_once = max(1, tokens_at_once(running.device, 2**11) // running.shape[1])
    for layer in range(first + 1, last + 1):
        parts = [_later(recorded[layer], some, only_last=layer == last) for some in running.split(at_once)]
        if layer in changed:
            parts.append(changed[layer][:, -1:] if layer == last else changed[layer])
        running = torch.cat(parts)
    return running[:, -1]


def _later(recorded: Activations, x: Tensor, *, only_last: bool) -> Tensor:
    """Run a block on x [n, t, D] at the last t tokens, after `recorded` ones: [n, t, D]; if `only_last`, [n, 1, D]."""
    n, start = len(x), recorded.keys.shape[2] - x.shape[1]
    made = Activations(recorded.block, x, None if recorded.rotation is None else recorded.rotation[:, start:])
    made.keys, made.values = (
        torch.cat((before[:, :, :start].expand(n, -1, -1, -1), new), dim=2)
        for before, new in ((recorded.keys, made.keys), (recorded.values, made.values))
    )
    if only_last:
        made.queries, made.resid_pre = made.queries[:, :, -1:], x[:, -1:]
    return made.resid_post


def estimated(
    model: GPT, clean: Recorded, task: Task, layers: Sequence[int], chosen: Sequence[Unit], positions: Positions
) -> Tensor:
    """Estimate the changes that `exact` measures, [layers, units, positions], as (clean - corrupt) · gradient.

    One backward pass on the corrupt prompt gives all gradients. Nanda 2023, "Attribution patching"; Syed et al. 2023.
    """
    with torch.enable_grad():
        corrupt = record(model, task.corrupt)
        kinds = _by_part(corrupt)
        wanted = [tensor for kind in kinds.values() for tensor in kind]
        gradients = iter(torch.autograd.grad(metric(model, corrupt[-1].resid_post[:, -1], task).sum(), wanted))
    products = dict[str, Tensor]()  # [L, T], of heads [L, H, T]
    for part, clean_sites in _by_part(clean).items():
        changes = (new - old.detach() for new, old in zip(clean_sites, kinds[part], strict=True))
        terms = ((change * next(gradients)).to(float64_device(task.corrupt.device)) for change in changes)
        products[part] = torch.stack([each.double().sum(-1)[0] for each in terms])
    of_units = [products[part] if head is None else products[part][:, head] for part, head in chosen]
    by_position = torch.stack(of_units, dim=1)[list(layers)]
    at = [by_position.sum(-1) if position is None else by_position[:, :, position] for position in positions]
    return torch.stack(at, dim=-1)


def _by_part(recorded: Recorded) -> dict[str, list[Tensor]]:
    """Return the recorded outputs of each part, such as attention, by its name: a list with a tensor per layer."""
    sites = {"residual": "resid_post", "attention": "attn_out", "feed_forward": "mlp_out", "head": "heads"}
    return {part: [getattr(made, site) for made in recorded] for part, site in sites.items()}


@torch.no_grad()
def along(model: GPT, clean: Recorded, corrupt: Recorded, task: Task, edge: Edge, positions: Positions) -> Tensor:
    """Change of the corrupt prompt's metric when one edge, from a head to its reader, is patched: [inputs, positions].

    The reader gets the head's clean output; all blocks between keep their outputs on the corrupt prompt. If the reader
    is a head, it has four INPUTS (all together, queries, keys, values), else one. Goldowsky-Dill et al. 2023.
    """
    base = metric(model, corrupt[-1].resid_post[:, -1], task)
    sender, between = corrupt[edge.layer], corrupt[edge.layer : edge.to_layer]
    change = (clean[edge.layer].heads - sender.heads)[:, edge.head].repeat(len(positions), 1, 1)
    for row, position in enumerate(positions):
        if position is not None:
            change[row, :position] = change[row, position + 1 :] = 0
    attended = sender.attn_out + head_change(sender.block, edge.head, change)
    x = sender.resid_pre.expand_as(attended)
    for usual, made in zip(between, walk(model, x, sender.rotation, edge.layer), strict=False):
        made.attn_out, made.mlp_out = attended if usual is sender else usual.attn_out, usual.mlp_out
        x = made.resid_post
    if edge.to == LOGITS:
        return (metric(model, x[:, -1], task) - base)[None]
    receiver = corrupt[edge.to_layer]
    if edge.to == FEED_FORWARD:
        reading, changed = (
            Activations(receiver.block, stream, receiver.rotation) for stream in (x, receiver.resid_pre)
        )
        reading.attn_out = receiver.attn_out if between else attended
        changed.attn_out, changed.mlp_out = receiver.attn_out, reading.mlp_out
    else:
        changed = _read_by_head(receiver, int(edge.to), x)
    last = finish(model, corrupt, {edge.to_layer: changed.resid_post})
    return (metric(model, last, task) - base).view(-1, len(positions))


def _read_by_head(usual: Activations, head: int, x: Tensor) -> Activations:
    """Run a block 4 n times as in `usual`, but `head` reads x [n, T, D], by all inputs, its queries, keys or values."""
    block, rotation = usual.block, usual.rotation
    new, old = (Activations(block, stream, rotation, [head]) for stream in (x, usual.resid_pre))
    changes = []
    for read in INPUTS:
        mixed = Activations(block, x, rotation, [head])
        for name in INPUTS[1:]:
            value = getattr(new, name)
            setattr(mixed, name, value if read in ("all", name) else getattr(old, name).expand_as(value))
        changes.append(mixed.heads[:, 0] - usual.heads[:, head])
    attended = usual.attn_out + head_change(block, head, torch.cat(changes))
    changed = Activations(block, usual.resid_pre.expand_as(attended), rotation)
    changed.attn_out = attended
    return changed
