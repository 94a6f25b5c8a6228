"""Encode attention as npz, safetensors, json, csv, png, svg, pdf or html, by the ending of the file name."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import safetensors.numpy

from gpt_cli.attention_maps.patterns import AttentionDump
from gpt_cli.common.chunks import gathered, json_pieces
from gpt_cli.common.drawing.file_types import PICTURES
from gpt_cli.common.drawing.token_labels import inert_cell
from gpt_cli.common.host import Notify, ignored
from gpt_cli.tools.interpret.attention_page import attention_page


def num_rows(dump: AttentionDump, ending: str) -> int | None:
    """Number of attention rows in a .json or .csv file; None for other endings, whose files are written at once."""
    stages = {".json": dump.stages, ".csv": {"weights": dump.weights}}.get(ending)
    return stages and sum(array[..., 0].size for array in stages.values())


def encode_dump(
    dump: AttentionDump,
    ending: str,
    notice: Notify = ignored,
    count: Callable[[int], object] = lambda _: None,
) -> Iterator[bytes]:
    """Yield a dump in the format of `ending`, one of FORMATS: json and csv row by row, other formats at once.

    `notice` receives what a picture leaves out, `count` the number of rows finished since its last call.
    """
    if ending in PICTURES:
        from gpt_cli.attention_maps.picture import draw  # loads matplotlib, which takes half a second

        yield draw(dump, notice, kind=ending[1:])
    elif ending in (".json", ".csv"):
        is_csv = ending == ".csv"
        pieces = _csv(dump, count) if is_csv else json_pieces({"tokens": dump.tokens, **_arrays(dump)}, count)
        yield from (piece.encode() for piece in gathered(pieces))
    else:
        yield {".npz": _npz, ".safetensors": _safetensors, ".html": attention_page}[ending](dump)


def _npz(dump: AttentionDump) -> bytes:
    buffer = io.BytesIO()
    arrays: dict[str, Any] = _arrays(dump)
    np.savez_compressed(buffer, **arrays, tokens=np.array(dump.tokens, dtype=np.str_))
    return buffer.getvalue()


def _safetensors(dump: AttentionDump) -> bytes:
    arrays = {name: np.ascontiguousarray(array) for name, array in _arrays(dump).items()}
    return safetensors.numpy.save(arrays, {"tokens": json.dumps(dump.tokens, ensure_ascii=False)})


def _arrays(dump: AttentionDump) -> dict[str, np.ndarray]:
    """Return a dump's arrays by name; head indices are `heads`, or `head_numbers` where `heads` are head outputs."""
    numbers = "head_numbers" if "heads" in dump.stages else "heads"
    arrays = dict(dump.stages) | {
        "token_ids": np.array(dump.token_ids),
        "layers": np.array(dump.layers),
        numbers: np.array(dump.heads),
    }
    if dump.predictions:
        arrays["generated_probabilities"] = np.array([prediction.probability for prediction in dump.predictions])
        arrays["generated_ranks"] = np.array([prediction.rank for prediction in dump.predictions])
    return arrays


def _csv(dump: AttentionDump, count: Callable[[int], object]) -> Iterator[str]:
    """Yield a CSV header, then lines of the weights on or below the diagonal; no token can act as a formula."""
    tokens = ['"' + inert_cell(token).replace('"', '""') + '"' for token in dump.tokens]
    yield "layer,head,query,key,query_token,key_token,weight\n"
    for layer, of_layer in zip(dump.layers, dump.weights, strict=True):
        for head, of_head in zip(dump.heads, of_layer, strict=True):
            for query, row in enumerate(of_head):
                first, second, weights = f"{layer},{head},{query}", tokens[query], row[: query + 1].astype(str)
                lines = [
                    f"{first},{key},{second},{tokens[key]},{weight}\n" for key, weight in enumerate(weights.tolist())
                ]
                yield "".join(lines)
                count(1)
