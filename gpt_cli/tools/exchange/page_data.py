"""A model as the data of a web page: the layout of its weights, the size of the page, its tokenizer. Needs no torch.

Python and JavaScript know different versions of Unicode, and even browsers differ. So every class of characters in the
pattern that splits text is written out as the code points that the library tiktoken matches.
"""

import base64
import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple
from unicodedata import normalize

import numpy as np

from gpt_cli.config import ModelConfig
from gpt_cli.config.model import unknown_form
from gpt_cli.errors import CheckpointError, EnvironmentFailure
from gpt_cli.text.hf_tokenizer import HuggingFaceTokenizer
from gpt_cli.text.hf_tokenizer_rules import decoder, steps
from gpt_cli.text.split_patterns import GPT2_PATTERN
from gpt_cli.text.tokenizers import BytePairTokenizer, Tokenizer, code_points, utf8
from gpt_cli.tools.pages.html_page import MODEL, build_page

Kind = Literal["float16", "int8"]
LARGEST = 200_000_000  # bytes of a page; browsers refuse texts of twice the size
_LARGEST_FLOAT16 = 30_000_000  # bytes of a page above which matrices are int8 unless the user chooses
_ALIGNMENT = 4  # bytes; arrays of JavaScript begin at multiples of the size of a number
FORMS = ("multi_head", "grouped_query", "latent")  # of attention that the engine computes
_MOST_WEIGHTS = 80_000_000  # of attention that a page holds: GPT-2's 144 heads have 76 million on 1,024 tokens
# a character class in brackets, by its letter or by its name
_CLASS = re.compile(r"\[(?:\\[pP]\{\w+\}|\\.|[^]\\])+\]|\\[pP]\{\w+\}|\\[sSd]")
_CUTS = ("ByteLevel", "Digits", "Metaspace", "Split")  # the pre-tokenizer steps that pages implement
_WITHOUT_CASE = re.compile(r"\(\?i:([^()]*)\)")
_POSSESSIVE = re.compile(r"([*+?]|[0-9]\})\+")


class Layout(NamedTuple):
    """Byte positions of the tensors in a web page's weights: matrices have the dtype `kind`, vectors are float32."""

    kind: Kind
    tensors: Sequence[Mapping[str, Any]]  # name, shape, kind, at; of int8 also scales_at, with a float32 for each row
    num_bytes: int


def require_known_form(model: ModelConfig) -> None:
    """Raise UsageError for a form of attention that the script of a web page does not implement."""
    if model.attention not in FORMS:
        hint = "‹format=safetensors› exports every model for use with gpt"
        raise unknown_form("the page of a model", model.attention, hint)


def page_context(model: ModelConfig) -> int:
    """Return a model's context length on a web page, limited by the memory for the attention weights of all heads."""
    return min(model.context_length, math.isqrt(2 * _MOST_WEIGHTS // (model.num_blocks * model.num_heads)))


def layout(shapes: Mapping[str, Sequence[int]], kind: Kind) -> Layout:
    """Return the layout of a page's weights from `shapes` (name -> shape): matrices in `kind`, vectors in float32."""
    tensors, end = [], 0
    for name, shape in shapes.items():
        number_type = kind if len(shape) == 2 else "float32"
        entry = {"name": name, "shape": list(shape), "kind": number_type, "at": end}
        end += np.dtype(number_type).itemsize * math.prod(shape)
        end += -end % _ALIGNMENT
        if number_type == "int8":
            entry["scales_at"] = end
            end += np.dtype("float32").itemsize * shape[0]
        tensors.append(entry)
    return Layout(kind, tensors, end)


def model_page_bytes(page_layout: Layout, tokenizer: Mapping[str, Any]) -> int:
    """Estimate the size in bytes of a model's HTML page with this layout and tokenizer."""
    described = len(json.dumps([tokenizer, page_layout.tensors]))
    return len(build_page(MODEL, {})) + described + math.ceil(page_layout.num_bytes * 4 / 3)


def chosen_layout(
    shapes: Mapping[str, Sequence[int]], tokenizer: Mapping[str, Any], wanted: str | None
) -> tuple[Layout, int]:
    """Choose the layout of a web page's weights: in dtype `wanted`, or, if None, float16 for a small page, else int8.

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


def tokenizer_content(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return data from which the script of a web page builds a tokenizer that gives the same ids as `tokenizer`.

    Raises CheckpointError for a Hugging Face tokenizer with a step that this script does not implement.
    """
    if isinstance(tokenizer, HuggingFaceTokenizer):
        return _library_content(tokenizer)
    if isinstance(tokenizer, BytePairTokenizer):
        return {**tokenizer.to_dict(), "pattern": javascript_pattern(tokenizer.pattern)}
    return tokenizer.to_dict()


def _library_content(tokenizer: HuggingFaceTokenizer) -> dict[str, Any]:
    """Return a Hugging Face tokenizer as page data: its steps, the bytes of its tokens and the ids of its merges."""
    tokenizer.encode("")  # raises the errors of the library
    model, names, added = tokenizer.content["model"], tokenizer.names, tokenizer.added
    first, cutting = (steps(tokenizer.content, part) for part in ("normalizer", "pre_tokenizer"))
    decoding = steps(tokenizer.content, "decoder")
    letters = [step["type"] for step in cutting].count("ByteLevel") == 1
    added_tokens = [token for token in added.values() if not (tokenizer.splits_special and token.get("special"))]
    wrong = next(filter(None, (*map(_unknown, first), *(_unknown(step, _CUTS) for step in cutting))), None)
    if model.get("type", "BPE") != "BPE":
        wrong = model["type"]
    elif not letters and not model.get("byte_fallback"):
        wrong = "BPE without bytes"
    elif len({part for part in tokenizer.token_bytes if len(part) == 1}) < 256:
        wrong = "BPE without some bytes"
    elif letters != (decoding[0]["type"] == "ByteLevel") or (letters and cutting[-1]["type"] != "ByteLevel"):
        wrong = "steps in this order"
    elif any(token.get(flag) for token in added_tokens for flag in ("lstrip", "rstrip", "single_word")):
        wrong = "an added token that takes spaces or whole words"
    elif any(token.get("normalized") for token in added_tokens) and any(step["type"] != "NFC" for step in first):
        wrong = "an added token in normalized text"
    if wrong:
        hint = "‹format=safetensors› and hf export every tokenizer"
        raise CheckpointError("tokenizer", f"the page of a model does not support tokenizers with {wrong}", hint=hint)
    ids = {name: number for number, name in names.items()}
    bytes_of = decoder(tokenizer.content)[0] if letters else utf8  # the page itself replaces the mark of spaces
    pairs = [pair.split(" ", 1) if isinstance(pair, str) else pair for pair in model["merges"]]
    tokens = (bytes_of(names.get(number, "")) for number in range(tokenizer.vocab_size))
    groups = [[token for token in added_tokens if bool(token.get("normalized")) is late] for late in (False, True)]
    return {
        "kind": tokenizer.kind,
        "letters": letters,
        "mark": next((step["pattern"]["String"] for step in decoding if "pattern" in step), "▁"),
        "whole": model.get("ignore_merges") is True,
        "normalizer": first,
        "cuts": list(filter(None, map(_cut, cutting))),
        "added": [
            [[normalize("NFC", one["content"]) if late and first else one["content"], one["id"]] for one in group]
            for late, group in enumerate(groups)
        ],
        "skipped": [[number, names[number]] for number in sorted({*tokenizer.skipped, tokenizer.end_of_text})],
        "end_of_text": tokenizer.end_of_text,
        "starts_with": tokenizer.starts_with,
        "merges": [[ids[one], ids[two]] for one, two in pairs],
        "tokens": " ".join(base64.b64encode(token).decode() for token in tokens),
    }


def _unknown(step: Mapping[str, Any], types: Sequence[str] = ("NFC", "Replace", "Prepend")) -> str | None:
    """Return what a page's script cannot do in a tokenizer step: its type, if not in `types`, or a feature; or None."""
    if step["type"] not in types or (step["type"] == "Split" and "Regex" not in step["pattern"]):
        return step["type"]
    return "add_prefix_space" if step["type"] == "ByteLevel" and step["add_prefix_space"] else None


def _cut(step: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a pre-tokenizer step as data for the script of a page; None if the step does not split a text."""
    if step["type"] == "Metaspace":
        return {"prepend_scheme": "always", "split": True, **step}
    if step["type"] == "Digits":
        return {"pattern": javascript_pattern(r"\p{N}" if step["individual_digits"] else r"\p{N}+")}
    if step["type"] == "ByteLevel":
        return {"pattern": javascript_pattern(GPT2_PATTERN)} if step.get("use_regex", True) else None
    return {"pattern": javascript_pattern(step["pattern"]["Regex"])}


def javascript_pattern(pattern: str) -> str:
    """Translate a pattern of `text.split_patterns` to a regular expression of JavaScript with the flag u."""

    def translated(match: re.Match[str]) -> str:
        if match[1] is None:
            return _one_of(match[0])
        return f"(?:{re.sub(rf'{_CLASS.pattern}|[a-z]', lambda one: _one_of(f'(?i:{one[0]})'), match[1])})"

    # in these patterns, nothing after a possessive repetition could match what a greedy one gives back
    greedy = _POSSESSIVE.sub(r"\1", pattern)
    return re.sub(f"{_WITHOUT_CASE.pattern}|{_CLASS.pattern}", translated, greedy)


@cache  # half a second each, and patterns share most of them
def _one_of(single: str) -> str:
    """Return a JavaScript character class of all code points that tiktoken matches with the pattern `single`."""
    alone = BytePairTokenizer("bpe", single, [bytes([byte]) for byte in range(256)])
    every_character = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x110000))))
    ids = alone.encoding.encode_to_numpy(every_character)
    points = code_points(ids.astype(np.uint8).tobytes().decode("utf-8")).astype(np.int64)
    firsts = points[np.diff(points, prepend=-2) != 1].tolist()  # of runs of neighbours
    lasts = points[np.diff(points, append=-2) != 1].tolist()
    runs = zip(map(_letter, firsts), map(_letter, lasts), strict=True)
    return "[" + "".join(one if one == last else f"{one}-{last}" for one, last in runs) + "]"


def _letter(point: int) -> str:
    return chr(point) if chr(point).isascii() and chr(point).isalnum() else f"\\u{{{point:X}}}"
