"""Scores of heads whose pattern is built by hand."""

import math

import numpy as np
import pytest
import torch
from support.helpers import sharp_model

from gpt_cli.attention_maps import head_scores
from gpt_cli.attention_maps.head_metrics import COLUMNS, role_of
from gpt_cli.attention_maps.head_scores import (
    PATTERNS,
    induction_of,
    induction_scores,
    num_repeats,
    pattern_sums,
    repeated_length,
    repeated_tokens,
    score_heads,
)
from gpt_cli.common.limits import HEADS_WINDOW
from gpt_cli.model.costs import estimate


def scores_of(weights: torch.Tensor, ids: list[int]) -> dict[str, float]:
    """The means of one head [T, T] on one text."""
    sums, counts = pattern_sums(weights[None, None].float(), torch.tensor([ids]))
    return dict(zip(PATTERNS, (sums[:, 0] / counts).tolist(), strict=True))


def test_a_head_that_looks_at_the_token_before() -> None:
    weights = torch.eye(4).roll(-1, 1).tril()
    weights[1:] = torch.eye(4)[:3]
    weights[0, 0] = 1
    found = scores_of(weights, [7, 8, 9, 7])
    # of the queries 1, 2 and 3, the token before the first one is also the first token
    assert found == pytest.approx(
        {"entropy": 0, "mean_distance": 1, "first_token": 1 / 3, "previous_token": 1, "self": 0, "duplicate_token": 0}
    )


def test_a_head_that_looks_everywhere_evenly() -> None:
    weights = torch.ones(3, 3).tril() / torch.arange(1, 4)[:, None]
    found = scores_of(weights, [5, 5, 5])
    assert found["entropy"] == pytest.approx((math.log(2) + math.log(3)) / 2)
    assert found["mean_distance"] == pytest.approx((1 / 2 + 3 / 3) / 2)
    assert found["first_token"] == found["self"] == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert found["duplicate_token"] == pytest.approx((1 / 2 + 2 / 3) / 2)  # keys 0; keys 0 and 1


def test_only_queries_with_an_earlier_equal_token_count_for_duplicates() -> None:
    weights = torch.eye(4)
    weights[3] = torch.tensor([0.75, 0, 0, 0.25])
    assert scores_of(weights, [1, 2, 3, 1])["duplicate_token"] == pytest.approx(0.75)
    assert math.isnan(scores_of(weights, [1, 2, 3, 4])["duplicate_token"])


def test_an_induction_head_looks_at_the_token_after_the_same_one() -> None:
    weights = torch.eye(6)
    for query in (3, 4, 5):  # a b c a b c: the second a looks at the first b
        weights[query] = torch.eye(6)[query - 2]
    assert induction_of(weights[None, None]).tolist() == [1]
    assert induction_of(torch.eye(6)[None, None]).tolist() == [0]


def test_induction_is_measured_on_as_many_sequences_at_once_as_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    model = sharp_model(31)  # of 2 heads and context_length 16
    sizes: list[int] = []
    model.blocks[0].norm_1.register_forward_hook(lambda *call: sizes.append(len(call[1][0])))
    expected = induction_scores(model, end_of_text=30)
    monkeypatch.setattr(head_scores, "WEIGHTS_AT_ONCE", 3 * 2 * 16**2)
    np.testing.assert_allclose(induction_scores(model, end_of_text=30), expected, rtol=1e-12)
    assert sizes == [8, 3, 3, 2]


def test_a_model_that_takes_long_reads_fewer_sequences_for_induction_and_at_least_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = sharp_model(31)
    operations = 16 * estimate(model.config, 31, micro_batch_size=1, dtype="float32").forward_flops_per_token
    every = [induction_scores(model, end_of_text=30, repeats=number) for number in (8, 3, 1)]
    for most, number, expected in zip((100, 3.5, 0.5), (8, 3, 1), every, strict=True):
        monkeypatch.setattr(head_scores, "MOST_OPERATIONS", int(most * operations))
        assert num_repeats(model) == number
        np.testing.assert_array_equal(induction_scores(model, end_of_text=30), expected)


def test_repeated_tokens_are_different_within_each_half_and_never_end_a_text() -> None:
    ids = repeated_tokens(vocab_size=50, num_tokens=32, end_of_text=7).numpy()
    assert ids.shape == (8, 32)
    assert np.array_equal(ids[:, :16], ids[:, 16:])
    assert all(len(set(row)) == 16 for row in ids)
    assert 7 not in ids


@pytest.mark.parametrize(
    ("vocab_size", "settings", "expected"),
    [
        (257, "context_length=33", 32),
        (257, "context_length=600", 512),  # all tokens but end-of-text, twice
        (2000, "context_length=2048", HEADS_WINDOW),
        (257, "context_length=33 attention_window=[null,5]", 10),  # the last of 5 tokens sees the first one
        (257, "context_length=33 attention_window=40", 32),
    ],
)
def test_every_head_sees_the_first_occurrence_of_repeated_tokens(vocab_size: int, settings: str, expected: int) -> None:
    model = sharp_model(vocab_size, *(f"model.{word}" for word in settings.split()))
    assert repeated_length(model) == expected


def test_a_head_gets_the_first_label_whose_threshold_it_reaches_or_none() -> None:
    assert role_of({"previous_token": 0.5, "induction": 0.39}, 8) == "previous token"
    assert role_of({"first_token": 0.9, "induction": 0.4}, 8) == "induction"
    assert role_of({"first_token": 0.9, "induction": 0.4}, 7) is None, "too short a text"
    assert role_of({"previous_token": 0.49, "first_token": 0.3, "self": 0.21, "duplicate_token": math.nan}, 8) is None


IDS = np.arange(100, dtype=np.uint16) % 7


def test_windows_are_read_from_start_to_end_in_batches_that_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = sharp_model(7)  # of context_length 16
    chosen = [(0, 16), (32, 48), (96, 99)]
    counts: list[int] = []
    found = score_heads(model, IDS, chosen, end_of_text=6, count=counts.append)
    sums, totals = torch.zeros(6, 2, 2), torch.zeros(6)
    for start, end in chosen:
        batch = torch.from_numpy(IDS[start:end].astype(np.int64))[None]
        parts = [pattern_sums(weights.detach(), batch) for weights in model.attention_weights(batch)]
        sums, totals = sums + torch.stack([part for part, _ in parts], 1), totals + parts[0][1]
    for name, means in zip(PATTERNS, sums / totals[:, None, None], strict=True):
        np.testing.assert_allclose(found[name], means, rtol=1e-12)
    # the work begins; half of a batch with each of two layers; then repeated tokens: 6 that are not end-of-text, twice
    assert counts == [0, 16, 16, 1, 2, 48, 48]
    monkeypatch.setattr(head_scores, "WEIGHTS_AT_ONCE", 1)
    one_by_one = score_heads(model, IDS, chosen, end_of_text=6, count=counts.append)
    for name in COLUMNS:
        np.testing.assert_allclose(one_by_one[name], found[name], rtol=1e-12)
    assert counts[7:] == [0, 8, 8, 8, 8, 1, 2, *[6] * 16]


def test_only_the_chosen_heads_are_scored() -> None:
    model = sharp_model(7)
    whole = score_heads(model, IDS, [(0, 16)], end_of_text=6)
    found = score_heads(model, IDS, [(0, 16)], end_of_text=6, layers=(1,), heads=(1,))
    for name in COLUMNS:
        assert found[name].shape == (1, 1)
        np.testing.assert_allclose(found[name], whole[name][1:, 1:], rtol=1e-12)
