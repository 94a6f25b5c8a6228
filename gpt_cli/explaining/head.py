"""One head of a trained model, step by step, in float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from gpt_cli.explaining.report import Note, Report, Step
from gpt_cli.inspecting.labels import label_of
from gpt_cli.model import GPT, Attention
from gpt_cli.model.attention import causal_mask
from gpt_cli.model.block import Block

NUM_LARGEST = 3


@torch.no_grad()
def explain_head(
    model: GPT, tokens: Sequence[str], ids: Sequence[int], *, layer: int, head: int, queries: Sequence[int]
) -> Report:
    """What one head does at some query positions, from the embeddings to the residual stream after its layer's heads.

    `tokens` are the texts of ids [T]. The model is turned to float64. Each step can be recomputed from those before
    it and the parameters of the report.
    """
    model = model.double().eval()
    labels = map(label_of, tokens)
    names = [f"{place} {label.strip() or label}" for place, label in enumerate(labels)]
    asked = [names[query] for query in queries]
    batch = torch.tensor([list(ids)])
    block = model.blocks[layer]
    attention, one = block.attention, block.attention.heads[head]

    steps, x, rotation = _embeddings(model, batch, names)
    for earlier in model.blocks[:layer]:
        x = earlier(x, rotation)
    formula = f"x = block_{layer - 1}(...)" if layer else "x = " + " + ".join(step.formula for step in steps)
    steps.append(Step("stream", formula, _numbers(x[0]), names))
    seen, source = block.attention_input(x), "x"
    if block.pre_norm:
        source = "a"
        steps.append(Step("normalised", f"a = {_norm_formula(block.norm_1)}", _numbers(seen[0]), names))

    steps += _projections(one, seen, rotation, names, list(queries), source)
    stages = one.stages(seen, rotation)
    product = "s = q · k" if rotation is None else "s = q′ · k′"
    K = one.Wq.out_features
    scores, weights = stages.scores[0, list(queries)], stages.weights[0, list(queries)]
    steps += _looking(scores, weights, product, K, asked, names, queries)
    steps += _mixing(stages.weights[0], stages.values[0], asked, names, queries)

    mixed = attention.separate_heads(seen, rotation)
    attended = attention.projection_layer(mixed)
    bias = " + b" if attention.projection_layer.bias is not None else ""
    residual = x + attended
    for name, formula, found in (
        ("concatenated", f"c = (h0, ..., h{len(attention.heads) - 1})", mixed),
        ("projected", f"o = projection_layer c{bias}", attended),
        ("residual", "y = x + o", residual),
    ):
        steps.append(Step(name, formula, _numbers(found[0, list(queries)]), asked))
    if not block.pre_norm:
        after = _numbers(block.norm_1(residual)[0, list(queries)])
        steps.append(Step("normalised_after", _norm_formula(block.norm_1).replace("x", "y"), after, asked))

    sizes = model.config
    facts = {
        "layer": layer, "head": head, "queries": list(queries), "tokens": list(tokens), "token_ids": list(ids),
        "sizes": {"T": len(ids), "D": sizes.d_model, "H": sizes.num_heads, "K": sizes.head_size},
    }  # fmt: skip
    title = Note("head_title", {"layer": layer, "head": head, **facts["sizes"]})
    return Report(title, steps, facts, _parameters(block, one, rotation))


def _embeddings(model: GPT, batch: Tensor, names: Sequence[str]) -> tuple[list[Step], Tensor, Tensor | None]:
    """The parts of the first stream, and the stream and the rotation as the model itself makes them."""
    stream, rotation = model.embed(batch)
    x = model.token_embedding(batch)
    steps = [Step("token_embedding", "E[id]", _numbers(x[0]), names)]
    if model.ngram_embedding is not None:
        added = model.ngram_embedding(x, batch) - x
        steps.append(Step("ngram_embedding", "N[id(t-1), id(t)]", _numbers(added[0]), names))
    if model.position_embedding is not None:
        places = model.position_embedding(torch.arange(batch.shape[1]))
        steps.append(Step("position_embedding", "P[t]", _numbers(places), names))
    rotation = None if rotation is None else rotation.double()
    return steps, stream, rotation


def _projections(
    head: Attention, seen: Tensor, rotation: Tensor | None, names: Sequence[str], queries: list[int], source: str
) -> list[Step]:
    """Queries of the places asked for, keys and values of all; turned where positions are rotary."""
    asked = [names[query] for query in queries]
    steps = [
        Step("queries", f"q = Wq {source}", _numbers(head.Wq(seen)[0, queries]), asked),
        Step("keys", f"k = Wk {source}", _numbers(head.Wk(seen)[0]), names),
    ]
    stages = head.stages(seen, rotation)
    if rotation is not None:
        turned = "{0}′ = {0} cos(t θ) + (-{0}₂, {0}₁) sin(t θ)"
        steps.append(Step("rotated_queries", turned.format("q"), _numbers(stages.queries[0, queries]), asked))
        steps.append(Step("rotated_keys", turned.format("k"), _numbers(stages.keys[0]), names))
    return [*steps, Step("values", f"v = Wv {source}", _numbers(stages.values[0]), names)]


def _looking(
    scores: Tensor,
    weights: Tensor,
    product: str,
    K: int,
    asked: Sequence[str],
    names: Sequence[str],
    queries: Sequence[int],
) -> list[Step]:
    """From scores to weights: [queries, T] each."""
    divided = scores / K**0.5
    masked = divided.masked_fill(causal_mask(len(names))[list(queries)], -torch.inf)
    notes = [
        Note("most_weight", {"query": name, "list": _largest(row.numpy(), names)})
        for name, row in zip(asked, weights, strict=True)
    ]
    beside = len(asked) == 1
    return [
        Step("scores", product, _numbers(scores), asked, names, beside=beside),
        Step("divided", f"s / √K = s / {K**0.5:.4g}", _numbers(divided), asked, names, beside=beside),
        Step("masked", "j > i: -∞", _numbers(masked), asked, names, beside=beside),
        Step("weights", "w = softmax", _numbers(weights), asked, names, notes=notes, beside=beside),
    ]


def _mixing(
    weights: Tensor, values: Tensor, asked: Sequence[str], names: Sequence[str], queries: Sequence[int]
) -> list[Step]:
    """The weighted sum of the values: of one query with its parts, of many without."""
    steps = []
    notes: list[Note] = []
    for query, name in zip(queries, asked, strict=True):
        parts = weights[query, :, None] * values  # [T, K]
        lengths = parts.norm(dim=1).numpy()
        notes.append(Note("largest_parts", {"query": name, "list": _largest(lengths, names)}))
        if len(queries) == 1:
            steps.append(Step("weighted_values", "w v", _numbers(parts), names))
    mixed = _numbers((weights @ values)[list(queries)])
    return [*steps, Step("head_output", "h = Σ w v", mixed, asked, notes=notes)]


def _largest(numbers: np.ndarray, names: Sequence[str]) -> str:
    order = np.argsort(-numbers, kind="stable")[:NUM_LARGEST]
    return ", ".join(f"{names[place]} {numbers[place]:.4f}" for place in order if numbers[place] > 0)


def _norm_formula(norm: nn.Module) -> str:
    if isinstance(norm, nn.RMSNorm):
        return f"x / √(mean(x²) + {norm.eps:g}) · g"
    assert isinstance(norm, nn.LayerNorm)
    bias = " + b" if norm.bias is not None else ""
    return f"(x - mean(x)) / √(var(x) + {norm.eps:g}) · g{bias}"


def _parameters(block: Block, head: Attention, rotation: Tensor | None) -> dict[str, np.ndarray]:
    """What the steps after the stream are computed with, by the names of the checkpoint."""
    found = {name: getattr(head, name).weight for name in ("Wq", "Wk", "Wv")}
    for name, module in (("norm_1", block.norm_1), ("projection_layer", block.attention.projection_layer)):
        found |= {f"{name}.{part}": parameter for part, parameter in module.named_parameters()}
    if rotation is not None:
        found |= {"rotation.cosines": rotation[0], "rotation.sines": rotation[1]}
    return {name: _numbers(parameter) for name, parameter in found.items()}


def _numbers(tensor: Tensor) -> np.ndarray:
    return tensor.detach().double().cpu().numpy()
