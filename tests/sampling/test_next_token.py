import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.faults import scaled

from gpt_cli.sampling.next_token import SamplingParameters, draw_token, probabilities

LOGITS = torch.tensor([0.5, 0.25, 0.125, 0.125]).log()[None]


def chances(**parameters: float | int | None) -> list[float]:
    return probabilities(LOGITS, SamplingParameters(**parameters))[0].tolist()  # type: ignore[arg-type]


def test_temperature_one_half_squares_them() -> None:
    assert chances(temperature=0.5) == pytest.approx([16 / 22, 4 / 22, 1 / 22, 1 / 22])


def test_top_k_leaves_the_likeliest_and_the_first_among_equals() -> None:
    assert chances(temperature=1.0, top_k=2) == pytest.approx([2 / 3, 1 / 3, 0, 0])
    assert chances(temperature=1.0, top_k=3) == pytest.approx([4 / 7, 2 / 7, 1 / 7, 0])
    assert chances(temperature=1.0, top_k=1) == chances(temperature=0) == [1, 0, 0, 0]
    assert chances(temperature=1.0, top_k=99) == chances(temperature=1.0, top_k=0) == chances(temperature=1.0)


def test_top_p_leaves_the_likeliest_until_their_chances_reach_it() -> None:
    assert chances(temperature=1.0, top_p=0.5) == pytest.approx([1, 0, 0, 0])
    assert chances(temperature=1.0, top_p=0.51) == pytest.approx([2 / 3, 1 / 3, 0, 0])
    assert chances(temperature=1.0, top_p=0.75) == pytest.approx([2 / 3, 1 / 3, 0, 0])
    assert chances(temperature=1.0, top_p=0.8) == pytest.approx([4 / 7, 2 / 7, 1 / 7, 0])
    assert chances(temperature=1.0, top_p=0.0) == [1, 0, 0, 0]
    assert chances(temperature=1.0, top_p=1.0) == chances(temperature=1.0)
    # of what top_k left, 0.5 and 0.25 of 0.75, the first reaches 0.6
    assert chances(temperature=1.0, top_k=2, top_p=0.6) == pytest.approx([1, 0, 0, 0])


def test_min_p_leaves_tokens_with_this_share_of_the_highest_chance() -> None:
    assert chances(temperature=1.0, min_p=0.49) == pytest.approx([2 / 3, 1 / 3, 0, 0])
    assert chances(temperature=1.0, min_p=0.51) == pytest.approx([1, 0, 0, 0])
    assert chances(temperature=1.0, min_p=1.0) == [1, 0, 0, 0]
    assert chances(temperature=1.0, min_p=0.0) == chances(temperature=1.0)


def test_the_penalty_divides_positive_logits_and_multiplies_negative_ones() -> None:
    logits = torch.tensor([[2.0, -1.0, 2.0, -1.0]])
    seen = torch.tensor([[True, True, False, False]])
    found = probabilities(logits, SamplingParameters(1.0, repetition_penalty=2.0), seen)
    torch.testing.assert_close(found, torch.tensor([[1.0, -2.0, 2.0, -1.0]], dtype=torch.float64).softmax(-1))
    assert probabilities(logits, SamplingParameters(0, repetition_penalty=1e300), seen).tolist() == [[0, 0, 1, 0]]


@settings(max_examples=scaled(100, least=40))
@given(
    logits=st.lists(st.floats(width=32), min_size=1, max_size=6),
    temperature=st.floats(0, 1e308),
    top_k=st.none() | st.integers(0, 9),
    top_p=st.none() | st.floats(0, 1),
    min_p=st.none() | st.floats(0, 1),
    penalty=st.floats(5e-324, 1e308),
    data=st.data(),
)
def test_all_parameters_leave_a_token_to_choose(logits, temperature, top_k, top_p, min_p, penalty, data) -> None:
    seen = torch.tensor([data.draw(st.lists(st.booleans(), min_size=len(logits), max_size=len(logits)))])
    found = probabilities(torch.tensor([logits]), SamplingParameters(temperature, top_k, top_p, min_p, penalty), seen)
    assert found.sum().item() == pytest.approx(1)
    assert found.min() >= 0
    chosen = draw_token(found, torch.tensor([0.999], dtype=torch.float64))
    assert found[0, chosen] > 0


@pytest.mark.parametrize("temperature", [1e-45, 1e-300, 5e-324])
def test_tiny_temperatures_are_greedy_and_never_nan(temperature: float) -> None:
    assert chances(temperature=temperature) == [1, 0, 0, 0]


def test_nan_has_no_chance() -> None:
    rows = torch.tensor([[math.nan, 1.0, 1.0, -math.inf], [math.nan] * 4, [math.inf, 0, math.nan, math.inf]])
    found = probabilities(rows, SamplingParameters(1.0, top_k=3))
    assert found[0].tolist() == [0, 0.5, 0.5, 0]
    assert found[1:].sum(-1).tolist() == [1, 1]
    assert found[2].tolist() == [0.5, 0, 0, 0.5]


def test_a_token_is_chosen_where_the_running_sum_passes_the_number() -> None:
    given = torch.tensor([[0.5, 0.25, 0.25, 0.0]], dtype=torch.float64).expand(6, 4)
    uniform = torch.tensor([0.0, 0.49, 0.5, 0.74, 0.75, 0.999999], dtype=torch.float64)
    assert draw_token(given, uniform).tolist() == [0, 0, 1, 1, 2, 2]


def test_a_token_without_a_chance_is_never_chosen() -> None:
    given = torch.tensor([[0.0, 1.0, 0.0]], dtype=torch.float64)
    for number in (0.0, 0.5, 1 - 2**-53):
        assert draw_token(given, torch.tensor([number], dtype=torch.float64)).tolist() == [1]
