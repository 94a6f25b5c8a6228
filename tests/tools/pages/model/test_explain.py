"""The engine explains a head of a model's page with the steps and the numbers of `gpt explain`."""

import json

import numpy as np
import pytest
from support.engine import answers, off, random_ids, rounded
from support.exchange import sharp_checkpoint
from support.scripts import RunScript

from gpt_cli.sampling.head_ablation import remove_heads
from gpt_cli.tools.explain.explanation import HEAD_STEPS
from gpt_cli.tools.explain.head import explain_head

FORMS = [
    "model.attention=grouped_query model.qkv_bias=true model.positions=rope model.scale=none",
    "model.attention=latent model.positions=rope model.query_latent_size=20",
    "model.positions=sinusoidal model.norm_position=post model.ngram_embedding=3 model.ngram_rows=300",
    "model.norm=rmsnorm model.bias=false model.norm_position=post model.num_heads=2",
    "model.positions=rope model.rotary_size=4 model.parallel_branches=true model.norm_epsilon=0.00012",
    "model.head_size=1",
    "model.positions=rope model.qk_norm=true model.head_size=6 model.attention_window=[4,null,3] model.activation=swiglu",
]


PLACES = ((0, 0, 8), (2, 1, 4))  # layer, head and query


@pytest.mark.parametrize(("form", "place"), [(form, PLACES[number % 2]) for number, form in enumerate(FORMS)])
def test_steps_are_those_of_gpt_explain(form: str, place: tuple[int, int, int], run_script: RunScript) -> None:
    layer, head, query = place
    checkpoint, ids = sharp_checkpoint(*form.split()), random_ids(9)
    texts = [checkpoint.tokenizer.token_text(token) for token in ids]
    wanted = {"ids": ids, "layer": layer, "head": head, "query": query}
    (found,) = answers(run_script, checkpoint, ("explain", wanted))
    explanation = explain_head(rounded(checkpoint, "float16"), texts, ids, layer=layer, head=head, queries=[query])
    expected = json.loads("".join(explanation.to_json()))["steps"]
    assert [step["name"] for step in found["steps"]] == [step["name"] for step in expected]
    for step, other in zip(found["steps"], expected, strict=True):
        for key in ("formula", "shape", "rows", "columns"):
            assert step[key] == other[key]
        numbers = np.array(other["numbers"], np.float64).reshape(-1)
        np.testing.assert_allclose(np.array(step["numbers"], np.float64), numbers, rtol=0, atol=1e-4)
    assert {step["name"] for step in found["steps"]} <= set(HEAD_STEPS)


def test_heads_that_are_switched_off_are_missing_before_and_beside(run_script: RunScript) -> None:
    checkpoint, ids, heads = sharp_checkpoint(), random_ids(9), [(0, 1), (2, 0)]
    wanted = {"ids": ids, "changes": off(*heads), "layer": 2, "head": 1, "query": 8}
    (found,) = answers(run_script, checkpoint, ("explain", wanted))
    steps = {step["name"]: step["numbers"] for step in found["steps"]}
    model = rounded(checkpoint, "float16")
    remove_heads(model, heads)
    expected = explain_head(model, ["x"] * 9, ids, layer=2, head=1, queries=[8])
    numbers = {step.name: step.numbers.reshape(-1) for step in expected.steps}
    for name in ("stream", "weights", "projected", "residual"):
        np.testing.assert_allclose(steps[name], numbers[name], rtol=0, atol=1e-4)
    assert not any(steps["concatenated"][:12])  # of head 0, 12 wide
    assert all(steps["concatenated"][12:24])


def test_where_the_whole_attention_is_switched_off_nothing_is_added(run_script: RunScript) -> None:
    change = {"part": "attention", "layer": 2, "head": None, "position": 8, "how": "zero"}
    wanted = {"ids": random_ids(9), "changes": [change], "layer": 2, "head": 1, "query": 8}
    (found,) = answers(run_script, sharp_checkpoint(), ("explain", wanted))
    steps = {step["name"]: step for step in found["steps"]}
    assert not any(steps["projected"]["numbers"])
    assert any(steps["concatenated"]["numbers"])
    width = len(steps["residual"]["numbers"])
    assert steps["residual"]["numbers"] == steps["stream"]["numbers"][8 * width :]
