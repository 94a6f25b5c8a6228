"""One head of a trained model, step by step, in float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from gpt_cli.explaining.report import Note, Report, Step
from gpt_cli.inspecting.labels import label_of
from gpt_cli.model import GPT
from gpt_cli.model.attention import Stages, causal_mask, head_stages
from gpt_cli.model.block import Block

_NUM_LARGEST = 3


@torch.no_grad()
def explain_head(
    model: GPT, tokens: Sequence[str], ids: Sequence[int], *, layer: int, head: int, queries: Sequence[int]
) -> Report:
    """What one head does at some query positions, from the embeddings to the residual stream after its layer's heads.

    `tokens` are the texts of ids [T]. The model is turned to float64. From the residual stream on, each step follows
    from those before it and the parameters of the report; what other heads put out stands there as it is.
    """
    model = model.double().eval()
    labels = map(label_of, tokens)
    names = [f"{place} {label.strip() or label}" for place, label in enumerate(labels)]
    asked, places = [names[query] for query in queries], list(queries)
    block = model.blocks[layer]
    Wq, Wk, Wv = block.attention.matrices(head)

    batch = torch.tensor([list(ids)])
    steps, x, rotation = _embeddings(model, batch, names, layer)
    seen, source = block.attention_input(x), "x"
    if block.pre_norm:
        source = "a"
        normalised = _numbers(seen[0])
        steps.append(
            Step("normalised", f"a = {_norm_formula(block.norm_1)}", normalised, names, notes=[_norm_note(block)])
        )
    stages = head_stages(Wq, Wk, Wv, seen, rotation)
    values = Step("values", f"v = Wv {source}", _numbers(stages.values[0]), names)
    steps += [
        Step("queries", f"q = Wq {source}", _numbers(Wq(seen)[0, places]), asked),
        Step("keys", f"k = Wk {source}", _numbers(Wk(seen)[0]), names),
    ]
    if rotation is not None:
        turned = "{0}′ = {0} cos(t θ) + (-{0}₂, {0}₁) sin(t θ)"
        steps += [
            Step("rotated_queries", turned.format("q"), _numbers(stages.queries[0, places]), asked),
            Step("rotated_keys", turned.format("k"), _numbers(stages.keys[0]), names, notes=[Note("rotation_said")]),
        ]
    product = "s = q · k" if rotation is None else "s = q′ · k′"
    steps += [values, *_looking(stages, product, asked, names, places), *_mixing(stages, asked, names, places)]
    steps += _joining(block, x, seen, rotation, asked, places)

    sizes = model.config
    numbers = {"T": len(ids), "D": sizes.d_model, "H": sizes.num_heads, "K": sizes.head_size}
    facts = {"layer": layer, "head": head, "queries": places, "tokens": list(tokens), "token_ids": list(ids)}
    facts["sizes"] = numbers
    parameters = {"Wq": Wq.weight, "Wk": Wk.weight, "Wv": Wv.weight}
    for name, module in (("norm_1", block.norm_1), ("projection_layer", block.attention.projection_layer)):
        parameters |= {f"{name}.{part}": parameter for part, parameter in module.named_parameters()}
    if rotation is not None:
        parameters |= {"rotation.cosines": rotation[0], "rotation.sines": rotation[1]}
    exact = {name: _numbers(parameter) for name, parameter in parameters.items()}
    return Report(Note("head_title", {"layer": layer, "head": head, **numbers}), steps, facts, exact)


def _embeddings(
    model: GPT, batch: Tensor, names: Sequence[str], layer: int
) -> tuple[list[Step], Tensor, Tensor | None]:
    """What the first stream is made of, and the stream into a layer with the rotation, as the model makes them."""
    x, rotation = model.embed(batch)
    embedded = model.token_embedding(batch)
    note = Note("ids_said", {"ids": " ".join(map(str, batch[0].tolist()))})
    steps = [Step("token_embedding", "E[id]", _numbers(embedded[0]), names, notes=[note])]
    parts = ["E[id]"]
    if (ngrams := model.ngram_embedding) is not None:
        added = [table(rows) for table, rows in zip(ngrams.tables, ngrams.rows(batch), strict=True)]
        tables = " + ".join(f"N{n}" for n in range(2, len(added) + 2))
        found = torch.stack(added).sum(0)
        steps.append(Step("ngram_embedding", tables, _numbers(found[0]), names))
        formula = "e = (z - mean(z)) / √(var(z) + 1e-05), z = E[id] + " + tables
        steps.append(Step("ngram_normalised", formula, _numbers(ngrams(embedded, batch)[0]), names))
        parts = ["e"]
    if model.position_embedding is not None:
        places = model.position_embedding(torch.arange(batch.shape[1]))
        steps.append(Step("position_embedding", "P[t]", _numbers(places), names))
        parts.append("P[t]")
    rotation = None if rotation is None else rotation.double()
    for earlier in model.blocks[:layer]:
        x = earlier(x, rotation)
    formula = f"x = block_{layer - 1}(...)" if layer else "x = " + " + ".join(parts)
    return [*steps, Step("stream", formula, _numbers(x[0]), names)], x, rotation


def _looking(stages: Stages, product: str, asked: Sequence[str], names: Sequence[str], places: list[int]) -> list[Step]:
    """From scores to weights: [queries, T] each."""
    scores, weights, K = stages.scores[0, places], stages.weights[0, places], stages.queries.shape[-1]
    divided = scores / K**0.5
    masked = divided.masked_fill(causal_mask(len(names))[places], -torch.inf)
    notes = [_largest("most_weight", name, row, names) for name, row in zip(asked, weights, strict=True)]
    beside = len(asked) == 1
    return [
        Step("scores", product, _numbers(scores), asked, names, beside=beside),
        Step("divided", f"s / √K = s / {K**0.5:.4g}", _numbers(divided), asked, names, beside=beside),
        Step("masked", "m = s / √K; j > i: -∞", _numbers(masked), asked, names, beside=beside),
        Step(
            "weights", "w = exp(m) / Σ exp(m)", _numbers(weights), asked, names,
            notes=[Note("places_said"), *notes], beside=beside,
        ),
    ]  # fmt: skip


def _mixing(stages: Stages, asked: Sequence[str], names: Sequence[str], places: list[int]) -> list[Step]:
    """The weighted sum of the values: of one query with its parts, of many without."""
    weights, values = stages.weights[0], stages.values[0]
    lengths = weights[places] * values.norm(dim=1)  # of each part, since weights are not negative
    notes = [_largest("largest_parts", name, row, names) for name, row in zip(asked, lengths, strict=True)]
    steps = []
    if len(places) == 1:
        steps.append(Step("weighted_values", "wⱼ vⱼ", _numbers(weights[places[0], :, None] * values), names))
    return [*steps, Step("head_output", "h = Σ wⱼ vⱼ", _numbers(stages.heads[0, places]), asked, notes=notes)]


def _joining(
    block: Block, x: Tensor, seen: Tensor, rotation: Tensor | None, asked: Sequence[str], places: list[int]
) -> list[Step]:
    """From the outputs of all heads back to the residual stream: [queries, D] each."""
    attention = block.attention
    mixed = attention.separate_heads(seen, rotation)
    attended = attention.projection_layer(mixed)
    bias = " + b" if attention.projection_layer.bias is not None else ""
    found = [
        ("concatenated", f"c = (h0, ..., h{len(attention.heads) - 1})", mixed),
        ("projected", f"o = projection_layer c{bias}", attended),
        ("residual", "y = x + o", x + attended),
    ]
    if not block.pre_norm:
        found.append(("normalised_after", _norm_formula(block.norm_1).replace("x", "y"), block.norm_1(x + attended)))
    return [Step(name, formula, _numbers(numbers[0, places]), asked) for name, formula, numbers in found]


def _largest(key: str, query: str, numbers: Tensor, names: Sequence[str]) -> Note:
    """The tokens with the largest numbers, which are above zero, in words and as data."""
    order = torch.argsort(numbers, descending=True, stable=True)[:_NUM_LARGEST].tolist()
    found = [(place, float(numbers[place])) for place in order if numbers[place] > 0]
    text = ", ".join(f"{names[place]} {number:.4f}" for place, number in found)
    largest = [{"place": place, "number": number} for place, number in found]
    return Note(key, {"query": query, "list": text, "largest": largest})


def _norm_formula(norm: nn.Module) -> str:
    if isinstance(norm, nn.RMSNorm):
        return f"x / √(mean(x²) + {norm.eps:g}) · g"
    assert isinstance(norm, nn.LayerNorm)
    bias = " + b" if norm.bias is not None else ""
    return f"(x - mean(x)) / √(var(x) + {norm.eps:g}) · g{bias}"


def _norm_note(block: Block) -> Note:
    return Note("norm_bias_said" if "bias" in dict(block.norm_1.named_parameters()) else "norm_said")


def _numbers(tensor: Tensor) -> np.ndarray:
    return tensor.detach().double().cpu().numpy()
