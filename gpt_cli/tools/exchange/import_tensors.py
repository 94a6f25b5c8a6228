"""Read gpt_cli weights from tensors of a transformers class, by inverting the recipes of an export. Needs no torch."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from gpt_cli.common.safetensors_numbers import READABLE, widened
from gpt_cli.errors import CheckpointError, GptError, counted, shown
from gpt_cli.tools.exchange.export_tensors import Recipe
from gpt_cli.tools.exchange.hf_directory import Directory

EMBEDDINGS = ("token_embedding.weight", "output_layer.weight")  # whose rows belong to tokens
_TABLE = "position_embedding.table"  # of sinusoidal positions, which gpt computes, so that it is not a weight
_MAX_NAMED = 3


class Rows(NamedTuple):
    """Location of a gpt_cli weight in a model directory: rows `span` of the tensor `source`, or of its transpose.

    The directory stores the weight times `factor`, a power of two.
    """

    source: str
    span: slice
    transposed: bool
    factor: float


class Weights:
    """Map from the names of a gpt_cli state dict to weights, each read on request from a transformers directory.

    `places` locates the weights; `zeros` has the shapes of weights that the directory lacks, which are read as zeros.
    Embeddings are cut to the first `num_tokens` rows, the vocabulary size.
    """

    def __init__(
        self, directory: Directory, places: Mapping[str, Rows], num_tokens: int, zeros: Mapping[str, tuple[int, ...]]
    ):
        self.places, self.zeros = places, zeros
        self._directory, self._num_tokens = directory, num_tokens
        self._read = lru_cache(maxsize=2)(directory.read_stored)

    def __getitem__(self, name: str) -> np.ndarray:
        """Return a weight in float32; raises CheckpointError for NaN or infinity."""
        return widened(self.stored(name), self.kind(name))

    def kind(self, name: str) -> str:
        """Return the dtype in which `stored` returns a weight: that of the file, F32 for zeros and scaled weights."""
        rows = self.places.get(name)
        return "F32" if rows is None or rows.factor != 1 else self._directory.tensors[rows.source].dtype

    def stored(self, name: str) -> np.ndarray:
        """Return a weight in the dtype that `kind` returns; raises CheckpointError for NaN or infinity."""
        if name in self.zeros:
            return np.zeros(self.zeros[name], np.float32)
        rows = self.places[name]
        if name in EMBEDDINGS:
            rows = rows._replace(span=slice(self._num_tokens))
        return np.ascontiguousarray(self._cut(rows) if rows.factor == 1 else self.part(rows))

    def forget(self) -> None:
        """Clear the cache of transposed tensors."""
        self._read.cache_clear()

    def part(self, rows: Rows) -> np.ndarray:
        """Return the weight at `rows` in float32: the numbers of the file, divided by `rows.factor`."""
        return widened(self._cut(rows), self._directory.tensors[rows.source].dtype) / np.float32(rows.factor)

    def _cut(self, rows: Rows) -> np.ndarray:
        """Return the numbers at `rows` in the dtype of the file, without the division by `rows.factor`."""
        if rows.transposed:
            return self._read(rows.source).T[rows.span]
        return self._directory.read_stored(rows.source, rows.span)


def weight_locations(recipes: Mapping[str, Recipe], directory: Directory) -> dict[str, Rows] | None:
    """Map each gpt_cli weight to the tensor rows made from it; None if the `recipes` of tensors cannot be inverted.

    Inversion fails for products, factors that are not powers of two, and zeros or copied weights that training changed.
    """
    locations: defaultdict[str, list[Rows]] = defaultdict(list)
    zeros = [name for name, recipe in recipes.items() if not recipe.parts]
    for source, recipe in recipes.items():
        size = recipe.shape[-1 if recipe.transposed else 0] // max(1, len(recipe.parts))
        for number, (names, factor) in enumerate(recipe.parts):
            name, *others = names
            if others or math.frexp(factor)[0] != 0.5:
                return None
            span = slice(number * size, (number + 1) * size)
            locations[name].append(Rows(source, span, recipe.transposed, factor))
    table = locations.pop(_TABLE, None)
    weights = Weights(directory, {}, 0, {})
    if any(directory.read(name).any() for name in zeros):
        return None
    if table and not np.allclose(weights.part(table[0]), _sinusoids(recipes[table[0].source].shape), rtol=0, atol=1e-6):
        return None
    for copies in locations.values():
        if any(not np.array_equal(weights.part(copies[0]), weights.part(other)) for other in copies[1:]):
            return None
    return {name: copies[0] for name, copies in locations.items()}


def tensor_mismatches(recipes: Mapping[str, Recipe], directory: Directory) -> Iterator[GptError]:
    """Yield errors for tensors that are missing, unexpected, of another shape, or of an unreadable dtype."""

    def wrong(has: str, names: Sequence[str], which: str = "") -> Iterator[GptError]:
        if names:
            named = ", ".join(map(shown, names[:_MAX_NAMED]))
            more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
            yield CheckpointError(directory.where, f"{has} {counted(len(names), 'tensor')}{which}: {named}{more}")

    stored = directory.tensors
    yield from wrong("it lacks", [name for name in recipes if name not in stored])
    yield from wrong("it has", [name for name in stored if name not in recipes], " that the model of its config lacks")
    for name, recipe in recipes.items():
        if name in stored and stored[name].shape != recipe.shape:
            shapes = f"has shape {list(stored[name].shape)}, but its config requires {list(recipe.shape)}"
            yield CheckpointError(directory.where, f"{shown(name)} {shapes}")
        elif name in stored and stored[name].dtype not in READABLE:
            types = f"is {stored[name].dtype}, but gpt reads {', '.join(READABLE)}"
            yield CheckpointError(directory.where, f"{shown(name)} {types}")


def _sinusoids(shape: tuple[int, ...]) -> np.ndarray:
    """Return the sinusoidal table [T, D] of model/positions.py without torch. Vaswani et al. 2017, section 3.5."""
    T, D = shape
    angles = np.arange(T)[:, None] * 10000.0 ** (-np.arange(0, D, 2) / D)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(T, -1)[:, :D]
