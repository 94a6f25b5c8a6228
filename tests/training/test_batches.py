import os
from pathlib import Path

import numpy as np
import pytest
import torch
from support.helpers import small_config

from gpt_cli.text import token_files
from gpt_cli.text.token_files import HEADER_BYTES, TokensOnDisk, TokenWriter
from gpt_cli.training import batches as module
from gpt_cli.training.batches import Batches, PackedBatches, Sequences, batches_of


@pytest.fixture
def on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TokensOnDisk:
    """The ids 0..999 in parts of 70."""
    monkeypatch.setattr(token_files, "PART_TOKENS", 70)
    writer = TokenWriter(tmp_path, np.uint16)
    for start in range(0, 1000, 35):
        writer.add(np.arange(start, min(start + 35, 1000), dtype=np.uint16))
    return writer.finish({})


def batch(batches: Batches | PackedBatches, step: int) -> Sequences:
    return batches.windows(torch.from_numpy(batches.numbers(step)))


def test_targets_are_one_token_ahead() -> None:
    inputs, targets, *_ = batch(Batches(torch.arange(100, dtype=torch.int32), 8, 4, seed=0), 0)
    assert inputs.shape == targets.shape == (4, 8)
    assert (targets == inputs + 1).all()


def test_a_batch_is_a_function_of_seed_and_step() -> None:
    ids = torch.arange(1000, dtype=torch.int32)
    batches = Batches(ids, 8, 4, seed=0)
    later = batch(batches, 77)[0]
    batch(batches, 3)
    assert (batch(Batches(ids, 8, 4, seed=0), 77)[0] == later).all()
    assert (batch(Batches(ids, 8, 4, seed=1), 77)[0] != later).any()


@pytest.mark.parametrize("listed", [True, False])
def test_an_epoch_sees_every_window_once_and_the_next_one_cuts_elsewhere(
    listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that is too long for a list of its windows."""
    if not listed:
        monkeypatch.setattr(module, "LISTED_WINDOWS", 98)
        monkeypatch.setattr(module, "_order", pytest.fail)
    batches = Batches(torch.arange(1001, dtype=torch.int32), 10, 3, seed=5)
    count = batches.windows_per_epoch
    assert count == 99
    starts = np.concatenate([batch(batches, step)[0][:, 0] for step in range(count)])
    epochs = starts.reshape(3, count)
    for epoch in epochs:
        assert (np.diff(np.sort(epoch)) == 10).all()
    assert len({int(epoch.min()) for epoch in epochs}) > 1
    assert (np.argsort(epochs[0]) != np.argsort(epochs[1])).any()
    assert max(batch(batches, step)[1].max() for step in range(count)) <= 1000


@pytest.mark.parametrize("length", [9, 10, 16, 17, 25])
def test_short_texts_have_at_least_one_window(length: int) -> None:
    batches = Batches(torch.arange(length, dtype=torch.int32), 8, 2, seed=0)
    for step in range(20):
        assert batch(batches, step)[1].max() < length


@pytest.mark.parametrize("context_length", [1, 8, 69, 200, 999])
def test_batches_read_from_the_disk_are_those_cut_in_memory(on_disk: TokensOnDisk, context_length: int) -> None:
    config = small_config(f"model.context_length={context_length}", "train.batch_size=4")
    cut, read = (batches_of(ids, config, torch.device("cpu")) for ids in (np.arange(1000, dtype=np.uint16), on_disk))
    for step in [*range(cut.windows_per_epoch), 10**6]:
        for expected, found in zip(batch(cut, step)[:2], batch(read, step)[:2], strict=True):
            assert expected is not None
            assert found is not None
            assert found.dtype == torch.int64
            assert torch.equal(expected, found)


def test_the_windows_of_the_next_step_are_announced(on_disk: TokensOnDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    announced: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "POSIX_FADV_WILLNEED", 3, raising=False)
    monkeypatch.setattr(
        os, "posix_fadvise", lambda _, offset, length, advice: announced.append((offset, length)), raising=False
    )
    batches = Batches(on_disk, 8, 4, seed=0)
    batches.numbers(5)
    expected = []
    for start in batches.starts(6).tolist():
        first = min(9, 70 - start % 70)  # what is left of the part in which the window begins
        expected += [(HEADER_BYTES + 2 * (start % 70), 2 * first)]
        expected += [(HEADER_BYTES, 2 * (9 - first))] if first < 9 else []
    assert announced == expected
