"""Circuits of heads, from their weights alone: how heads compose, and the tokens that their OV and QK score highest.

Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits". A head attends by the bilinear form QK and
writes by the matrix OV, both D x D of rank K at most. Norms contribute only their linear parts, gain and centring: the
scale of norms, all biases and the division of qk_norm are left out. RoPE is taken at distance 0, without rotation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gpt_cli.attention_maps.activations import head_columns, projections_of
from gpt_cli.attention_maps.logit_attribution import centred, through
from gpt_cli.common.machine.devices import float64_device
from gpt_cli.model import GPT, Block, LatentAttention
from gpt_cli.model.gpt import require_finite

KINDS = ("Q", "K", "V")
DIRECTIONS = 3  # of a head, the strongest


@dataclass(frozen=True)
class Factors:
    """Weights of heads, float64: scores use QK = scale * queries.mT @ keys, heads' outputs use OV = outputs @ values.

    Queries, keys, values: [H, K, D]; outputs: [H, D, K]. Latent attention adds R rows for RoPE to queries and keys.
    """

    queries: Tensor
    keys: Tensor
    values: Tensor
    outputs: Tensor
    scale: float

    def reading(self, change: Callable[[Tensor], Tensor]) -> Factors:
        """Return the factors with `change` applied to queries, keys and values, which read the residual stream."""
        return Factors(change(self.queries), change(self.keys), change(self.values), self.outputs, self.scale)


@dataclass(frozen=True)
class Direction:
    """A pair of singular vectors of a head, as token scores [V]: OV reads `first` and writes `second`.

    For QK, `first` scores queries and `second` keys. The score of largest magnitude in `first` is positive.
    """

    singular_value: float
    first: Tensor
    second: Tensor


def factors_of(block: Block, heads: Sequence[int]) -> Factors:
    """Return QK and OV factors of `heads`, including a norm before attention; UsageError for unsupported attention."""
    attention = block.attention
    if type(attention) is LatentAttention:
        queries, keys, values = _of_latent(attention, heads)
    else:
        layers = zip(*(projections_of(attention, head, "gpt heads --circuits") for head in heads), strict=True)
        queries, keys, values = (torch.stack([layer.weight for layer in of_kind]) for of_kind in layers)
    if attention.query_norm is not None and attention.key_norm is not None:
        queries = queries * attention.query_norm.weight[:, None]
        keys = keys * attention.key_norm.weight[:, None]
    device = float64_device(queries.device)
    parts = queries, keys, values, head_columns(block)[list(heads)]
    factors = Factors(*(part.to(device).double() for part in parts), scale=attention.scale)
    return factors.reading(lambda part: through(block.norm_1, part)) if block.pre_norm else factors


def _of_latent(attention: LatentAttention, heads: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Multiply latent attention's matrices to queries, keys [heads, K + R, D] (R: RoPE) and values [heads, K, D]."""
    chosen, down = [attention.heads[head] for head in heads], attention.W_DKV.weight
    queries = attention.query_weights(heads).unflatten(0, (len(heads), -1))
    if attention.W_DQ is not None:
        queries = queries @ attention.W_DQ.weight
    keys = torch.stack([part.W_UK.weight @ down for part in chosen])
    if attention.W_KR is not None:
        keys = torch.cat([keys, attention.W_KR.weight.expand(len(keys), -1, -1)], dim=1)
    return queries, keys, torch.stack([part.W_UV.weight @ down for part in chosen])


def baseline(d_model: int) -> float:
    """Composition score to expect by chance: its root mean square if one matrix is rotated at random, 1 / sqrt(D)."""
    return d_model**-0.5


@torch.no_grad()
def composition(
    model: GPT, layers: Sequence[int], heads: Sequence[int], count: Callable[[int], object]
) -> Iterator[tuple[int, int, Tensor]]:
    """Yield (lower layer, layer, scores [3, heads, heads of the lower layer]) for each pair of `layers`.

    A score is ||M OV|| / (||M|| ||OV||) in Frobenius norms, from 0 to 1, and 0 where a matrix is zero. OV is that of
    the lower head; M is a matrix of the higher head: QK transposed (index 0, Q composition), QK (1, K) or OV (2, V).
    `count` receives the number of layer pairs since its last call. NaN or inf raises CheckpointError.
    """
    writers = list[Tensor]()  # of the layers below: [heads, D, K], which equal OV up to a rotation from the right
    for number, layer in enumerate(layers):
        factors = factors_of(model.blocks[layer], heads)
        q, k, v, o = factors.queries, factors.keys, factors.values, factors.outputs
        # the transposed QK, QK and OV, up to a rotation from the left: [heads, K, D] each
        readers = [_root(k) @ q, _root(q) @ k, _root(o.mT) @ v]
        for below in range(layer - 1, layers[0] - 1, -1):
            if not model.blocks[below].pre_norm:  # more norms on the way
                readers = [_through_block(model.blocks[below], part) for part in readers]
            if below in layers:
                scores = torch.stack([_scores(part, writers[layers.index(below)]) for part in readers])
                require_finite(scores, "composition scores", model.where)
                yield below, layer, scores.cpu()
        writers.append(o @ _root(v).mT)
        count(number)


@torch.no_grad()
def directions(model: GPT, layer: int, heads: Sequence[int]) -> Iterator[tuple[list[Direction], list[Direction]]]:
    """Yield (of OV, of QK) for each head: its strongest pairs of singular vectors, DIRECTIONS at most, strongest first.

    A vector that OV reads, or QK compares, scores each token by the dot product with the token's embedding; one that OV
    writes scores each token by its logit minus the mean logit. Post-norms on the way, of any block, are folded in; all
    else in other blocks is ignored. NaN or inf raises CheckpointError.
    """
    below = [block for block in model.blocks[:layer] if not block.pre_norm][::-1]
    factors = factors_of(model.blocks[layer], heads)
    for block in below:
        factors = factors.reading(lambda part, block=block: _through_block(block, part))
    for q, k, v, o in zip(factors.queries, factors.keys, factors.values, factors.outputs, strict=True):
        writes, moved, read = _singular(o, v.mT, model.where)
        seeking, matched, sought = _singular(q.mT * factors.scale, k.mT, model.where)
        read, seeking, sought = (_of_tokens(model.token_embedding.weight, part) for part in (read, seeking, sought))
        ov = zip(moved, read, _logits(model, layer, writes), strict=True)
        qk = zip(matched, seeking, sought, strict=True)
        yield [_signed(*parts) for parts in ov], [_signed(*parts) for parts in qk]


def _root(matrix: Tensor) -> Tensor:
    """Return R of the QR decomposition of matrixᵀ: ||R X|| = ||matrixᵀ X|| for every X; [..., K, D] -> [..., K, K]."""
    return torch.linalg.qr(matrix.mT, mode="r").R


def _scores(readers: Tensor, writers: Tensor) -> Tensor:
    """Return scores ||R W|| / (||R|| ||W||), or 0 for zeros, of readers R [m, K, D], writers W [n, D, K']: [m, n]."""
    wide = writers.transpose(0, 1).flatten(1)  # [D, heads K']
    norms = torch.stack([(one @ wide).unflatten(1, (len(writers), -1)).norm(dim=(0, 2)) for one in readers])
    sizes = torch.outer(readers.flatten(1).norm(dim=1), writers.flatten(1).norm(dim=1))
    return torch.where(sizes == 0, 0, norms / sizes)


def _through_block(block: Block, reader: Tensor) -> Tensor:
    """Fold both norms' gain and centring into `reader` [..., D], which multiplies a post-norm block's output."""
    return through(block.norm_1, through(block.norm_2, reader))


def _singular(left: Tensor, right: Tensor, where: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return the strongest n parts of the SVD of left rightᵀ, both [D, K]: left [n, D], values [n], right [n, D]."""
    (basis, root), (other, of_other) = torch.linalg.qr(left), torch.linalg.qr(right)
    core = root @ of_other.mT
    require_finite(core, "matrices of heads", where)
    u, values, v = torch.linalg.svd(core)
    n = min(DIRECTIONS, len(values))
    return (basis @ u[:, :n]).mT, values[:n], v[:n] @ other.mT


def _of_tokens(tokens: Tensor, vectors: Tensor) -> Tensor:
    """Dot products of directions [n, D] with the token vectors `tokens` [V, D]: [n, V], on the CPU."""
    return (vectors.to(tokens) @ tokens.T).cpu()


def _logits(model: GPT, layer: int, vectors: Tensor) -> Tensor:
    """Convert directions that heads of a layer write, [n, D], to logits minus their mean, [n, V]."""
    behind = [block for block in model.blocks[layer:] if not block.pre_norm]
    norms = [norm for block in behind for norm in (block.norm_1, block.norm_2)]
    for norm in (*norms, model.final_norm):
        vectors = centred(norm, vectors) * norm.weight.to(vectors)
    logits = _of_tokens(model.output_weight, vectors)
    return logits - logits.mean(dim=1, keepdim=True)


def _signed(singular_value: Tensor, first: Tensor, second: Tensor) -> Direction:
    sign = 1 if first.max() >= -first.min() else -1
    return Direction(float(singular_value), sign * first, sign * second)
