import math
from typing import Any

import pytest
import torch

from gpt_cli.config import ModelConfig
from gpt_cli.errors import CheckpointError
from gpt_cli.model import GPT
from gpt_cli.sampling.decoder import Decoder
from gpt_cli.sampling.generate import generate
from gpt_cli.sampling.next_token import SamplingParameters

SIZES = ModelConfig(context_length=8, d_model=16, num_heads=2, num_blocks=1, dropout=0.5)
MODEL = GPT(SIZES, 11, torch.Generator().manual_seed(0)).double().eval()
GREEDY = SamplingParameters(temperature=0)
FREE = SamplingParameters(temperature=1.0)


def columns(
    prompts: list[list[int]], parameters: SamplingParameters, count: int, **options: Any
) -> list[list[int | None]]:
    steps = generate(Decoder(MODEL, torch.float64), prompts, parameters, max_new_tokens=count, **options)
    return [[draw.token if draw else None for draw in row] for row in zip(*steps, strict=True)]


def test_greedy_takes_the_likeliest_and_ignores_the_seed() -> None:
    ids = [1, 2, 3]
    for token in columns([[1, 2, 3]], GREEDY, 5, seed=5)[0]:
        assert token == MODEL(torch.tensor([ids]))[0, -1].argmax().item()
        ids.append(int(token or 0))
    assert columns([[1, 2, 3]], GREEDY, 5, seed=6)[0] == ids[3:]


def test_log_probabilities_are_those_of_the_model_itself() -> None:
    steps = generate(Decoder(MODEL, torch.float64), [[1, 2]], SamplingParameters(0.3, top_k=2), max_new_tokens=6)
    draws = [draw for (draw,) in steps if draw]
    ids = [1, 2, *(draw.token for draw in draws)]
    by_token = MODEL(torch.tensor([ids[:-1]]))[0, 1:].log_softmax(-1)
    expected = [by_token[t, token].item() for t, token in enumerate(ids[2:])]
    assert [draw.log_probability for draw in draws] == pytest.approx(expected, abs=1e-10)


def test_a_row_ends_when_done_says_so() -> None:
    rows: list[list[int]] = [[], []]
    steps = generate(Decoder(MODEL), [[1], [2]], FREE, max_new_tokens=9, done=lambda row: len(rows[row]) >= 3 + row)
    for draws in steps:
        for row, draw in zip(rows, draws, strict=True):
            row += [draw.token] if draw else []
    assert [len(row) for row in rows] == [3, 4]


def test_a_penalty_makes_tokens_that_occurred_less_likely() -> None:
    """In the prompt or since; without it greedy sampling repeats itself."""
    free, penalised = (columns([[1, 2]], SamplingParameters(0, repetition_penalty=p), 12)[0] for p in (1.0, 2.0))
    assert len(set(penalised)) > len(set(free))
    (first,) = columns([[1, 2]], SamplingParameters(0), 1)[0]
    assert first is not None
    assert columns([[first, 1, 2]], SamplingParameters(0, repetition_penalty=1e6), 1)[0] != [first]


def test_a_sample_does_not_depend_on_its_batch() -> None:
    alone = columns([[1]], FREE, 12, seed=0)
    together = columns([[1]], FREE, 12, seed=0, num_samples=3)
    assert together[0] == alone[0]
    assert len({tuple(sample) for sample in together}) == 3
    assert columns([[1]], FREE, 12, seed=0, num_samples=3) == together
    assert columns([[1]], FREE, 12, seed=1, num_samples=3) != together


def test_end_of_text_ends_one_sample_and_the_rest_go_on() -> None:
    free = columns([[1]], FREE, 30, seed=3, num_samples=2)
    first_end = {i: sample.index(4) for i, sample in enumerate(free) if 4 in sample}
    assert first_end, "with eleven tokens a four turns up"
    ended = columns([[1]], FREE, 30, seed=3, num_samples=2, end_of_text=4)
    for i, sample in enumerate(ended):
        end = first_end.get(i, len(sample))
        assert sample[:end] == free[i][: min(end, len(sample))]
        assert set(sample[end:]) <= {None}


@pytest.mark.parametrize("number", [1e30, -1e38, math.nan])
def test_weights_that_give_no_finite_logits_are_refused(number: float) -> None:
    """As after a training that diverged: the residual stream overflows in float32."""
    broken = GPT(SIZES, 11, torch.Generator().manual_seed(0)).eval()
    with torch.no_grad():
        broken.blocks[0].feed_forward.contract.weight.fill_(number)
    for parameters in (GREEDY, FREE):
        with pytest.raises(CheckpointError, match=r"^checkpoint: its weights give logits that are not finite"):
            next(generate(Decoder(broken), [[1, 2]], parameters, max_new_tokens=1))


def test_generating_leaves_gradients_and_the_mode_of_the_caller_alone() -> None:
    for _ in generate(Decoder(MODEL), [[1]], GREEDY, max_new_tokens=2):
        assert torch.is_grad_enabled()
        assert not torch.is_inference_mode_enabled()
