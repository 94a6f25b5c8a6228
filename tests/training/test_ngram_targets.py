from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from support.helpers import small_config
from support.runs import assert_same, start, tensors

from gpt_cli.common.host import Host
from gpt_cli.errors import UsageError
from gpt_cli.text.token_files import TokensOnDisk
from gpt_cli.training.batches import Batches, batches_of
from gpt_cli.training.loop import train
from gpt_cli.training.ngram_targets import ORDER, NgramTargets

CPU = torch.device("cpu")


def test_a_position_draws_what_follows_its_longest_trusted_context_elsewhere() -> None:
    ids = [0, 1, 2, 0, 1, 3, 4, 1, 2, 0, 1, 2]
    counts, uniform = NgramTargets(np.array(ids, np.int32), 0.5, seed=0), (np.arange(5040) + 0.5) / 5040
    for position in range(len(ids)):
        expected, left = Counter[int](), 1.0
        for order in range(ORDER, -1, -1):
            before = [ids[i] if i >= 0 else -1 for i in range(position - order, position)]
            others = [
                ids[at]
                for at in range(len(ids))
                if at != position and [ids[i] if i >= 0 else -1 for i in range(at - order, at)] == before
            ]
            trust = float(counts.orders[order][2][position])
            assert trust == 0.0 or others
            for token in others:
                expected[token] += left * trust / len(others)
            left *= 1 - trust
        assert left == 0
        drawn = Counter(counts.draw(np.full(5040, position), uniform).tolist())
        assert [drawn[t] / 5040 for t in range(5)] == pytest.approx([expected[t] for t in range(5)], abs=2e-3)


def test_contexts_are_trusted_as_often_as_the_text_agrees_with_them() -> None:
    sure = np.tile(np.arange(50), 40)  # one token decides the next
    assert NgramTargets(sure, 0.5, seed=0).orders[1][2][100:].min() > 0.99
    random = np.random.default_rng(0).integers(0, 50, 2000)  # which decides nothing
    assert NgramTargets(random, 0.5, seed=0).orders[1][2].mean() < 0.1


def test_what_follows_only_here_is_never_its_own_reason() -> None:
    ids = np.array([1, 2, 3, 1, 2, 3, 1, 2, 4], np.int32)  # 4 stands nowhere else
    drawn = NgramTargets(ids, 0.5, seed=0).draw(np.full(1000, 8), np.linspace(0, 1, 1000, endpoint=False))
    assert 4 not in drawn
    assert (drawn == 3).mean() > 0.7  # after 1, 2


def test_a_share_of_the_targets_is_replaced_and_another_one_in_each_step() -> None:
    ids = np.random.default_rng(0).integers(0, 500, 20_000).astype(np.int32)
    batches = Batches.of(ids, small_config("model.context_length=64", "train.ngram_targets=0.25"), CPU)
    plain = Batches.of(ids, small_config("model.context_length=64"), CPU)
    changed = []
    for step in range(40):
        (inputs, targets), (same, next_tokens) = batches(step), plain(step)
        assert torch.equal(inputs, same)
        changed.append((targets != next_tokens).float().mean().item())
        assert torch.equal(batches(step, slice(1, 3))[1], targets[1:3])  # of another process
    assert np.mean(changed) == pytest.approx(0.25, abs=0.02)
    assert len(set(changed)) > 20


def test_a_stopped_run_goes_on_with_the_same_targets(tmp_path: Path) -> None:
    config = small_config("train.ngram_targets=0.5")
    whole = start(tmp_path / "whole", config)
    list(train(whole))
    first = start(tmp_path / "cut", config)
    list(train(first, Host(stop=lambda: 15 if first.progress.step >= 3 else None)))
    second = start(tmp_path / "cut", config, first.directory.newest(print))
    list(train(second))
    assert_same(tensors(whole), tensors(second))


def test_a_text_that_is_not_in_memory_is_refused(tmp_path: Path) -> None:
    on_disk = TokensOnDisk(tmp_path, [], np.dtype(np.uint16), {})
    with pytest.raises(UsageError, match="n-grams of a text that stays on the disk are not counted"):
        batches_of(on_disk, small_config("train.ngram_targets=0.5"), CPU)
