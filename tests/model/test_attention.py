import math

import pytest
import torch
from torch import Tensor

from gpt_cli.model import Attention, MultiHeadAttention
from gpt_cli.model.attention import attention_scores, attention_weights, causal_mask
from gpt_cli.model.positions import RotaryPositions, SinusoidalPositions, rotate


def test_weights_of_two_tokens_can_be_worked_out_by_hand() -> None:
    """Scores 0 and 1 after the division: softmax gives 1/(1+e) and e/(1+e)."""
    queries = torch.tensor([[0.0, 0, 0, 0], [2.0, 0, 0, 0]])
    keys = torch.tensor([[0.0, 0, 0, 0], [1.0, 0, 0, 0]])
    scores = attention_scores(queries, keys)
    assert scores.tolist() == [[0, 0], [0, 2]]
    weights = attention_weights(scores, causal_mask(2), scale=1 / 2)
    expected = torch.tensor([[1, 0], [1 / (1 + math.e), math.e / (1 + math.e)]])
    torch.testing.assert_close(weights, expected)


def test_a_head_with_counted_numbers_gives_counted_results() -> None:
    """Wq and Wk zero: all scores equal, so each token averages the values so far."""
    head = Attention(d_model=2, head_size=1)
    with torch.no_grad():
        head.Wq.weight.zero_()
        head.Wk.weight.zero_()
        head.Wv.weight.copy_(torch.tensor([[1.0, 10.0]]))
    x = torch.tensor([[[1.0, 0], [0, 1], [2, 3]]])  # values 1, 10, 32
    torch.testing.assert_close(head(x)[0, :, 0], torch.tensor([1.0, 5.5, 43 / 3]))
    torch.testing.assert_close(head.weights(x)[0, 2], torch.full((3,), 1 / 3))


def test_dropout_on_the_weights_doubles_what_it_keeps_at_one_half() -> None:
    head, x = Attention(4, 2, dropout=0.5), torch.randn(1, 3, 4)
    keep = torch.tensor([[[True, True, True], [False, True, True], [True, False, True]]])
    weights = head.weights(x) * keep * 2
    torch.testing.assert_close(head(x, keep=keep), weights @ head.Wv(x))


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_without_masks_torch_draws_them_in_training_only(mode: str) -> None:
    attention, x = getattr(MultiHeadAttention(8, 2, dropout=0.5), mode)(), torch.randn(1, 6, 8)
    torch.manual_seed(0)
    first, second = attention(x), attention(x)
    torch.manual_seed(0)
    assert torch.equal(attention(x), first)
    assert torch.equal(first, second) == (mode == "eval")


def test_rotation_keeps_lengths_and_makes_scores_depend_on_distance_alone() -> None:
    """Su et al. 2021, eq. 16: the product of two rotated vectors knows only how far apart they are."""
    rotation = RotaryPositions(12, 6).double()(12)
    query, key = torch.randn(2, 6, dtype=torch.float64)
    queries, keys = rotate(query.expand(12, 6), rotation), rotate(key.expand(12, 6), rotation)
    torch.testing.assert_close(queries.norm(dim=-1), query.norm().expand(12))
    scores = queries @ keys.T
    for distance in range(-5, 6):
        diagonal: Tensor = scores.diagonal(distance)
        # the tables are float32, so equal to their rounding
        torch.testing.assert_close(diagonal, diagonal[0].expand_as(diagonal), rtol=1e-5, atol=1e-5)


def test_sinusoids_are_those_of_the_paper() -> None:
    table = SinusoidalPositions(10, 4)(torch.arange(10))
    assert table[0].tolist() == [0, 1, 0, 1]
    torch.testing.assert_close(table[3], torch.tensor([math.sin(3), math.cos(3), math.sin(0.03), math.cos(0.03)]))
    assert SinusoidalPositions(10, 5)(torch.arange(10)).shape == (10, 5)
