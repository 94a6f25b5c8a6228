"""Attention as a file: npz, safetensors, json, csv, png, svg or html, by the ending of its name."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from gpt_cli.files import write_durably
from gpt_cli.inspecting.attention_page import attention_page
from gpt_cli.inspecting.cells import inert
from gpt_cli.inspecting.dump import AttentionDump
from gpt_cli.inspecting.formats import PICTURES, format_of


def write_dump(path: Path, dump: AttentionDump, notice: Callable[[str], object] = lambda _: None) -> None:
    """Write a dump durably in the format of its ending; `notice` receives what a picture cannot show."""
    write_durably(path, [as_bytes(dump, format_of(path), notice)])


def as_bytes(dump: AttentionDump, ending: str, notice: Callable[[str], object] = lambda _: None) -> bytes:
    """A dump as the content of a file of that ending, one of FORMATS."""
    if ending in PICTURES:
        from gpt_cli.inspecting.picture import draw  # loads matplotlib, which takes half a second

        return draw(dump, notice, kind=ending[1:])
    return _WRITERS[ending](dump)


def _npz(dump: AttentionDump) -> bytes:
    buffer = io.BytesIO()
    arrays: dict[str, Any] = _arrays(dump)
    np.savez_compressed(buffer, **arrays, tokens=np.array(dump.tokens, dtype=np.str_))
    return buffer.getvalue()


def _safetensors(dump: AttentionDump) -> bytes:
    arrays = {name: np.ascontiguousarray(array) for name, array in _arrays(dump).items()}
    return safetensors.numpy.save(arrays, {"tokens": json.dumps(dump.tokens, ensure_ascii=False)})


def _json(dump: AttentionDump) -> bytes:
    content: dict[str, Any] = {"tokens": dump.tokens} | {name: array.tolist() for name, array in _arrays(dump).items()}
    return json.dumps(content, ensure_ascii=False, allow_nan=False).encode()


def _arrays(dump: AttentionDump) -> dict[str, np.ndarray]:
    """All arrays by name. `heads` contains the numbers of the heads; beside the stage of that name, which is their
    output, the numbers are `head_numbers`."""
    numbers = "head_numbers" if "heads" in dump.stages else "heads"
    arrays = dict(dump.stages) | {
        "token_ids": np.array(dump.token_ids),
        "layers": np.array(dump.layers),
        numbers: np.array(dump.heads),
    }
    if dump.chances:
        arrays["generated_probabilities"] = np.array([chance.probability for chance in dump.chances])
        arrays["generated_ranks"] = np.array([chance.rank for chance in dump.chances])
    return arrays


def _csv(dump: AttentionDump) -> bytes:
    """One line for each weight on or below the diagonal; tokens are `inert`."""
    text, tokens = io.StringIO(), [inert(token) for token in dump.tokens]
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    text.write("layer,head,query,key,query_token,key_token,weight\n")
    for layer, of_layer in zip(dump.layers, dump.weights, strict=True):
        for head, of_head in zip(dump.heads, of_layer, strict=True):
            for query, row in enumerate(of_head):
                for key, weight in enumerate(row[: query + 1].astype(str).astype(float)):
                    writer.writerow([layer, head, query, key, tokens[query], tokens[key], weight])
    return text.getvalue().encode()


_WRITERS: dict[str, Callable[[AttentionDump], bytes]] = {
    ".npz": _npz,
    ".safetensors": _safetensors,
    ".json": _json,
    ".csv": _csv,
    ".html": attention_page,
}
