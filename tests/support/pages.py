"""Attention to make pages and pictures of, and the content of a page."""

import base64
import json
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpt_cli.attention_maps.head_metrics import COLUMNS, HeadScores
from gpt_cli.attention_maps.logit_attribution import Writes
from gpt_cli.attention_maps.patterns import AttentionDump, Origin, Prediction
from gpt_cli.attention_maps.snapshots import Snapshot, snapshot_bytes
from gpt_cli.checkpoints.run_paths import RunFiles
from gpt_cli.common.files import write_durably
from gpt_cli.common.host import Notify, ignored
from gpt_cli.tools.interpret.attention_files import encode_dump

# timers of a page that run only where TICK lets them, which gives the milliseconds that they would wait
BY_HAND = """() => {
  window.timer = null;
  window.setInterval = (tick, pause) => { window.timer = { tick, pause }; return 1; };
  window.clearInterval = () => { window.timer = null; };
}"""
TICK = "() => { const { tick, pause } = window.timer ?? { tick() {}, pause: null }; tick(); return pause; }"


ORIGIN = Origin("runs/tiny", 5, "a text")


def dump_of(
    tokens: list[str], weights: np.ndarray, predictions: tuple[Prediction, ...] = (), origin: Origin = ORIGIN
) -> AttentionDump:
    layers, heads, count, _ = weights.shape
    ids, of_layers, of_heads = (tuple(range(number)) for number in (count, layers, heads))
    stages, scores = {"weights": weights}, scores_of(layers, heads)
    return AttentionDump(tuple(tokens), ids, of_layers, of_heads, stages, origin, predictions, scores)


def write_dump(path: Path, dump: AttentionDump, notice: Notify = ignored) -> None:
    """Write a dump as `gpt attn-dump --out` does."""
    write_durably(path, encode_dump(dump, path.suffix, notice))


def scores_of(layers: int, heads: int) -> HeadScores:
    """Scores that differ everywhere. The last head is an induction head, the first had no token equal to another."""
    numbers = np.random.default_rng(1).uniform(0, 0.35, (len(COLUMNS), layers, heads))
    columns: dict[str, np.ndarray] = dict(zip(COLUMNS, numbers, strict=True))
    columns["entropy"] *= 10
    columns["induction"][-1, -1] = 0.75
    columns["previous_token"][0, 1:2] = 0.625
    columns["duplicate_token"][0, 0] = np.nan
    return columns


def writes_of(layers: int, heads: int, count: int, num_texts: int, top: int = 3) -> Writes:
    """Ids below `num_texts`, and logits that fall from 8 at most, then rise from -8 at least."""
    draws = np.random.default_rng(2)
    shape = (layers, heads, count, top)
    raised, lowered = (draws.integers(0, num_texts, shape) for _ in range(2))
    by = -np.sort(-draws.uniform(0, 8, (2, *shape)))
    return Writes(raised, by[0].astype(np.float32), lowered, -by[1].astype(np.float32))


def random_weights(layers: int, heads: int, count: int) -> np.ndarray:
    """Softmax of normal numbers three wide: sharp and flat rows, hard to compress."""
    scores = np.random.default_rng(0).normal(scale=3, size=(layers, heads, count, count))
    powers = np.where(np.tri(count, dtype=bool), np.exp(scores), 0)
    return (powers / powers.sum(-1, keepdims=True)).astype(np.float32)


def content_of(page: bytes) -> dict[str, Any]:
    found = re.search(rb'<script type="application/json" id="content">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


def unpacked(text: str, dtype: str) -> np.ndarray:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype)


def restored(page: bytes) -> np.ndarray:
    """The weights of a page, [layers, heads, T (T + 1) / 2]."""
    content = content_of(page)
    numbers = unpacked(content["weights"], "<u2" if content["levels"] > 255 else "u1")
    return (numbers / content["levels"]).reshape(len(content["layers"]), len(content["heads"]), -1) ** 2


def snapshots_of(num_frames: int, layers: int, heads: int, tokens: list[str]) -> list[Snapshot]:
    """Snapshots at steps 1, 10, 20, ...: the last head of the last layer turns to the previous token, others wander."""
    count = len(tokens)
    even = np.tri(count, dtype=np.float32) / np.arange(1, count + 1, dtype=np.float32)[:, None]
    previous = np.eye(count, k=-1, dtype=np.float32)
    previous[0, 0] = 1
    random = random_weights(layers, heads, count)
    found = []
    for frame in range(num_frames):
        share = frame / max(1, num_frames - 1)
        weights = (1 - share) * even + share * random
        weights[-1, -1] = (1 - share) * even + share * previous
        numbers = np.linspace(0.0013, 0.1507, layers * heads).reshape(layers, heads) * (1 + share)
        scores = {name: numbers + place / 100 for place, name in enumerate(COLUMNS)}
        scores["previous_token"] = weights.diagonal(-1, 2, 3).mean(-1)
        scores["duplicate_token"] = np.full((layers, heads), np.nan)
        step = max(1, 10 * frame)
        found.append(
            Snapshot(step, 4 - 2 * share, " ".join(tokens), tuple(range(count)), tuple(tokens), weights, scores)
        )
    return found


def keep(snapshots: Sequence[Snapshot], path: Path) -> RunFiles:
    """The run at a path, with these snapshots, as `gpt train --watch` leaves it."""
    run = RunFiles(path)
    run.attention.mkdir(parents=True)
    for snapshot in snapshots:
        run.snapshot_file(snapshot.step).write_bytes(snapshot_bytes(snapshot))
    return run
