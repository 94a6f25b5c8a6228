"""Chances and draws of the page, in headless Chromium, and those of `gpt sample`."""

from typing import Any

import pytest
import torch
from support.scripts import RunScript

from gpt_cli.common.rng import stream_key
from gpt_cli.sampling.next_token import SamplingParameters, probabilities

SAMPLING = ["model/engine/sampling.js"]
STREAMS = ["model/engine/streams.js"]
# temperature, top_k, top_p
PARAMETERS = [
    (1.0, None, None),
    (0.8, None, None),
    (0.0, None, None),
    (0.0, 3, 0.5),
    (1.0, 5, None),
    (1.0, 0, 1.0),
    (1.0, 1000, None),
    (1.3, None, 0.9),
    (0.7, 20, 0.8),
    (1.0, None, 0.0),
    (1e-320, None, None),
    (1e6, None, 0.25),
]


def random_logits(rows: int, size: int) -> torch.Tensor:
    return torch.randn(rows, size, generator=torch.Generator().manual_seed(3)) * 4


def named(temperature: float, top_k: int | None, top_p: float | None) -> dict[str, Any]:
    return {"temperature": temperature, "topK": top_k, "topP": top_p}


@pytest.mark.parametrize("parameters", PARAMETERS, ids=str)
def test_chances_are_those_of_ours(run_script: RunScript, parameters: tuple[float, int | None, float | None]) -> None:
    logits = random_logits(4, 300)
    logits[1] = logits[1].round()  # many are equal
    logits[2, 7] = 200
    found = run_script(
        SAMPLING,
        "({ logits, parameters }) => logits.map((row) => probabilities(Float32Array.from(row), parameters))",
        {"logits": logits.tolist(), "parameters": named(*parameters)},
    )
    expected = probabilities(logits, SamplingParameters(*parameters))
    torch.testing.assert_close(torch.tensor(found, dtype=torch.float64), expected, rtol=1e-12, atol=1e-300)


def test_a_seed_draws_the_numbers_that_torch_draws(run_script: RunScript) -> None:
    seeds = [0, 1, 1337, 2**31 - 1, 2**53 - 1]
    found = run_script(
        STREAMS,
        "(seeds) => seeds.map((seed) => { const drawn = new Uniforms(seed); return [500, ...Array(600).keys()].map((at) => drawn.at(at)); })",
        seeds,
    )
    for seed, numbers in zip(seeds, found, strict=True):
        generator = torch.Generator().manual_seed(stream_key(seed, "sample", 0))
        ahead = [torch.rand(256, generator=generator, dtype=torch.float64) for _ in range(3)]
        uniforms = torch.cat(ahead)[:600].tolist()
        assert numbers == [uniforms[500], *uniforms], "whatever was asked for before"
