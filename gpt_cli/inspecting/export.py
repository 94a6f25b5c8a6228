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

from gpt_cli.errors import UsageError, shown
from gpt_cli.files import write_durably
from gpt_cli.inspecting.dump import AttentionDump
from gpt_cli.inspecting.page import build_page


def check_format(path: Path, stages: tuple[str, ...], file_dtype: str = "float32") -> None:
    """Raises UsageError when the ending of a name is no format, or the format cannot hold the stages or the type."""
    if path.suffix not in FORMATS:
        raise UsageError("--out", f"{shown(path.name)} has no known ending", f"use {' '.join(FORMATS)}")
    if path.suffix in (".csv", ".html", *_PICTURES) and set(stages) != {"weights"}:
        raise UsageError("--stage", f"{path.suffix} holds weights only", "use .npz, .safetensors or .json for others")
    if file_dtype != "float32" and path.suffix not in (".npz", ".safetensors"):
        raise UsageError("--file-dtype", f"{path.suffix} has no {file_dtype}", "use .npz or .safetensors")


def write_dump(path: Path, dump: AttentionDump, notice: Callable[[str], object] = lambda _: None) -> None:
    """Write a dump durably in the format of its ending; `notice` is told what a picture cannot show."""
    if path.suffix in _PICTURES:
        from gpt_cli.inspecting.picture import draw  # loads matplotlib, which takes half a second

        write_durably(path, [draw(dump, notice, kind=path.suffix[1:])])
    else:
        write_durably(path, [_WRITERS[path.suffix](dump)])


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
    """All arrays by name. `heads` are the numbers of the heads; where the stage of that name was asked for,
    it is their output, and the numbers are `head_numbers`."""
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
    """One line for each weight on or below the diagonal."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    text.write("layer,head,query,key,query_token,key_token,weight\n")
    for layer, of_layer in zip(dump.layers, dump.weights, strict=True):
        for head, of_head in zip(dump.heads, of_layer, strict=True):
            for query, row in enumerate(of_head):
                for key, weight in enumerate(row[: query + 1].astype(str).astype(float)):
                    writer.writerow([layer, head, query, key, dump.tokens[query], dump.tokens[key], weight])
    return text.getvalue().encode()


_WRITERS: dict[str, Callable[[AttentionDump], bytes]] = {
    ".npz": _npz,
    ".safetensors": _safetensors,
    ".json": _json,
    ".csv": _csv,
    ".html": build_page,
}
_PICTURES = (".png", ".svg")
FORMATS = (*_WRITERS, *_PICTURES)
# of a name's ending, bytes for each number: of memory while it is written, and of the file before it is compressed
_MEMORY = {".npz": 16, ".safetensors": 16, ".json": 140, ".csv": 80, ".html": 16, ".png": 100, ".svg": 200}
_DISK = {".npz": 4, ".safetensors": 4, ".json": 24, ".csv": 36, ".html": 2, ".png": 4, ".svg": 4}
_MAP_MEMORY, _MAP_DISK = 11_000_000, 60_000  # bytes of the canvas of dots below each map of a png


def writing_bytes(path: Path, num_numbers: int) -> tuple[int, int]:
    """About what memory and what disk one head's share of a file takes, from how many numbers the head has."""
    memory, disk = (table[path.suffix] * num_numbers for table in (_MEMORY, _DISK))
    return (memory + _MAP_MEMORY, disk + _MAP_DISK) if path.suffix == ".png" else (memory, disk)
