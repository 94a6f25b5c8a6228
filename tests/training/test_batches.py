from __future__ import annotations

import numpy as np
import pytest
import torch

from gpt_cli.training.batches import Batches


def test_targets_are_one_token_ahead() -> None:
    inputs, targets = Batches(torch.arange(100, dtype=torch.int32), 8, 4, seed=0)(0)
    assert inputs.shape == targets.shape == (4, 8)
    assert (targets == inputs + 1).all()


def test_a_batch_is_a_function_of_seed_and_step() -> None:
    ids = torch.arange(1000, dtype=torch.int32)
    batches = Batches(ids, 8, 4, seed=0)
    later = batches(77)[0]
    batches(3)
    assert (Batches(ids, 8, 4, seed=0)(77)[0] == later).all()
    assert (Batches(ids, 8, 4, seed=1)(77)[0] != later).any()


def test_an_epoch_sees_every_window_once_and_the_next_one_cuts_elsewhere() -> None:
    batches = Batches(torch.arange(1001, dtype=torch.int32), 10, 3, seed=5)
    count = batches.windows_per_epoch
    starts = np.concatenate([batches(step)[0][:, 0] for step in range(count)])
    epochs = starts.reshape(3, count)
    for epoch in epochs:
        assert (np.diff(np.sort(epoch)) == 10).all()
    assert len({int(epoch.min()) for epoch in epochs}) > 1
    assert (np.argsort(epochs[0]) != np.argsort(epochs[1])).any()
    assert max(batches(step)[1].max() for step in range(count)) <= 1000


@pytest.mark.parametrize("length", [9, 10, 16, 17, 25])
def test_short_texts_have_at_least_one_window(length: int) -> None:
    batches = Batches(torch.arange(length, dtype=torch.int32), 8, 2, seed=0)
    for step in range(20):
        assert batches(step)[1].max() < length
