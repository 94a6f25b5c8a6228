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


def by_hand(ids: list[int], position: int, order: int = ORDER) -> dict[int, float]:
    """The distribution of Witten and Bell at a position, by what stands elsewhere."""

    def before(at: int) -> list[int]:
        return [ids[i] if i >= 0 else -1 for i in range(at - order, at)]

    others = [at for at in range(len(ids)) if at != position and before(at) == before(position)]
    times = Counter(ids[at] for at in others)
    if order == 0:
        return {token: count / len(others) for token, count in times.items()}
    shorter = by_hand(ids, position, order - 1)
    whole = len(others) + len(times)
    return {t: (times[t] + len(times) * p) / whole if whole else p for t, p in shorter.items()}


@pytest.mark.parametrize("ids", [[0, 1, 0, 2, 0, 1, 0, 1, 2, 0, 1, 0], [5, 5, 5, 5], [0, 1, 2, 3]])
def test_targets_are_drawn_as_counts_by_hand_say(ids: list[int]) -> None:
    counts, uniform = NgramTargets(np.array(ids, np.int32), 0.5, seed=0), (np.arange(5040) + 0.5) / 5040
    for position in range(len(ids)):
        drawn = Counter(counts.draw(np.full(5040, position), uniform).tolist())
        assert {t: n / 5040 for t, n in drawn.items()} == pytest.approx(by_hand(ids, position), abs=1e-3)


def test_what_follows_only_here_is_never_its_own_reason() -> None:
    ids = np.array([1, 2, 3, 1, 2, 3, 1, 2, 4], np.int32)  # 4 stands nowhere else
    drawn = NgramTargets(ids, 0.5, seed=0).draw(np.full(1000, 8), np.linspace(0, 1, 1000, endpoint=False))
    assert 4 not in drawn
    assert (drawn == 3).mean() > 0.8  # after 1, 2


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
