"""What patches change, beside hooks of plain PyTorch, finite differences and a circuit that was built by hand."""

import contextlib
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch
from support.circuit import INDUCTION, PREVIOUS, two_head_circuit
from support.heads import SOME_FORMS
from support.helpers import sharp_model
from support.patches import hooked, kept, measured, patched
from torch import Tensor

from gpt_cli.model import GPT
from gpt_cli.model.attention import causal_stages
from gpt_cli.tools.interpret.patching import activation_patching
from gpt_cli.tools.interpret.patching.activation_patching import Recorded, Task, along, estimated, exact, record, units
from gpt_cli.tools.interpret.patching.request import PARTS, Edge

V = 11
CLEAN, CORRUPT = torch.tensor([3, 1, 4, 1, 5, 9]), torch.tensor([3, 1, 2, 1, 7, 9])
PLACES = [None, *range(6)]


def recorded(model: GPT, task: Task) -> tuple[Recorded, Recorded]:
    with torch.no_grad():
        return record(model, task.clean), record(model, task.corrupt)


def outputs(model: GPT, task: Task) -> Callable[[int, str, int], Tensor]:
    """Gives what a part of a layer makes of the clean prompt (0) or of the corrupt one (1)."""
    return cache(lambda which, part, layer: kept(model, task[which], part, layer))


def gap(model: GPT, task: Task) -> float:
    """The metric of the clean prompt minus that of the corrupt one, by the model itself."""
    with torch.no_grad():
        clean, corrupt = (measured(model(ids[None]), task.answer, task.against) for ids in task[:2])
    return float(clean - corrupt)


@pytest.mark.parametrize(("settings", "against"), [("", None), *((form, 8) for form in SOME_FORMS)])
def test_patches_are_those_that_hooks_write_one_at_a_time(settings: str, against: int | None) -> None:
    model, task = sharp_model(V, *settings.split()), Task(CLEAN, CORRUPT, 2, 6, against)
    chosen = units(PARTS, range(model.config.num_heads))
    found = exact(model, *recorded(model, task), task, [0, 1], chosen, PLACES)
    base, made = measured(model(CORRUPT[None]), 6, against).item(), outputs(model, task)
    for (layer, column, at), number in np.ndenumerate(found.numpy()):
        part, head = chosen[column]
        expected = patched(model, task, made(0, part, layer), part, layer, head, PLACES[at]) - base
        assert number == pytest.approx(expected, abs=1e-10), (part, layer, head, PLACES[at])
    assert not found[:, :, 1:3].any()  # before the first difference
    residual = found[:, 0, 0].numpy()
    np.testing.assert_allclose(residual, gap(model, task), atol=1e-10)  # all positions: everything
    assert found.abs().max() > 1e-4


def test_chosen_layers_heads_and_places_are_those_of_all() -> None:
    model, task = sharp_model(V, "model.num_blocks=3"), Task(CLEAN, CORRUPT, 2, 6, 8)
    both = recorded(model, task)
    every = exact(model, *both, task, [0, 1, 2], units(PARTS, [0, 1]), PLACES)
    some = exact(model, *both, task, [1, 2], units(["head"], [1]), [4, None])
    np.testing.assert_allclose(some[:, 0].numpy(), every[1:, 4][:, [5, 0]].numpy(), atol=1e-12)


def test_patches_in_small_parts_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model, task = sharp_model(V, "model.num_blocks=3"), Task(CLEAN, CORRUPT, 2, 6, 8)
    arguments = (*recorded(model, task), task, [0, 1, 2], units(PARTS, [0, 1]), PLACES)
    whole = exact(model, *arguments)
    monkeypatch.setattr(activation_patching, "tokens_at_once", lambda *_: 7)
    np.testing.assert_allclose(exact(model, *arguments).numpy(), whole.numpy(), atol=1e-12)


@pytest.mark.parametrize("settings", SOME_FORMS)
def test_estimates_are_the_slopes_of_small_patches(settings: str) -> None:
    model, task = sharp_model(V, *settings.split()), Task(CLEAN, CORRUPT, 2, 6, 8)
    clean, _ = recorded(model, task)
    chosen = units(PARTS, [1])
    found = estimated(model, clean, task, [0, 1], chosen, PLACES).numpy()
    width = model.config.value_size
    for layer, column in np.ndindex(2, len(chosen)):
        part, head = chosen[column]
        own = kept(model, CLEAN, part, layer)
        columns = slice(None) if head is None else slice(width, 2 * width)

        def metric(
            share: float, own: Tensor = own, part: str = part, layer: int = layer, some: slice = columns
        ) -> float:
            def change(made: Tensor) -> Tensor:
                made = made.clone()
                made[..., some] += share * (own - made[0])[:, some]
                return made

            with torch.no_grad(), hooked(model, part, layer, change):
                return measured(model(CORRUPT[None]), 6, 8).item()

        slope = (metric(1e-5) - metric(-1e-5)) / 2e-5
        assert found[layer, column, 0] == pytest.approx(slope, rel=1e-5, abs=1e-7), (part, layer, head)
        assert found[layer, column, 1:].sum() == pytest.approx(found[layer, column, 0], abs=1e-10)


@torch.no_grad()
def _along_hooks(
    model: GPT, task: Task, made: Callable[[int, str, int], Tensor], edge: Edge, place: int | None, read: str
) -> float:
    """One edge by hooks: all outputs between are those of the corrupt run, then the receiver's alone is changed."""
    layer, head, to_layer, to = edge
    width = model.config.value_size
    change = torch.zeros(len(task.clean), model.config.num_heads * width, dtype=torch.float64)
    rows = slice(None) if place is None else slice(place, place + 1)
    columns = slice(head * width, (head + 1) * width)
    clean, corrupt = (made(which, "head", layer)[rows, columns] for which in (0, 1))
    change[rows, columns] = clean - corrupt
    written = change @ model.blocks[layer].attention.projection_layer.weight.T
    frozen = {(part, n): made(1, part, n) for part in PARTS[1:3] for n in range(len(model.blocks))}
    frozen["attention", layer] = frozen["attention", layer] + written
    read_by = list[Tensor]()
    with hooks_of(model, frozen):
        if to == "logits":
            return measured(model(task.corrupt[None]), task.answer, task.against).item()
        module = model.blocks[to_layer].feed_forward if to == "feed_forward" else model.blocks[to_layer].attention
        hook = module.register_forward_pre_hook(lambda _, given: read_by.append(given[0]))
        model(task.corrupt[None])
        hook.remove()
    if to == "feed_forward":
        changed = model.blocks[to_layer].feed_forward(read_by[0])
        with hooked(model, "feed_forward", to_layer, lambda _: changed):
            return measured(model(task.corrupt[None]), task.answer, task.against).item()
    assert isinstance(to, int)
    attention, rotation = model.blocks[to_layer].attention, model.embed(task.corrupt[None])[1]
    usual = list[Tensor]()
    hook = attention.register_forward_pre_hook(lambda _, given: usual.append(given[0]))
    model(task.corrupt[None])
    hook.remove()
    new, old = (attention.project_head(to, seen[0], rotation) for seen in (read_by, usual))
    names = ("queries", "keys", "values")
    queries, keys, values = (a if read in ("all", name) else b for name, a, b in zip(names, new, old, strict=True))
    output = causal_stages(queries, keys, values, attention.scale, window=attention.window).heads

    def put(made: Tensor) -> Tensor:
        made = made.clone()
        made[..., to * width : (to + 1) * width] = output
        return made

    with hooked(model, "head", to_layer, put):
        return measured(model(task.corrupt[None]), task.answer, task.against).item()


def hooks_of(model: GPT, frozen: dict[tuple[str, int], Tensor]) -> contextlib.ExitStack:
    """Parts that give these outputs, whatever they read."""
    stack = contextlib.ExitStack()
    for (part, layer), output in frozen.items():
        stack.enter_context(hooked(model, part, layer, lambda _, output=output: output[None]))
    return stack


@pytest.mark.parametrize("settings", SOME_FORMS)
def test_an_edge_is_what_hooks_leave_between_two_parts(settings: str) -> None:
    model, task = sharp_model(V, *settings.split(), "model.num_blocks=3"), Task(CLEAN, CORRUPT, 2, 6, 8)
    base = measured(model(CORRUPT[None]), 6, 8).item()
    both, places, made = recorded(model, task), [None, 4], outputs(model, task)
    edges = [Edge(0, 1, 2, 0), Edge(1, 0, 2, 1), Edge(0, 1, 1, "feed_forward"), Edge(1, 0, 3, "logits")]
    edges += [] if model.config.parallel_branches else [Edge(0, 0, 0, "feed_forward")]
    for edge in edges:
        found = along(model, *both, task, edge, places)
        reads = ["all", "queries", "keys", "values"] if isinstance(edge.to, int) else ["all"]
        assert found.shape == (len(reads), 2)
        for (row, at), number in np.ndenumerate(found.numpy()):
            expected = _along_hooks(model, task, made, edge, places[at], reads[row]) - base
            assert number == pytest.approx(expected, abs=1e-10), (edge, reads[row], places[at])


def test_in_a_circuit_built_by_hand_patches_name_its_two_heads() -> None:
    """`e a b c d a` continues with b, `e c b a d a` with d: who wrote a before b, and a before d, decides."""
    model, task = two_head_circuit(), Task(torch.tensor([4, 0, 1, 2, 3, 0]), torch.tensor([4, 2, 1, 0, 3, 0]), 1, 1, 3)
    assert model(task.clean[None])[0, -1].argmax() == 1
    assert model(task.corrupt[None])[0, -1].argmax() == 3
    chosen = units(PARTS, [0, 1])
    found = exact(model, *recorded(model, task), task, [0, 1], chosen, PLACES) / gap(model, task)
    shares = {
        (layer, *chosen[column]): found[layer, column].numpy().round(3).tolist() for layer, column in np.ndindex(2, 5)
    }
    # head 0.0 decides at positions 2 and 4: with one of both, two tokens match, or none does, and neither answer leads
    assert shares[0, "head", 0] == [1, 0, 0, 0.5, 0, 0.5, 0]
    assert shares[1, "head", 0] == [1, 0, 0, 0, 0, 0, 1]
    assert shares[0, "attention", None] == shares[0, "head", 0] == shares[0, "residual", None]
    for nothing in ((0, "head", 1), (1, "head", 1), (0, "feed_forward", None), (1, "feed_forward", None)):
        assert not any(shares[nothing])
    edge = Edge(*PREVIOUS, *INDUCTION)
    reads = along(model, *recorded(model, task), task, edge, [None]).numpy()[:, 0] / gap(model, task)
    assert reads.round(3).tolist() == [1, 0, 1, 0]  # by the keys alone
