"""What `gpt heads` adds to the rows of heads where it is asked: the tokens that they promote, and their circuits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from gpt_cli.callbacks import Host
from gpt_cli.checkpoints.load import Loaded
from gpt_cli.errors import shown
from gpt_cli.inspecting.heads.attribution import head_writes
from gpt_cli.inspecting.heads.circuits import KINDS, Direction, baseline, composition, directions
from gpt_cli.inspecting.heads.columns import Row
from gpt_cli.text.tokenizer import Tokenizer

TOP = 5  # tokens that a head raises or lowers most, and those of a direction


def promoted(loaded: Loaded, ids: Sequence[int], query: int, layers: Sequence[int], heads: Sequence[int]) -> list[Row]:
    """The tokens that each head raises and lowers most at a position."""
    found = head_writes(loaded.model, ids, queries=[query], top=TOP, layers=layers, heads=heads)

    def tokens(ids: np.ndarray, logits: np.ndarray) -> list[Row]:
        pairs = zip(ids.tolist(), logits.tolist(), strict=True)
        return [{"token": loaded.tokenizer.token_text(id_), "id": id_, "logit": logit} for id_, logit in pairs]

    return [
        {
            "raises": tokens(found.raised[at][0], found.raised_by[at][0]),
            "lowers": tokens(found.lowered[at][0], found.lowered_by[at][0]),
        }
        for at in np.ndindex(found.raised.shape[:2])
    ]


def circuits(
    loaded: Loaded, host: Host, layers: Sequence[int], heads: Sequence[int]
) -> tuple[dict[str, Any], list[Row]]:
    """The composition of each pair of heads, and for each head the directions of `ov` and `qk`."""
    model, tokenizer, pairs = loaded.model, loaded.tokenizer, list[Row]()
    where = shown(loaded.path)
    expected, num_pairs = baseline(model.config.d_model), len(layers) * (len(layers) - 1) // 2
    with host.counting("composing heads", num_pairs, "pairs of layers") as count:
        for below, layer, scores in composition(model, layers, heads, count, where):
            for (kind, reader, writer), score in np.ndenumerate(scores.numpy()):
                place = {"from_layer": below, "from_head": heads[writer], "to_layer": layer, "to_head": heads[reader]}
                pairs.append({"kind": KINDS[kind], **place, "score": float(score), "excess": float(score) - expected})
    rows = list[Row]()
    with host.counting("reading directions", len(layers) * len(heads), "heads") as count:
        for layer in layers:
            for ov, qk in directions(model, layer, heads, where):
                rows.append(
                    {
                        "ov": [_named(each, "reads", "writes", tokenizer) for each in ov],
                        "qk": [_named(each, "queries", "keys", tokenizer) for each in qk],
                    }
                )
                count(1)
    pairs.sort(key=lambda row: -row["score"])  # of equal ones the first stays first
    return {"baseline": expected, "composition": pairs}, rows


def _named(direction: Direction, first: str, second: str, tokenizer: Tokenizer) -> Row:
    def strongest(numbers: Tensor) -> list[str]:
        order = numbers.argsort(descending=True, stable=True)[:TOP]
        return [tokenizer.token_text(token) for token in order.tolist()]

    return {
        "singular_value": direction.singular_value,
        first: strongest(direction.first),
        second: strongest(direction.second),
    }
