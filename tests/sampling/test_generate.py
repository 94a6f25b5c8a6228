from __future__ import annotations

import torch

from gpt_cli.config import ModelConfig
from gpt_cli.model import GPT
from gpt_cli.sampling.generate import generate
from gpt_cli.sampling.next_token import SamplingParameters

SIZES = ModelConfig(context_length=8, d_model=16, num_heads=2, num_blocks=1, dropout=0.5)
MODEL = GPT(SIZES, 11, torch.Generator().manual_seed(0)).eval()
GREEDY = SamplingParameters(temperature=0)
FREE = SamplingParameters(temperature=1.0)


def columns(prompt: list[int], parameters: SamplingParameters, count: int, **options: int) -> list[list[int | None]]:
    steps = generate(MODEL, prompt, parameters, max_new_tokens=count, **options)  # type: ignore[arg-type]
    return [list(sample) for sample in zip(*steps, strict=True)]


def test_greedy_takes_the_likeliest_of_the_whole_context_and_ignores_the_seed() -> None:
    ids = [1, 2, 3]
    for token in columns([1, 2, 3], GREEDY, 20, seed=5)[0]:
        window = torch.tensor([ids[-8:]])
        assert token == MODEL(window)[0, -1].argmax().item()
        ids.append(int(token or 0))
    assert columns([1, 2, 3], GREEDY, 20, seed=6)[0] == ids[3:]


def test_past_the_context_length_the_last_tokens_are_seen() -> None:
    long = [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2]
    assert columns(long, GREEDY, 5) == columns(long[-8:], GREEDY, 5)


def test_a_sample_does_not_depend_on_the_batch_it_is_in() -> None:
    alone = columns([1], FREE, 12, seed=0)
    together = columns([1], FREE, 12, seed=0, num_samples=3)
    assert together[0] == alone[0]
    assert len({tuple(sample) for sample in together}) == 3
    assert columns([1], FREE, 12, seed=0, num_samples=3) == together
    assert columns([1], FREE, 12, seed=1, num_samples=3) != together


def test_end_of_text_ends_one_sample_and_the_rest_go_on() -> None:
    free = columns([1], FREE, 30, seed=3, num_samples=2)
    first_end = {i: sample.index(4) for i, sample in enumerate(free) if 4 in sample}
    assert first_end, "with eleven tokens a four turns up"
    ended = columns([1], FREE, 30, seed=3, num_samples=2, end_of_text=4)
    for i, sample in enumerate(ended):
        end = first_end.get(i, len(sample))
        assert sample[:end] == free[i][: min(end, len(sample))]
        assert set(sample[end:]) <= {None}


def test_gradients_and_the_callers_mode_are_left_alone() -> None:
    for _ in generate(MODEL, [1], GREEDY, max_new_tokens=2):
        assert torch.is_grad_enabled()
        assert not torch.is_inference_mode_enabled()


def test_bfloat16_generates_too() -> None:
    assert len(list(generate(MODEL, [1], FREE, max_new_tokens=3, dtype="bfloat16"))) == 3
