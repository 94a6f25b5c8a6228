"""The classic numbers, to four decimals."""

import json
from typing import Any

import numpy as np
import pytest
import torch

import gpt_cli
from gpt_cli.tools.explain.worked_example import journey

REPORT = journey()


def numbers_of(part: str, name: str) -> np.ndarray:
    """What a step of a part gives: [rows, columns]."""
    (found,) = [step.numbers for step in REPORT.steps if (step.part, step.name) == (part, name)]
    return found


ROWS = [
    ("simple", "scores", 1, "0.9544 1.4950 1.4754 0.8434 0.7070 1.0865"),
    ("simple", "shares", 1, "0.1455 0.2278 0.2249 0.1285 0.1077 0.1656"),
    ("simple", "weights", 1, "0.1385 0.2379 0.2333 0.1240 0.1082 0.1581"),
    ("simple", "contexts", 1, "0.4419 0.6515 0.5683"),
    ("trainable", "queries", 1, "0.4306 1.4551"),
    ("trainable", "weights", 1, "0.1500 0.2264 0.2199 0.1311 0.0906 0.1820"),
    ("causal", "weights_before_masking", 0, "0.1921 0.1646 0.1652 0.1550 0.1721 0.1510"),
    ("causal", "masked_weights", 0, "0.1921 0 0 0 0 0"),
    ("causal", "renormalised", 5, "0.1935 0.1663 0.1666 0.1542 0.1666 0.1529"),
    ("multi_head", "concatenated", 0, "-0.4519 0.2216 0.4772 0.1063"),
    ("split", "projected", 0, "0.3190 0.4858"),
]
CONTEXTS = {
    "trainable": "0.2996 0.8053 / 0.3061 0.8210 / 0.3058 0.8203 / 0.2948 0.7939 / 0.2927 0.7891 / 0.2990 0.8040",
    "linear": "-0.0739 0.0713 / -0.0748 0.0703 / -0.0749 0.0702 / -0.0760 0.0685 / -0.0763 0.0679 / -0.0754 0.0693",
}


def parsed(text: str) -> np.ndarray:
    return np.array([[float(number) for number in row.split()] for row in text.split(" / ")])


@pytest.mark.parametrize(("part", "name", "row", "expected"), ROWS)
def test_a_row_is_the_published_one(part: str, name: str, row: int, expected: str) -> None:
    np.testing.assert_allclose(numbers_of(part, name)[row], parsed(expected)[0], atol=5.1e-5)


@pytest.mark.parametrize("part", CONTEXTS)
def test_the_contexts_of_all_tokens_are_the_published_ones(part: str) -> None:
    np.testing.assert_allclose(numbers_of(part, "contexts"), parsed(CONTEXTS[part]), atol=5.1e-5)


def test_masking_before_softmax_gives_the_renormalised_weights() -> None:
    before = numbers_of("causal", "masked_before_softmax")
    np.testing.assert_allclose(before, numbers_of("causal", "renormalised"), atol=1e-6)
    assert (numbers_of("causal", "masked")[np.triu_indices(6, 1)] == -np.inf).all()


def test_what_dropout_keeps_is_that_of_the_courses() -> None:
    dropped = numbers_of("dropout", "dropped")
    np.testing.assert_allclose(dropped[0], [2, 0, 0, 0, 0, 0])
    np.testing.assert_allclose(dropped[2, :3], [0.7599, 0.6194, 0.6206], atol=5.1e-5)
    np.testing.assert_allclose(dropped[5], [0, 0.3327, 0.3331, 0.3084, 0.3331, 0], atol=5.1e-5)


def test_every_number_of_the_trained_forms_follows_from_the_json() -> None:
    content = json.loads("".join(REPORT.to_json()))
    of = {name: np.array(value) for name, value in content["parameters"].items()}
    x = numbers_of("inputs", "token_embedding")
    future = np.triu(np.ones((6, 6), dtype=bool), 1)

    def softmax(scores: np.ndarray) -> np.ndarray:
        powers = np.exp(scores)
        return powers / powers.sum(-1, keepdims=True)

    for letter, name in zip("qkv", ("queries", "keys", "values"), strict=True):
        np.testing.assert_allclose(numbers_of("trainable", name), x @ of[f"trainable.W{letter}"], atol=1e-6)
        np.testing.assert_allclose(numbers_of("linear", name), x @ of[f"linear.W{letter}"].T, atol=1e-6)
        for head in range(2):
            found = numbers_of("multi_head", f"{name}_{head}")
            np.testing.assert_allclose(found, x @ of[f"multi_head.W{letter}{head}"].T, atol=1e-6)
            whole = x @ of[f"split.W{letter}"].T
            np.testing.assert_allclose(numbers_of("split", name), whole, atol=1e-6)
            np.testing.assert_allclose(numbers_of("split", f"{name}_{head}"), whole[:, head : head + 1], atol=1e-6)
    for part, K in (("multi_head", 2), ("split", 1)):
        for head in range(2):
            scores = numbers_of(part, f"queries_{head}") @ numbers_of(part, f"keys_{head}").T
            np.testing.assert_allclose(numbers_of(part, f"scores_{head}"), scores, atol=1e-6)
            weights = softmax(np.where(future, -np.inf, scores / np.sqrt(K)))
            np.testing.assert_allclose(numbers_of(part, f"weights_{head}"), weights, atol=1e-6)
            output = weights @ numbers_of(part, f"values_{head}")
            own = numbers_of(part, "concatenated")[:, head * K : (head + 1) * K]
            np.testing.assert_allclose(own, output, atol=1e-6)
    projected = numbers_of("split", "concatenated") @ of["split.W"].T + of["split.b"]
    np.testing.assert_allclose(numbers_of("split", "projected"), projected, atol=1e-6)


def test_every_stage_stands_in_the_json_with_every_row() -> None:
    content = json.loads("".join(REPORT.to_json()))
    assert content["example"] == "journey"
    parts = [*dict.fromkeys(step["part"] for step in content["steps"])]
    assert parts == ["inputs", "simple", "trainable", "linear", "causal", "dropout", "multi_head", "split"]
    for step in content["steps"]:
        assert step["shape"] == [6, len(step["numbers"][0])]
        assert step["rows"] == ["Your", "journey", "starts", "with", "one", "step"]


@pytest.mark.parametrize(
    "what", [{"example": "journey"}, *({"study": name} for name in ("mask", "dropout", "padding"))]
)
def test_the_generators_of_torch_are_left_alone(what: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda _: pytest.fail("the generators of GPUs are seeded"))
    gpt_cli.explain(**what)
    assert torch.equal(torch.rand(3), expected)
