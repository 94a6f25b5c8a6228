"""Queries, keys and values of one head as steps of an explanation, for each form of attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor, nn

from gpt_cli.config.model import unknown_form
from gpt_cli.model import GroupedQueryAttention, LatentAttention, MultiHeadAttention
from gpt_cli.model.attention import SelfAttention
from gpt_cli.model.positions import RotaryPositions, rotate
from gpt_cli.tools.explain.explanation import Note, Step

# the formulas of scores and of their divisor, and the parameters that queries, keys and values use
Projections = tuple[str, str, Mapping[str, Tensor]]


class HeadSteps:
    """The steps of a head so far; `names` label all tokens, `places` are query positions, `rotary` is rope or None."""

    def __init__(self, head: int, names: Sequence[str], places: Sequence[int], rotary: RotaryPositions | None):
        self.head, self.names, self.places, self.rotary = head, names, list(places), rotary
        self.query_names = [names[place] for place in places]
        self.steps: list[Step] = []

    def of_queries(self, name: str, formula: str, numbers: Tensor, *notes: Note) -> None:
        """Add a step with a row for each query token, from `numbers` [1, T, size] of all tokens."""
        self.steps.append(Step(name, formula, as_array(numbers[0, self.places]), self.query_names, notes=notes))

    def of_all(self, name: str, formula: str, numbers: Tensor, *notes: Note) -> None:
        """Add a step with a row for each token, from `numbers` [1, T, size]."""
        self.steps.append(Step(name, formula, as_array(numbers[0]), self.names, notes=notes))

    def of_pairs(self, name: str, formula: str, numbers: Tensor, *notes: Note) -> None:
        """Add a step with a row for each query token and a column for each key token, from `numbers` [queries, T]."""
        beside = len(self.places) == 1
        step = Step(name, formula, as_array(numbers), self.query_names, self.names, notes=notes, beside=beside)
        self.steps.append(step)


def projections(
    steps: HeadSteps, attention: SelfAttention, x: Tensor, source: str, rotation: Tensor | None
) -> Projections:
    """Add the steps of a head's queries, keys and values, for the input x [1, T, D], which formulas call `source`.

    Returns the formulas of the scores and of their divisor, and the parameters used, by name.
    """
    # exactly these: a form derived from one of them may compute something else
    if type(attention) is LatentAttention:
        return _of_latent(steps, attention, x, source, rotation)
    Wq, Wk, Wv = _matrices(attention, steps.head)
    queries, keys = Wq(x), Wk(x)
    matrices = {"Wq": Wq, "Wk": Wk, "Wv": Wv}
    biases = {name.replace("W", "b"): layer.bias for name, layer in matrices.items() if layer.bias is not None}
    plus_q, plus_k, plus_v = (f" + {bias}" if bias in biases else "" for bias in ("bq", "bk", "bv"))
    steps.of_queries("queries", f"q = Wq {source}{plus_q}", queries)
    steps.of_all("keys", f"k = Wk {source}{plus_k}", keys)
    parameters = {name: layer.weight for name, layer in matrices.items()} | biases
    query, key = "q", "k"
    if attention.query_norm is not None and attention.key_norm is not None:
        query, key = "q̂", "k̂"
        queries, keys = attention.query_norm(queries), attention.key_norm(keys)
        of_queries, of_keys = (norm_formula(norm) for norm in (attention.query_norm, attention.key_norm))
        steps.of_queries("normalised_queries", f"q̂ = {of_queries.replace('x', 'q')}", queries)
        steps.of_all("normalised_keys", f"k̂ = {of_keys.replace('x', 'k')}", keys, norm_note(attention.key_norm))
        parameters |= {"query_norm.weight": attention.query_norm.weight, "key_norm.weight": attention.key_norm.weight}
    product = f"s = {query} · {key}"
    if rotation is not None:
        product = "s = q′ · k′"
        _add_turned(steps, query, key, queries, keys, rotation)
    steps.of_all("values", f"v = Wv {source}{plus_v}", Wv(x))
    return product, "√K", parameters


def _matrices(attention: SelfAttention, head: int) -> tuple[nn.Linear, nn.Linear, nn.Linear]:
    """Return Wq, Wk and Wv of a head; in grouped-query attention, Wk and Wv are those of the head's group."""
    if type(attention) is GroupedQueryAttention:
        group = attention.group_of(head)
        return attention.heads[head].Wq, group.Wk, group.Wv
    if type(attention) is not MultiHeadAttention:
        raise unknown_form("gpt explain", type(attention).__name__)
    parameters = attention.heads[head]
    return parameters.Wq, parameters.Wk, parameters.Wv


def _of_latent(
    steps: HeadSteps, attention: LatentAttention, x: Tensor, source: str, rotation: Tensor | None
) -> Projections:
    head = attention.heads[steps.head]
    latent, query_source = attention.W_DKV(x), attention.query_source(x)
    taken: dict[str, nn.Linear | None] = {"W_DKV": attention.W_DKV, "W_DQ": attention.W_DQ, "W_UQ": head.W_UQ}
    taken |= {"W_UK": head.W_UK, "W_UV": head.W_UV, "W_QR": head.W_QR, "W_KR": attention.W_KR}
    steps.of_all("latent", f"c = W_DKV {source}", latent)
    looked_from = source
    if attention.W_DQ is not None:
        looked_from = "d"
        steps.of_queries("query_latent", f"d = W_DQ {source}", query_source)
    steps.of_queries("queries", f"q = W_UQ {looked_from}", head.W_UQ(query_source))
    steps.of_all("keys", "k = W_UK c", head.W_UK(latent))
    product, root = "s = q · k", "√K"
    if head.W_QR is not None and attention.W_KR is not None and rotation is not None:
        product, root = "s = q · k + r′ · u′", "√(K + R)"
        queries, keys = head.W_QR(query_source), attention.W_KR(x)
        steps.of_queries("rotary_queries", f"r = W_QR {looked_from}", queries)
        steps.of_all("rotary_keys", f"u = W_KR {source}", keys)
        _add_turned(steps, "r", "u", queries, keys, rotation)
    steps.of_all("values", "v = W_UV c", head.W_UV(latent))
    matrices = {name: matrix.weight for name, matrix in taken.items() if matrix is not None}
    return product, root, matrices


def _add_turned(steps: HeadSteps, query: str, key: str, queries: Tensor, keys: Tensor, rotation: Tensor) -> None:
    """Add the steps of queries and keys rotated by rope, which may rotate only the first R numbers of each."""
    assert steps.rotary is not None
    part = rotation.shape[-1] < keys.shape[-1]
    turned = f"{key}[:R]" if part else key
    base, size = f"{steps.rotary.base:.10g}", "R" if part or key == "u" else "K"
    said = f"{key}₁ and {key}₂ are the halves of {turned}; pair n of them rotates by t θₙ, θₙ = {base}^(-2n / {size})"
    notes = [Note("rotation_said", said, {"key": key, "turned": turned, "base": base, "size": size})]
    if (scaling := steps.rotary.scaling) is not None:
        values = {name: f"{number:.10g}" for name, number in scaling._asdict().items()}
        said = (
            f"Slow pairs are slower here, as in Llama 3: θₙ is divided by {values['factor']} where a pair turns fewer "
            f"than {values['low']} times in {values['original_length']} tokens, not where it turns more than "
            f"{values['high']} times, and partly between."
        )
        notes.append(Note("scaling_said", said, values))
    steps.of_queries("rotated_queries", _turning(query, part=part), rotate(queries, rotation))
    steps.of_all("rotated_keys", _turning(key, part=part), rotate(keys, rotation), *notes)


def _turning(name: str, *, part: bool) -> str:
    turned = f"{name}[:R] cos(t θ)" if part else f"{name} cos(t θ)"
    formula = f"{turned} + (-{name}₂, {name}₁) sin(t θ)"
    return f"{name[0]}′ = ({formula}, {name}[R:])" if part else f"{name[0]}′ = {formula}"


def as_array(tensor: Tensor) -> np.ndarray:
    """Convert a tensor to a float64 array."""
    return tensor.detach().double().cpu().numpy()


def norm_note(norm: nn.Module) -> Note:
    """Return the note that explains g and b, the symbols of parameters in `norm_formula`."""
    if dict(norm.named_parameters()).keys() >= {"bias"}:
        return Note("norm_bias_said", "g and b: the weights and the bias of the norm")
    return Note("norm_said", "g: the weights of the norm")


def norm_formula(norm: nn.Module) -> str:
    """Return the formula of a norm of x, with the weight g and, if the norm has one, the bias b."""
    if isinstance(norm, nn.RMSNorm):
        return f"x / √(mean(x²) + {norm.eps:g}) · g"
    assert isinstance(norm, nn.LayerNorm)
    bias = " + b" if norm.bias is not None else ""
    return f"(x - mean(x)) / √(var(x) + {norm.eps:g}) · g{bias}"
