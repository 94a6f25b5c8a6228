"""Scores over windows of a text."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.helpers import sharp_model

from gpt_cli.inspecting.heads import scores
from gpt_cli.inspecting.heads.columns import COLUMNS
from gpt_cli.inspecting.heads.scores import score_heads
from gpt_cli.inspecting.heads.windows import score_windows

IDS = np.arange(100, dtype=np.uint16) % 7


def test_windows_are_read_from_start_to_end_in_batches_that_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = sharp_model(7)  # of context_length 16
    chosen = [(0, 16), (32, 48), (96, 99)]
    counts: list[int] = []
    found = score_windows(model, IDS, chosen, end_of_text=6, count=counts.append)
    batches = [torch.from_numpy(IDS[start:end].astype(np.int64))[None] for start, end in chosen]
    expected = score_heads(model, batches, end_of_text=6)
    for name in COLUMNS:
        np.testing.assert_allclose(found.columns[name], expected.columns[name], rtol=1e-12)
    assert counts == [32, 3]
    monkeypatch.setattr(scores, "WEIGHTS_AT_ONCE", 1)
    one_by_one = score_windows(model, IDS, chosen, end_of_text=6, count=counts.append)
    for name in COLUMNS:
        np.testing.assert_allclose(one_by_one.columns[name], expected.columns[name], rtol=1e-12)
    assert counts[2:] == [16, 16, 3]


def test_only_the_chosen_heads_are_scored() -> None:
    model = sharp_model(7)
    whole = score_windows(model, IDS, [(0, 16)], end_of_text=6)
    found = score_windows(model, IDS, [(0, 16)], end_of_text=6, layers=(1,), heads=(1,))
    assert (found.layers, found.heads) == ((1,), (1,))
    for name in COLUMNS:
        np.testing.assert_allclose(found.columns[name], whole.columns[name][1:, 1:], rtol=1e-12)
