"""One head of a trained model, step by step, in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from gpt_cli.config.model import unknown_form
from gpt_cli.drawing.labels import label_of
from gpt_cli.explaining.explanation import Explanation, Note, Step
from gpt_cli.model import GPT, GroupedQueryAttention, LatentAttention, MultiHeadAttention
from gpt_cli.model.attention import SelfAttention, Stages, causal_mask
from gpt_cli.model.block import Block
from gpt_cli.model.positions import rotate

_NUM_LARGEST = 3
_TURNED = "{0}′ = {0} cos(t θ) + (-{0}₂, {0}₁) sin(t θ)"


@torch.no_grad()
def explain_head(
    model: GPT, tokens: Sequence[str], ids: Sequence[int], *, layer: int, head: int, queries: Sequence[int]
) -> Explanation:
    """What one head does at some query positions, from the embeddings to the residual stream after its layer's heads.

    `tokens` are the texts of ids [T]. The model changes to float64. From the residual stream on, each step follows
    from the steps before it and the parameters of the explanation; only the outputs of other heads are given.
    """
    model = model.double().eval()
    labels = map(label_of, tokens)
    names = [f"{place} {label.strip() or label}" for place, label in enumerate(labels)]
    asked, places = [names[query] for query in queries], list(queries)
    sizes, block = model.config, model.blocks[layer]

    batch = torch.tensor([list(ids)])
    steps, x, rotation = _embeddings(model, batch, names, layer)
    seen, source = block.attention_input(x), "x"
    if block.pre_norm:
        source = "a"
        normalised = as_array(seen[0])
        note = Note("norm_bias_said" if "bias" in dict(block.norm_1.named_parameters()) else "norm_said")
        steps.append(Step("normalised", f"a = {_norm_formula(block.norm_1)}", normalised, names, notes=[note]))
    stages = block.attention.head_stages(head, seen, rotation)
    made = projections(block.attention, seen, source, rotation, Subject(head, names, places))
    root = made.root if sizes.scale == "head" else None
    steps += [*made.steps, *_looking(stages, made.scores, root, asked, names, places)]
    steps += _mixing(stages, asked, names, places)
    steps += _joining(block, x, seen, rotation, asked, places)

    numbers = {"T": len(ids), "D": sizes.d_model, "H": sizes.num_heads, "K": sizes.value_size}
    facts = {"layer": layer, "head": head, "queries": places, "tokens": list(tokens), "token_ids": list(ids)}
    facts["sizes"] = numbers
    if sizes.attention == "latent":
        facts["sizes"] = numbers | {"C": sizes.key_value_latent, "R": sizes.turned_size}
    parameters = dict(made.parameters)
    for name, module in (("norm_1", block.norm_1), ("projection_layer", block.attention.projection_layer)):
        parameters |= {f"{name}.{part}": parameter for part, parameter in module.named_parameters()}
    if rotation is not None:
        parameters |= {"rotation.cosines": rotation[0], "rotation.sines": rotation[1]}
    exact = {name: as_array(parameter) for name, parameter in parameters.items()}
    return Explanation(Note("head_title", {"layer": layer, "head": head, **numbers}), steps, facts, exact)


def _embeddings(
    model: GPT, batch: Tensor, names: Sequence[str], layer: int
) -> tuple[list[Step], Tensor, Tensor | None]:
    """The parts of the first stream, then the stream into a layer and the rotation, as the model computes them."""
    x, rotation = model.embed(batch)
    embedded = model.token_embedding(batch)
    note = Note("ids_said", {"ids": " ".join(map(str, batch[0].tolist()))})
    steps = [Step("token_embedding", "E[id]", as_array(embedded[0]), names, notes=[note])]
    parts = ["E[id]"]
    if (ngrams := model.ngram_embedding) is not None:
        added = [table(rows) for table, rows in zip(ngrams.tables, ngrams.rows(batch), strict=True)]
        tables = " + ".join(f"N{n}" for n in range(2, len(added) + 2))
        found = torch.stack(added).sum(0)
        steps.append(Step("ngram_embedding", tables, as_array(found[0]), names))
        formula = "e = (z - mean(z)) / √(var(z) + 1e-05), z = E[id] + " + tables
        steps.append(Step("ngram_normalised", formula, as_array(ngrams(embedded, batch)[0]), names))
        parts = ["e"]
    if model.position_embedding is not None:
        places = model.position_embedding(torch.arange(batch.shape[1]))
        steps.append(Step("position_embedding", "P[t]", as_array(places), names))
        parts.append("P[t]")
    rotation = None if rotation is None else rotation.double()
    for earlier in model.blocks[:layer]:
        x = earlier(x, rotation)
    formula = f"x = block_{layer - 1}(...)" if layer else "x = " + " + ".join(parts)
    return [*steps, Step("stream", formula, as_array(x[0]), names)], x, rotation


def _looking(
    stages: Stages, product: str, root: str | None, asked: Sequence[str], names: Sequence[str], places: list[int]
) -> list[Step]:
    """From scores to weights, [queries, T] each; `root` names the divisor of the scores, None where there is none."""
    scores, weights, size = stages.scores[0, places], stages.weights[0, places], stages.queries.shape[-1]
    beside = len(asked) == 1
    steps = [Step("scores", product, as_array(scores), asked, names, beside=beside)]
    term = "s"
    if root is not None:
        term, scores = f"s / {root}", scores / size**0.5
        formula = f"{term} = s / {size**0.5:.4g}"
        steps.append(Step("divided", formula, as_array(scores), asked, names, beside=beside))
    masked = scores.masked_fill(causal_mask(len(names))[places], -torch.inf)
    notes = [_largest("most_weight", name, row, names) for name, row in zip(asked, weights, strict=True)]
    return [
        *steps,
        Step("masked", f"m = {term}; j > i: -∞", as_array(masked), asked, names, beside=beside),
        Step(
            "weights",
            "w = exp(m) / Σ exp(m)",
            as_array(weights),
            asked,
            names,
            notes=[Note("places_said"), *notes],
            beside=beside,
        ),
    ]


def _mixing(stages: Stages, asked: Sequence[str], names: Sequence[str], places: list[int]) -> list[Step]:
    """The weighted sum of the values, for a single query with its parts."""
    weights, values = stages.weights[0], stages.values[0]
    lengths = weights[places] * values.norm(dim=1)  # of each part of the sum, since no weight is negative
    notes = [_largest("largest_parts", name, row, names) for name, row in zip(asked, lengths, strict=True)]
    steps = []
    if len(places) == 1:
        steps.append(Step("weighted_values", "wⱼ vⱼ", as_array(weights[places[0], :, None] * values), names))
    return [*steps, Step("head_output", "h = Σ wⱼ vⱼ", as_array(stages.heads[0, places]), asked, notes=notes)]


def _joining(
    block: Block, x: Tensor, seen: Tensor, rotation: Tensor | None, asked: Sequence[str], places: list[int]
) -> list[Step]:
    """From the outputs of all heads back to the residual stream: [queries, D] each."""
    attention = block.attention
    mixed, last = attention.separate_heads(seen, rotation), attention.num_heads - 1
    heads = ", ".join(dict.fromkeys(["h0", *(["..."] if last > 1 else []), f"h{last}"]))
    attended = attention.projection_layer(mixed)
    bias = " + b" if attention.projection_layer.bias is not None else ""
    found = [
        ("concatenated", f"hs = ({heads})", mixed),
        ("projected", f"o = projection_layer hs{bias}", attended),
        ("residual", "y = x + o", x + attended),
    ]
    if not block.pre_norm:
        found.append(("normalised_after", _norm_formula(block.norm_1).replace("x", "y"), block.norm_1(x + attended)))
    return [Step(name, formula, as_array(numbers[0, places]), asked) for name, formula, numbers in found]


def _largest(key: str, query: str, numbers: Tensor, names: Sequence[str]) -> Note:
    """The tokens with the largest numbers above zero, in words and as data."""
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


@dataclass(frozen=True)
class Projections:
    """The steps up to queries, keys and values, the formulas of scores and their divisor, and the parameters used."""

    steps: list[Step]
    scores: str
    root: str
    parameters: Mapping[str, Tensor]


@dataclass(frozen=True)
class Subject:
    """What is explained: a head, the names of all tokens, and the positions of those that look."""

    head: int
    names: Sequence[str]
    places: list[int]

    def of_queries(self, name: str, formula: str, numbers: Tensor) -> Step:
        """A step of the tokens that look, from numbers [1, T, size] of all."""
        return Step(name, formula, as_array(numbers[0, self.places]), [self.names[place] for place in self.places])

    def of_all(self, name: str, formula: str, numbers: Tensor, *notes: Note) -> Step:
        """A step of all tokens, from numbers [1, T, size]."""
        return Step(name, formula, as_array(numbers[0]), self.names, notes=notes)


def projections(
    attention: SelfAttention, x: Tensor, source: str, rotation: Tensor | None, subject: Subject
) -> Projections:
    """The queries, keys and values of a head for its input x [1, T, D], which the formulas call `source`."""
    # exactly these: a form derived from one of them may compute something else
    if type(attention) is LatentAttention:
        return _of_latent(attention, x, source, rotation, subject)
    Wq, Wk, Wv = _matrices(attention, subject.head)
    queries, keys = Wq(x), Wk(x)
    matrices = {"Wq": Wq, "Wk": Wk, "Wv": Wv}
    biases = {name.replace("W", "b"): layer.bias for name, layer in matrices.items() if layer.bias is not None}
    plus_q, plus_k, plus_v = (f" + {bias}" if bias in biases else "" for bias in ("bq", "bk", "bv"))
    steps = [
        subject.of_queries("queries", f"q = Wq {source}{plus_q}", queries),
        subject.of_all("keys", f"k = Wk {source}{plus_k}", keys),
    ]
    product = "s = q · k"
    if rotation is not None:
        product = "s = q′ · k′"
        steps += _turned("q", "k", queries, keys, rotation, subject)
    steps.append(subject.of_all("values", f"v = Wv {source}{plus_v}", Wv(x)))
    return Projections(steps, product, "√K", {name: layer.weight for name, layer in matrices.items()} | biases)


def _matrices(attention: SelfAttention, head: int) -> tuple[nn.Linear, nn.Linear, nn.Linear]:
    """Wq of a head, and its Wk and Wv, or those of its group."""
    if type(attention) is GroupedQueryAttention:
        group = attention.group_of(head)
        return attention.heads[head].Wq, group.Wk, group.Wv
    if type(attention) is not MultiHeadAttention:
        raise unknown_form("gpt explain", type(attention).__name__)
    own = attention.heads[head]
    return own.Wq, own.Wk, own.Wv


def _of_latent(
    attention: LatentAttention, x: Tensor, source: str, rotation: Tensor | None, subject: Subject
) -> Projections:
    own = attention.heads[subject.head]
    latent, query_source = attention.W_DKV(x), attention.query_source(x)
    taken: dict[str, nn.Linear | None] = {"W_DKV": attention.W_DKV, "W_DQ": attention.W_DQ, "W_UQ": own.W_UQ}
    taken |= {"W_UK": own.W_UK, "W_UV": own.W_UV, "W_QR": own.W_QR, "W_KR": attention.W_KR}
    steps = [subject.of_all("latent", f"c = W_DKV {source}", latent)]
    looked_from = source
    if attention.W_DQ is not None:
        looked_from = "d"
        steps.append(subject.of_queries("query_latent", f"d = W_DQ {source}", query_source))
    steps += [
        subject.of_queries("queries", f"q = W_UQ {looked_from}", own.W_UQ(query_source)),
        subject.of_all("keys", "k = W_UK c", own.W_UK(latent)),
    ]
    product, root = "s = q · k", "√K"
    if own.W_QR is not None and attention.W_KR is not None and rotation is not None:
        product, root = "s = q · k + r′ · u′", "√(K + R)"
        queries, keys = own.W_QR(query_source), attention.W_KR(x)
        steps += [
            subject.of_queries("rotary_queries", f"r = W_QR {looked_from}", queries),
            subject.of_all("rotary_keys", f"u = W_KR {source}", keys),
            *_turned("r", "u", queries, keys, rotation, subject),
        ]
    steps.append(subject.of_all("values", "v = W_UV c", own.W_UV(latent)))
    matrices = {name: matrix.weight for name, matrix in taken.items() if matrix is not None}
    return Projections(steps, product, root, matrices)


def _turned(
    query: str, key: str, queries: Tensor, keys: Tensor, rotation: Tensor, subject: Subject
) -> tuple[Step, Step]:
    note = Note("rotation_said", {"key": key, "size": "K" if key == "k" else "R"})
    return (
        subject.of_queries("rotated_queries", _TURNED.format(query), rotate(queries, rotation)),
        subject.of_all("rotated_keys", _TURNED.format(key), rotate(keys, rotation), note),
    )


def as_array(tensor: Tensor) -> np.ndarray:
    """The numbers of a tensor, in float64."""
    return tensor.detach().double().cpu().numpy()
