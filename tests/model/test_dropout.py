import numpy as np
import pytest
import torch

from gpt_cli.common import rng
from gpt_cli.model.dropout import DropMasks, Dropout, drop_keys, random_words_on_device

CPU = torch.device("cpu")


def masks_of(rate: float, seed: int = 0, step: int = 0, block: int = 0, first_sequence: int = 0) -> DropMasks:
    return DropMasks(drop_keys(seed, step, 2)[block], first_sequence, rate)


@pytest.mark.parametrize("start", [0, 5, 2**31 - 2, 2**32 - 2])
def test_torch_and_numpy_draw_the_same_words(start: int) -> None:
    key = rng.stream_key(3, "x")
    expected = rng.random_words(key, start, 7).view(np.int32)
    assert random_words_on_device(key, start, 7, CPU).tolist() == expected.tolist()


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.9])
def test_the_rate_is_exact_and_entries_are_independent(rate: float) -> None:
    keep = masks_of(rate, seed=1, step=2).keep("weights", (4, 8, 64, 64), CPU).float()
    count = keep.numel()
    deviation = (rate * (1 - rate) / count) ** 0.5
    assert abs(keep.mean().item() - (1 - rate)) <= 5 * deviation + 2**-16
    if rate:
        flat = keep.flatten() - keep.mean()
        for distance in (1, 2, 64, 64 * 64, 8 * 64 * 64):
            correlation = (flat[:-distance] * flat[distance:]).mean() / flat.square().mean()
            assert abs(correlation.item()) < 5 / count**0.5


def test_masks_differ_by_seed_step_block_and_site() -> None:
    shape = (2, 64)
    masks = [
        masks.keep(site, shape, CPU)
        for masks in (
            masks_of(0.5),
            masks_of(0.5, seed=1),
            masks_of(0.5, step=1),
            masks_of(0.5, block=1),
        )
        for site in ("attention", "feed_forward")
    ]
    assert len({bytes(mask.numpy().tobytes()) for mask in masks}) == 8
    assert torch.equal(masks[0], masks_of(0.5).keep("attention", shape, CPU))


def test_a_sequence_has_its_mask_however_the_batch_is_split() -> None:
    whole = masks_of(0.3).keep("weights", (6, 3, 5), CPU)
    parts = [masks_of(0.3, first_sequence=i).keep("weights", (2, 3, 5), CPU) for i in (0, 2, 4)]
    assert torch.equal(torch.cat(parts), whole)


def test_the_mean_stays_and_evaluation_changes_nothing() -> None:
    x, keep = torch.ones(1000, 100), masks_of(0.2).keep("attention", (1000, 100), CPU)
    dropout = Dropout(0.2)
    kept = dropout(x, keep)
    assert sorted(set(kept.flatten().tolist())) == [0, 1.25]
    assert abs(kept.mean().item() - 1) < 0.01
    assert dropout.eval()(x, keep) is x
