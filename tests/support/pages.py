"""Attention to make pages and pictures of, and the content of a page."""

from __future__ import annotations

import base64
import json
import re
import zlib
from typing import Any

import numpy as np

from gpt_cli.inspecting.dump import AttentionDump, Chance, Origin


def dump_of(
    tokens: list[str], weights: np.ndarray, chances: tuple[Chance, ...] = (), origin: Origin | None = None
) -> AttentionDump:
    layers, heads, count, _ = weights.shape
    return AttentionDump(
        tokens=tuple(tokens),
        token_ids=tuple(range(count)),
        layers=tuple(range(layers)),
        heads=tuple(range(heads)),
        stages={"weights": weights},
        chances=chances,
        origin=origin,
    )


def random_weights(layers: int, heads: int, count: int) -> np.ndarray:
    """Softmax of normal numbers three wide: sharp and flat rows, hard to compress."""
    scores = np.random.default_rng(0).normal(scale=3, size=(layers, heads, count, count))
    powers = np.where(np.tri(count, dtype=bool), np.exp(scores), 0)
    return (powers / powers.sum(-1, keepdims=True)).astype(np.float32)


def content_of(page: bytes) -> dict[str, Any]:
    found = re.search(rb'<script type="application/json" id="content">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


def restored(page: bytes) -> np.ndarray:
    """The weights of a page, [layers, heads, T (T + 1) / 2]."""
    content = content_of(page)
    numbers = np.frombuffer(
        zlib.decompress(base64.b64decode(content["weights"])), "<u2" if content["levels"] > 255 else "u1"
    )
    return (numbers / content["levels"]).reshape(len(content["layers"]), len(content["heads"]), -1) ** 2
