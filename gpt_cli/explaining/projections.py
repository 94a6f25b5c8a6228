"""How each form of attention makes the queries, keys and values of a head, step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from gpt_cli.explaining.explanation import Note, Step
from gpt_cli.model import GroupedQueryAttention, LatentAttention, MultiHeadAttention
from gpt_cli.model.attention import SelfAttention
from gpt_cli.model.positions import rotate

_TURNED = "{0}′ = {0} cos(t θ) + (-{0}₂, {0}₁) sin(t θ)"


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
    if isinstance(attention, LatentAttention):
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
    if isinstance(attention, GroupedQueryAttention):
        group = attention.group_of(head)
        return attention.heads[head].Wq, group.Wk, group.Wv
    assert isinstance(attention, MultiHeadAttention)
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
