import math
from pathlib import Path

import numpy as np
import pytest
import torch
from support.helpers import small_config

from gpt_cli.config import ModelConfig
from gpt_cli.errors import CheckpointError
from gpt_cli.evaluation import nll
from gpt_cli.evaluation.nll import (
    Stretches,
    byte_lengths,
    count_windows,
    in_stretches,
    score,
    score_of,
    standard_error,
    surprisals,
)
from gpt_cli.model import GPT
from gpt_cli.text import token_files
from gpt_cli.text.token_files import TokenWriter, validation_windows
from gpt_cli.text.tokenizers import CharTokenizer
from gpt_cli.training.validation import validation_score

C = 8
TOKENIZER = CharTokenizer("ab今\n")
LENGTHS = byte_lengths(TOKENIZER)
MODEL = (
    GPT(small_config(f"model.context_length={C}").model, TOKENIZER.vocab_size, torch.Generator().manual_seed(0))
    .double()
    .eval()
)
IDS = np.random.default_rng(0).integers(0, 4, 45).astype(np.uint16)


@pytest.mark.parametrize("stride", [1, 3, C // 2, C])
@pytest.mark.parametrize("num_ids", [2, C, C + 1, C + 2, 2 * C + 1, 45])
def test_each_token_is_predicted_once_from_the_tokens_of_its_window(stride: int, num_ids: int) -> None:
    told: list[int] = []
    found = np.concatenate([*surprisals(MODEL, IDS[:num_ids], stride=stride, batch_size=3, count=told.append)])
    assert len(found) == sum(told) == num_ids - 1
    starts = [start for start in range(0, num_ids - 1, stride) if start == 0 or start + C - stride < num_ids - 1]
    assert count_windows(MODEL, num_ids, stride) == len(starts)
    for target in range(1, num_ids):
        # the first window that reaches the token
        window = max(0, -(-(target - C) // stride))
        context = torch.from_numpy(IDS[window * stride : target].astype(np.int64))[None]
        assert C - stride < len(context[0]) <= C or window == 0
        with torch.no_grad():
            expected = -MODEL(context)[0, -1].log_softmax(-1)[int(IDS[target])].item()
        assert found[target - 1] == pytest.approx(expected, abs=1e-10)


def test_logits_of_a_few_positions_at_a_time_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    expected, sizes = np.concatenate([*surprisals(MODEL, IDS, stride=C)]), list[int]()
    monkeypatch.setattr(nll, "LOGITS_AT_ONCE", 3 * TOKENIZER.vocab_size)
    watching = MODEL.final_norm.register_forward_hook(lambda _, __, x: sizes.append(x.shape[1]))
    found = np.concatenate([*surprisals(MODEL, IDS, stride=C, batch_size=1)])
    watching.remove()
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert max(sizes) == 3


def test_a_window_has_no_more_attention_than_memory_should_hold() -> None:
    def length(num_heads: int, context_length: int) -> int:
        return ModelConfig(num_heads=num_heads, context_length=context_length).evaluation_window

    assert [length(heads, 40_960) for heads in (2, 8, 16, 32)] == [8192, 4096, 4096, 2048]
    assert [length(16, most) for most in (128, 3000)] == [128, 3000]


def test_a_stride_of_the_window_is_the_evaluation_of_training() -> None:
    windows = validation_windows(len(IDS), C)
    trained = validation_score(MODEL, TOKENIZER, IDS, windows, batch_size=4, dtype="float32")
    found = score(surprisals(MODEL, IDS, stride=C), IDS, LENGTHS)
    assert (found.num_tokens, found.loss) == (trained.num_tokens, pytest.approx(trained.loss, abs=1e-10))
    assert found.bits_per_byte == pytest.approx(trained.bits_per_byte, abs=1e-10)


def test_means_are_those_of_a_hand_calculation() -> None:
    """Two tokens of 1 and 3 bytes, with chances 1/2 and 1/8: 4 bits over 4 bytes."""
    found = score([np.log([2.0]), np.log([8.0])], np.array([0, 1, 2]), LENGTHS)
    assert found.loss == pytest.approx(math.log(4))
    assert found.perplexity == pytest.approx(4)
    assert found.bits_per_byte == pytest.approx(1)
    assert score([np.array([1e4])], np.array([0, 1]), LENGTHS).perplexity is None
    with pytest.raises(CheckpointError, match="its weights give surprisals that are not finite"):
        score([np.array([math.nan])], np.array([0, 1]), LENGTHS)


@pytest.mark.parametrize("num_ids", [2, 9, 4000, 200_003])
def test_a_sum_over_parts_is_that_of_one_array_to_the_bit(num_ids: int) -> None:
    draw = np.random.default_rng(0)
    nats, ids = draw.gamma(1, 2, num_ids - 1), draw.integers(0, 5, num_ids)
    cuts = np.unique(draw.integers(1, num_ids - 1, min(num_ids // 3, 2000))) if num_ids > 2 else []
    found = score(iter(np.split(nats, cuts)), ids, LENGTHS)
    assert found == score_of(float(nats.sum()), num_ids - 1, int(LENGTHS[ids[1:]].sum()))


def test_ids_on_disk_give_the_numbers_of_those_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_files, "PART_TOKENS", 7)
    writer = TokenWriter(tmp_path, np.uint16)
    for start in range(0, len(IDS), 5):
        writer.add(IDS[start : start + 5])
    on_disk = writer.finish({})
    assert score(surprisals(MODEL, on_disk, stride=5), on_disk, LENGTHS) == score(
        surprisals(MODEL, IDS, stride=5), IDS, LENGTHS
    )
    windows = validation_windows(len(IDS), C)
    in_memory, from_disk = (
        validation_score(MODEL, TOKENIZER, ids, windows, batch_size=2, dtype="float32") for ids in (IDS, on_disk)
    )
    assert in_memory == from_disk


def test_the_error_of_windows_of_equal_length_is_that_of_a_mean() -> None:
    """Losses of 2.5 and 3.5: their standard deviation is sqrt(0.5), that of their mean sqrt(0.5 / 2)."""
    assert standard_error(np.array([10.0, 14.0]), np.array([4, 4])) == pytest.approx(0.5)


def test_windows_of_different_lengths_weigh_as_much_as_their_tokens() -> None:
    """24 nats on 8 tokens are 3 a token; 6 tokens cost 3 less than 18, and 2 cost 3 more than 6: sqrt(2 * 18) / 8."""
    assert standard_error(np.array([15.0, 9.0]), np.array([6, 2])) == pytest.approx(0.75)
    assert standard_error(np.array([18.0, 6.0]), np.array([6, 2])) == 0


def test_the_error_is_the_spread_of_losses_on_other_texts_of_the_kind() -> None:
    """2,000 texts of 100 windows of 1 to 64 tokens, each window of a difficulty of its own."""
    draw = np.random.default_rng(0)
    num_tokens = draw.integers(1, 65, (2000, 100))
    nats = draw.gamma(num_tokens) * draw.gamma(9.0, 1 / 3, num_tokens.shape)  # 3 a token, as 9 / 3
    losses = nats.sum(1) / num_tokens.sum(1)
    errors = np.array([standard_error(*text) for text in zip(nats, num_tokens, strict=True)], dtype=float)
    assert errors.mean() == pytest.approx(losses.std(), rel=0.05)


def test_two_models_on_the_same_windows_differ_by_less_than_each_error() -> None:
    """12 and 16 nats of 4 tokens each, and 10 and 13: they differ by 2 and 3, so by 0.5 and 0.75 a token."""
    ids = np.zeros(9, np.uint16)
    one, other = (Stretches(4, ids) for _ in range(2))
    for stretches, nats in ((one, [3.0] * 4 + [4.0] * 4), (other, [2.5] * 4 + [3.25] * 4)):
        assert np.concatenate([*in_stretches([np.array(nats)], ids, [stretches])]).tolist() == nats
    assert (one.nats.tolist(), other.nats.tolist()) == ([12, 16], [10, 13])
    assert one.standard_error() == pytest.approx(0.5)
    assert other.standard_error() == pytest.approx(0.375)
    assert one.error_of_difference(other) == pytest.approx(0.125)  # of the mean of 0.5 and 0.75
    single = Stretches(8, ids)
    assert (single.standard_error(), single.error_of_difference(single)) == (None, None)
