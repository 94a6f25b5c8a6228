"""Layout of a model's weights in a web page, and the page's size. Needs no torch."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from gpt_cli.checkpoints.header import OPTIMIZER_PREFIX
from gpt_cli.config import ModelConfig
from gpt_cli.config.model import unknown_form
from gpt_cli.errors import EnvironmentFailure
from gpt_cli.tools.pages.html_page import MODEL, build_page

Kind = Literal["float16", "int8"]
LARGEST = 200_000_000  # bytes of a page; browsers refuse texts of twice the size
_LARGEST_FLOAT16 = 30_000_000  # bytes of a page above which matrices are int8 unless the user chooses
_ALIGNMENT = 4  # bytes; arrays of JavaScript begin at multiples of the size of a number
FORMS = ("multi_head", "grouped_query", "latent")  # of attention that the engine computes
_MOST_WEIGHTS = 80_000_000  # of attention that a page holds: GPT-2's 144 heads have 76 million on 1,024 tokens
_NUMBER = {"float16": 2, "int8": 1, "float32": 4}  # bytes


class Layout(NamedTuple):
    """Byte positions of the tensors in a page's weights: matrices have the dtype `kind`, vectors are float32."""

    kind: Kind
    tensors: Sequence[Mapping[str, Any]]  # name, shape, kind, at; of int8 also scales_at, with a float32 for each row
    num_bytes: int


def require_known_form(model: ModelConfig) -> None:
    """Raise UsageError for a form of attention that the scripts of a page do not implement."""
    if model.attention not in FORMS:
        hint = "‹format=safetensors› exports every model for use with gpt"
        raise unknown_form("the page of a model", model.attention, hint)


def page_context(model: ModelConfig) -> int:
    """Return a model's context length on a page, limited by the memory for the attention weights of all heads."""
    rows = math.isqrt(2 * _MOST_WEIGHTS // (model.num_blocks * model.num_heads))
    return min(model.context_length, rows)


def layout(shapes: Mapping[str, Sequence[int]], kind: Kind) -> Layout:
    """Return byte positions for tensors of these shapes; tensors of the optimizer state are left out."""
    tensors, end = [], 0
    for name, shape in shapes.items():
        if name.startswith(OPTIMIZER_PREFIX):
            continue
        number_type = kind if len(shape) == 2 else "float32"
        entry = {"name": name, "shape": list(shape), "kind": number_type, "at": end}
        end += _NUMBER[number_type] * math.prod(shape)
        end += -end % _ALIGNMENT
        if number_type == "int8":
            entry["scales_at"] = end
            end += _NUMBER["float32"] * shape[0]
        tensors.append(entry)
    return Layout(kind, tensors, end)


def model_page_bytes(page_layout: Layout, tokenizer: Mapping[str, Any]) -> int:
    """Estimate the size in bytes of a model's HTML page with this layout and tokenizer."""
    described = len(json.dumps([tokenizer, page_layout.tensors]))
    return len(build_page(MODEL, {})) + described + math.ceil(page_layout.num_bytes * 4 / 3)


def chosen_layout(
    shapes: Mapping[str, Sequence[int]], tokenizer: Mapping[str, Any], wanted: Kind | None
) -> tuple[Layout, int]:
    """Choose the layout of a page: of the dtype `wanted`, or, if None, float16 for a small page, else int8.

    Also returns the estimated size of the page in bytes. Raises EnvironmentFailure for a page too large for browsers.
    """
    halves, bytes_ = layout(shapes, "float16"), layout(shapes, "int8")
    sizes = {each.kind: model_page_bytes(each, tokenizer) for each in (halves, bytes_)}
    kind = wanted or ("float16" if sizes["float16"] <= _LARGEST_FLOAT16 else "int8")
    if sizes[kind] > LARGEST:
        hint = "a page holds about 150 million parameters; ‹format=safetensors› and hf have no limit"
        if kind == "float16" and sizes["int8"] <= LARGEST:
            hint = f"‹quantize=int8›, with which it has {_megabytes(sizes['int8'])}"
        page = f"{_megabytes(sizes[kind])} with weights in {kind}"
        sentence = f"the page would have {page}, and browsers open pages of at most {_megabytes(LARGEST)}"
        raise EnvironmentFailure("‹format=html›", sentence, hint=hint)
    return (halves if kind == "float16" else bytes_), sizes[kind]


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.0f} MB"
