"""Compute the tensors of a transformers class from gpt_cli tensors, and the content of an export's key `gpt_cli`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from gpt_cli.config import Config
from gpt_cli.text.tokenizers import Tokenizer
from gpt_cli.tools.exchange.export_tensors import Part, Recipe

FORMAT_VERSION = 1  # of the key gpt_cli in config.json and in GGUF


def own_keys(config: Config, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the content of an export's key `gpt_cli`: config, and the tokenizer's kind and pattern, without tokens."""
    about_tokenizer = {key: value for key, value in tokenizer.to_dict().items() if key in ("kind", "pattern")}
    return {"format": FORMAT_VERSION, "config": config.model_dump(mode="json"), "tokenizer": about_tokenizer}


@torch.no_grad()
def computed(recipe: Recipe, ours: Mapping[str, Tensor]) -> Tensor:
    """Compute the tensor that a recipe describes from `ours`, the gpt_cli parameters and buffers by name."""
    dtype = dtype_of(recipe, ours)
    if not recipe.parts:
        return torch.zeros(recipe.shape, dtype=dtype)
    rows = torch.cat([_rows(part, ours) for part in recipe.parts])
    tensor = (rows.T if recipe.transposed else rows).contiguous()
    assert (tensor.shape, tensor.dtype) == (recipe.shape, dtype)
    return tensor


def dtype_of(recipe: Recipe, ours: Mapping[str, Tensor]) -> torch.dtype:
    """Return the dtype of an exported tensor: that of copied weights, or float32 for products and scaled weights."""
    copies = [ours[part.names[0]].dtype if _is_copy(part) else torch.float32 for part in recipe.parts]
    return reduce(torch.promote_types, copies) if copies else next(iter(ours.values())).dtype


def _is_copy(part: Part) -> bool:
    return len(part.names) == 1 and part.factor == 1


def _rows(part: Part, ours: Mapping[str, Tensor]) -> Tensor:
    """Return the rows of a part; products are computed in float64 and rounded once, to float32."""
    first, *others = (ours[name] for name in part.names)
    if _is_copy(part):
        return first
    product = first.double()
    for other in others:
        product = product @ other.double()
    return (product * part.factor).float()
