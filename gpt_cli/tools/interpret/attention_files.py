"""Encode attention as npz, safetensors, json, csv, png, svg, pdf or html, by the file's ending. Needs no torch."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors.numpy

from gpt_cli.attention_maps.file_formats import written_bytes
from gpt_cli.attention_maps.head_metrics import COLUMNS, LEAST_TOKENS, ROLES, HeadScores
from gpt_cli.common.chunks import gathered, json_pieces
from gpt_cli.common.drawing.file_types import PICTURES
from gpt_cli.common.drawing.token_labels import STEPS, Origin, inert_cell, label_of
from gpt_cli.common.host import Notify, ignored
from gpt_cli.tools.interpret.lens.view import CELL_BYTES, lens_content
from gpt_cli.tools.pages.html_page import ATTENTION, build_page, packed

if TYPE_CHECKING:
    from gpt_cli.attention_maps.logit_attribution import Writes
    from gpt_cli.attention_maps.patterns import AttentionDump

_FEW = 2**18  # this many numbers of two bytes still make a file below a megabyte


def encode_dump(
    dump: AttentionDump, ending: str, notice: Notify = ignored, count: Callable[[int], object] = lambda _: None
) -> Iterator[bytes]:
    """Encode the attention in `dump` in the format `ending`, such as .csv; yield JSON and CSV in pieces, others whole.

    `notice` receives a line on what a picture leaves out, `count` the number of array rows written since its last call.
    """
    if ending in PICTURES:
        from gpt_cli.attention_maps.picture import draw  # loads matplotlib, which takes half a second

        yield draw(dump, notice, kind=ending[1:])
    elif ending in (".json", ".csv"):
        pieces = _csv(dump, count) if ending == ".csv" else json_pieces({"tokens": dump.tokens, **_arrays(dump)}, count)
        yield from (piece.encode() for piece in gathered(pieces))
    else:
        yield {".npz": _npz, ".safetensors": _safetensors, ".html": attention_page}[ending](dump)


def num_rows(dump: AttentionDump, ending: str) -> int | None:
    """Number of array rows that `encode_dump` writes to .json or .csv, for a progress bar; None for other formats."""
    stages = {".json": dump.stages, ".csv": {"weights": dump.weights}}.get(ending)
    return stages and sum(array[..., 0].size for array in stages.values())


def _npz(dump: AttentionDump) -> bytes:
    buffer = io.BytesIO()
    arrays: dict[str, Any] = _arrays(dump)
    np.savez_compressed(buffer, **arrays, tokens=np.array(dump.tokens, dtype=np.str_))
    return buffer.getvalue()


def _safetensors(dump: AttentionDump) -> bytes:
    arrays = {name: np.ascontiguousarray(array) for name, array in _arrays(dump).items()}
    return safetensors.numpy.save(arrays, {"tokens": json.dumps(dump.tokens, ensure_ascii=False)})


def _arrays(dump: AttentionDump) -> dict[str, np.ndarray]:
    """Return a dump's arrays by name; head numbers are in `heads`, or in `head_numbers` if `heads` has head outputs."""
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
    """Yield CSV lines of weights on or below the diagonal; no token acts as a formula. `count` receives 1 per query."""
    tokens = ['"' + inert_cell(token).replace('"', '""') + '"' for token in dump.tokens]
    yield "layer,head,query,key,query_token,key_token,weight\n"
    for layer, of_layer in zip(dump.layers, dump.weights, strict=True):
        for head, of_head in zip(dump.heads, of_layer, strict=True):
            for query, row in enumerate(of_head):
                first, second = f"{layer},{head},{query}", tokens[query]
                weights = enumerate(row[: query + 1].astype(str).tolist())
                yield "".join(f"{first},{key},{second},{tokens[key]},{weight}\n" for key, weight in weights)
                count(1)


def attention_page(dump: AttentionDump, title: str = "") -> bytes:
    """Return an HTML page with the heading `title`: attention, head scores and, if `dump` has them, predictions."""
    assert dump.scores is not None
    content = dump_content(dump) | {
        "title": title,
        "scores": scores_content([dump.scores]),
        "writes": dump.writes and writes_content(dump.writes, dump.texts),
        "lens": lens_content([dump.lens]) if dump.lens else None,
    }
    return build_page(ATTENTION, content)


def page_bytes(num_heads: int, num_tokens: int) -> int:
    """Estimate the most bytes that the data of an attention page takes; `num_heads` counts the heads of all layers."""
    numbers = num_heads * num_tokens * (num_tokens + 1) // 2
    of_head = written_bytes(num_heads, num_tokens)[1] + CELL_BYTES * num_tokens
    packed_bytes = (2 if numbers <= _FEW else 1) * numbers + num_heads * of_head
    return packed_bytes * 4 // 3  # in base64


def dump_content(dump: AttentionDump) -> dict[str, object]:
    """Return the data of an HTML page as a JSON object: tokens, attention weights, generated tokens' probabilities."""
    triangles = dump.weights[..., *np.tril_indices(len(dump.tokens))]  # [layers, heads, T (T + 1) / 2]
    weights = quantise(triangles, 65535 if triangles.size <= _FEW else 255)
    content = weights_content(dump.tokens, dump.layers, dump.heads, weights, dump.origin)
    return content | {"generated": [asdict(prediction) for prediction in dump.predictions]}


def weights_content(
    tokens: Sequence[str], layers: Sequence[int], heads: Sequence[int], weights: np.ndarray, origin: Origin
) -> dict[str, object]:
    """Return data for an HTML page: tokens, layers, heads, attention weights and `origin` (checkpoint, step, prompt).

    `weights` are lower triangles [..., layers, heads, T (T + 1) / 2] of integers from `quantise`. On a page by training
    step, every step after the first has the differences from the step before it, modulo 256.
    """
    return {
        "tokens": tokens,
        "labels": [{"text": label_of(token, limit=None), "short": label_of(token)} for token in tokens],
        "layers": layers,
        "heads": heads,
        "generated": [],
        "colours": STEPS,
        "origin": asdict(origin) | {"prompt": label_of(origin.prompt, limit=80)},
        "levels": np.iinfo(weights.dtype).max,
        "weights": packed(weights.tobytes()),
    }


def scores_content(frames: Sequence[HeadScores], packed_scores: Sequence[str] = COLUMNS) -> dict[str, object]:
    """Pack `packed_scores` of heads for an HTML page: [frames, layers, heads, scores], with a frame per training step.

    The page also gets the names of all scores, and the least scores for roles (induction: 0.4).
    """
    numbers = np.stack([np.stack([scores[name] for name in packed_scores], axis=-1) for scores in frames])
    content = packed(numbers.astype("<f4").tobytes())
    return {"columns": COLUMNS, "roles": [*ROLES.items()], "least_tokens": LEAST_TOKENS, "numbers": content}


def writes_content(writes: Writes, texts: Mapping[int, str]) -> dict[str, object]:
    """Return data for an HTML page: the tokens whose logits each head raises most (index 0) and lowers most (index 1).

    `texts` maps token ids to texts. The result has its own list `texts`; its `tokens` [2, layers, heads, T, top] are
    indices in this list. Its integers `logits` times `unit` are changes of logits, to within max |change| / 65534.
    """
    logits = np.stack([writes.raised_by, writes.lowered_by])
    unit = float(np.abs(logits).max()) / 32767 or 1.0
    unique_ids, places = np.unique([writes.raised, writes.lowered], return_inverse=True)
    return {
        "top": logits.shape[-1],
        "texts": [label_of(texts[token], limit=None) for token in unique_ids.tolist()],
        "tokens": packed(places.astype("<u4").tobytes()),
        "unit": unit,
        "logits": packed(np.rint(logits / unit).astype("<i2").tobytes()),
    }


def quantise(weights: np.ndarray, levels: int) -> np.ndarray:
    """Return sqrt(w) * levels for attention weights w in 0 to 1, rounded to unsigned integers.

    (integer / levels)^2 differs from w by at most sqrt(w) / levels + 1 / (4 levels^2): small weights differ least.
    """
    return np.rint(np.sqrt(weights, dtype=np.float64) * levels).astype("<u2" if levels > 255 else "u1")
