"""Recipes that build the tensors of a transformers class from the tensors of a gpt_cli model. Needs no torch."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gpt_cli.config import ModelConfig


class Part(NamedTuple):
    """Rows of an exported tensor, computed as the matrix product of the gpt_cli tensors `names`, times `factor`."""

    names: tuple[str, ...]
    factor: float = 1.0


class Recipe(NamedTuple):
    """Recipe for a tensor of a transformers class: stack the rows of `parts`, then transpose them if `transposed`.

    `shape` is the shape in the transformers class; without parts, the tensor is zeros. If each part is a single gpt_cli
    tensor times a power of two, an import can invert the recipe and read the gpt_cli tensors from the rows.
    """

    shape: tuple[int, ...]
    parts: tuple[Part, ...] = ()
    transposed: bool = False


class Fit(NamedTuple):
    """A transformers class that computes the same logits as a gpt_cli model: its config.json, and a recipe per tensor.

    `notes` report how the class stores or computes the model differently, such as zeros for missing biases.
    """

    class_name: str
    config: Mapping[str, Any]
    tensors: Mapping[str, Recipe]
    notes: Sequence[str]

    @property
    def num_parameters(self) -> int:
        """Number of elements of all exported tensors, including zero biases and weights repeated for several heads."""
        return sum(math.prod(recipe.shape) for recipe in self.tensors.values())


def projection_recipes(
    model: ModelConfig, block: int, factor: float, *, per_head: bool = False
) -> list[tuple[Part, ...]]:
    """Return three tuples with the parts (rows) of a block's matrices for queries (times `factor`), keys and values.

    Each tuple has a part for each head. In grouped-query attention, the tuples of keys and values have a part for each
    group, or, with `per_head`, repeat the part of a group for each head of the group.
    """
    at, H, G = f"blocks.{block}.attention", model.num_heads, model.key_value_heads
    if model.attention == "latent":
        source = (f"{at}.W_DQ.weight",) if model.query_latent_size else ()
        queries = [(f"{at}.heads.{j}.W_UQ.weight", *source) for j in range(H)]
        keys = [(f"{at}.heads.{j}.W_UK.weight", f"{at}.W_DKV.weight") for j in range(H)]
        values = [(f"{at}.heads.{j}.W_UV.weight", f"{at}.W_DKV.weight") for j in range(H)]
    else:
        queries = [(f"{at}.heads.{j}.Wq.weight",) for j in range(H)]
        owners = [f"heads.{j}" for j in range(H)]
        if model.attention == "grouped_query":
            owners = [f"groups.{j * G // H if per_head else j}" for j in range(H if per_head else G)]
        keys = [(f"{at}.{owner}.Wk.weight",) for owner in owners]
        values = [(f"{at}.{owner}.Wv.weight",) for owner in owners]
    return [tuple(Part(names, factor) for names in queries), tuple(map(Part, keys)), tuple(map(Part, values))]


def attention_output(block: int) -> tuple[Part, ...]:
    """Return the single part of a recipe that copies the output projection matrix of a block's attention."""
    return (Part((f"blocks.{block}.attention.projection_layer.weight",)),)


def copy(shape: tuple[int, ...], name: str) -> Recipe:
    """Return a recipe of shape `shape` that copies the gpt_cli tensor `name`."""
    return Recipe(shape, (Part((name,)),))


def norm(theirs: str, ours: str, model: ModelConfig) -> dict[str, Recipe]:
    """Return recipes that copy the norm `ours` as `theirs`: its weight, and for layernorm its bias (zeros if none)."""
    D = model.d_model
    recipes = {f"{theirs}.weight": copy((D,), f"{ours}.weight")}
    if model.norm == "layernorm":
        recipes[f"{theirs}.bias"] = copy((D,), f"{ours}.bias") if model.bias else Recipe((D,))
    return recipes
