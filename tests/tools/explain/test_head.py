import json
import re
from typing import Any

import numpy as np
import pytest
import torch
from support.helpers import sharp_model

from gpt_cli.model import GPT
from gpt_cli.tools.explain.head import explain_head

IDS = (10, 250, 3, 77, 3, 10, 99)
TOKENS = tuple(f" {token}" for token in IDS)

# forms that change what happens before and after the heads
FORMS = {
    "learned": "model.positions=learned",
    "sinusoidal, no bias": "model.positions=sinusoidal model.bias=false",
    "rope, rmsnorm": "model.positions=rope model.norm=rmsnorm",
    "grouped": "model.attention=grouped_query model.num_heads=2 model.positions=rope",
    "latent": "model.attention=latent model.positions=rope",
    "latent queries": "model.attention=latent model.query_latent_size=6 model.scale=none",
    "biases, as in GPT-2": "model.positions=learned model.qkv_bias=true model.activation=gelu_tanh",
    "grouped, with biases": "model.attention=grouped_query model.positions=rope model.qkv_bias=true",
    "no positions": "model.positions=none",
    "post-norm": "model.positions=learned model.norm_position=post",
    "normalised queries and keys": "model.qk_norm=true model.norm=rmsnorm model.norm_epsilon=0.01 model.head_size=6 "
    "model.attention=grouped_query model.positions=none",
    "they turn in part": "model.qk_norm=true model.positions=rope model.rotary_size=2 model.qkv_bias=true",
    "parallel branches": "model.parallel_branches=true model.positions=rope model.rotary_size=4",
    "windows": "model.attention_window=[null,3] model.scale=none model.activation=geglu",
    "scaled rope": "model.positions=rope model.rope_scaling=8 model.rope_original_length=16",
    "n-grams": "model.ngram_embedding=3 model.ngram_rows=1000",
}


def epsilon_in(formula: str) -> float:
    return float(formula.partition(") + ")[2].partition(")")[0])


def model_of(form: str, *others: str) -> GPT:
    return sharp_model(257, *FORMS[form].split(), *others)


def explained(form: str, queries: list[int], layer: int = 1) -> tuple[GPT, dict[str, Any]]:
    """A model, and the explanation of head 1 of a layer as a reader of the JSON sees it."""
    model = model_of(form)
    explanation = explain_head(model, TOKENS, IDS, layer=layer, head=1, queries=queries)
    return model, json.loads("".join(explanation.to_json()))


def numbers(content: dict[str, Any]) -> dict[str, np.ndarray]:
    return {step["name"]: np.array(step["numbers"], dtype=float) for step in content["steps"]}


def close(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("layer", [0, 1])
def test_the_residual_is_the_models_own(form: str, layer: int) -> None:
    model, content = explained(form, list(range(len(IDS))), layer)
    block = model.blocks[layer]
    seen: list[torch.Tensor] = []
    # the norm after the first sum sees it before the feed-forward (pre), or is the one that follows it (post)
    norm = block.norm_2 if block.pre_norm else block.norm_1
    norm.register_forward_hook(lambda *call: seen.append(call[1][0] if block.pre_norm else call[2]))
    block.attention.register_forward_hook(lambda *call: seen.append(call[2]))
    model(torch.tensor([IDS]))
    attended, *seen = seen
    if block.parallel:  # that norm sees what attention adds to
        seen[0] = seen[0] + attended
    name = "residual" if block.pre_norm else "normalised_after"
    close(numbers(content)[name], seen[0][0].detach().numpy())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("queries", [[6], [2], list(range(7))])
def test_every_number_follows_from_those_before_it(form: str, queries: list[int]) -> None:
    """From the JSON alone: the steps before, and the parameters."""
    _, content = explained(form, queries)
    step, of = numbers(content), {name: np.array(value) for name, value in content["parameters"].items()}
    seen = step["stream"]
    if "normalised" in step:
        formula = next(found["formula"] for found in content["steps"] if found["name"] == "normalised")
        center = seen.mean(-1, keepdims=True) if "var(x)" in formula else 0
        spread = np.sqrt(((seen - center) ** 2).mean(-1, keepdims=True) + epsilon_in(formula))
        seen = (seen - center) / spread * of["norm_1.weight"] + of.get("norm_1.bias", 0)
        close(step["normalised"], seen)
    looking = seen
    if "latent" in step:
        of |= {"Wq": of["W_UQ"], "Wk": of["W_UK"], "Wv": of["W_UV"]}
        close(step["latent"], seen @ of["W_DKV"].T)
        if "query_latent" in step:
            looking = seen @ of["W_DQ"].T
            close(step["query_latent"], looking[queries])
    sources = step.get("latent", seen)
    close(step["queries"], (looking @ of["Wq"].T + of.get("bq", 0))[queries])
    close(step["keys"], sources @ of["Wk"].T + of.get("bk", 0))
    close(step["values"], sources @ of["Wv"].T + of.get("bv", 0))
    said = {found["name"]: found["formula"] for found in content["steps"]}
    for name, bias in (("queries", "bq"), ("keys", "bk"), ("values", "bv")):
        assert said[name].endswith(f" + {bias}") == (bias in of)
    q, k = step["queries"], step["keys"]
    if "normalised_keys" in step:

        def normalised(x: np.ndarray, name: str) -> np.ndarray:
            spread = np.sqrt((x**2).mean(-1, keepdims=True) + epsilon_in(said[f"normalised_{name}"]))
            return x / spread * of[f"{'query' if name == 'queries' else 'key'}_norm.weight"]

        close(step["normalised_queries"], normalised(q, "queries"))
        close(step["normalised_keys"], normalised(k, "keys"))
        q, k = step["normalised_queries"], step["normalised_keys"]
    turning_q, turning_k = q, k
    if "rotary_keys" in step:
        close(step["rotary_queries"], (looking @ of["W_QR"].T)[queries])
        close(step["rotary_keys"], seen @ of["W_KR"].T)
        turning_q, turning_k = step["rotary_queries"], step["rotary_keys"]
    if "rotated_keys" in step:
        R = content["sizes"].get("R", turning_k.shape[1])

        def turned(x: np.ndarray, places: list[int]) -> np.ndarray:
            other = np.concatenate([-x[:, R // 2 : R], x[:, : R // 2]], axis=1)
            part = x[:, :R] * of["rotation.cosines"][places] + other * of["rotation.sines"][places]
            return np.concatenate([part, x[:, R:]], axis=1)

        close(step["rotated_queries"], turned(turning_q, queries))
        close(step["rotated_keys"], turned(turning_k, list(range(len(IDS)))))
        beside = "rotary_keys" in step
        q = np.concatenate([q, step["rotated_queries"]], axis=1) if beside else step["rotated_queries"]
        k = np.concatenate([k, step["rotated_keys"]], axis=1) if beside else step["rotated_keys"]
    close(step["scores"], q @ k.T)
    if "divided" in step:
        close(step["divided"], step["scores"] / np.sqrt(k.shape[1]))
    window = re.search(r"j ≤ i - (\d+)", said["masked"])
    assert (window is not None) == (form == "windows")
    for row, query in enumerate(queries):
        seeing = slice(max(0, query + 1 - int(window[1])) if window else 0, query + 1)
        assert np.isnan(np.delete(step["masked"][row], seeing)).all(), "minus infinity is null"
        close(step["masked"][row, seeing], step.get("divided", step["scores"])[row, seeing])
    powers = np.exp(np.where(np.isnan(step["masked"]), -np.inf, step["masked"]))
    close(step["weights"], powers / powers.sum(-1, keepdims=True))
    if len(queries) == 1:
        close(step["weighted_values"], step["weights"].T * step["values"])
        close(step["head_output"], step["weighted_values"].sum(0, keepdims=True))
    close(step["head_output"], step["weights"] @ step["values"])
    K = step["values"].shape[1]
    close(step["concatenated"][:, K : 2 * K], step["head_output"])
    projection, bias = of["projection_layer.weight"], of.get("projection_layer.bias", 0)
    close(step["projected"], step["concatenated"] @ projection.T + bias)
    close(step["residual"], step["stream"][queries] + step["projected"])
    if "normalised_after" in step:
        found = step["residual"]
        center = found.mean(-1, keepdims=True)
        spread = np.sqrt(((found - center) ** 2).mean(-1, keepdims=True) + 1e-5)
        close(step["normalised_after"], (found - center) / spread * of["norm_1.weight"] + of["norm_1.bias"])


def test_formulas_and_notes_have_the_numbers_of_the_model() -> None:
    _, content = explained("normalised queries and keys", [6])
    said = {step["name"]: step["formula"] for step in content["steps"]}
    assert said["normalised"] == "a = x / √(mean(x²) + 0.01) · g"
    assert said["normalised_queries"] == "q̂ = q / √(mean(q²) + 0.01) · g"
    assert said["scores"] == "s = q̂ · k̂"
    _, content = explained("they turn in part", [6])
    said = {step["name"]: step["formula"] for step in content["steps"]}
    assert said["rotated_queries"] == "q′ = (q̂[:R] cos(t θ) + (-q̂₂, q̂₁) sin(t θ), q̂[R:])"
    model = model_of("scaled rope", "model.rope_base=500000", "model.rotary_size=6")
    steps = {step.name: step for step in explain_head(model, TOKENS, IDS, layer=0, head=0, queries=[6]).steps}
    assert [note.text for note in steps["rotated_keys"].notes] == [
        "k₁ and k₂ are the halves of k[:R]; pair n of them rotates by t θₙ, θₙ = 500000^(-2n / R)",
        "Slow pairs are slower here, as in Llama 3: θₙ is divided by 8 where a pair turns fewer than 1 times in 16 "
        "tokens, not where it turns more than 4 times, and partly between.",
    ]


@pytest.mark.parametrize("form", FORMS)
def test_the_first_stream_is_the_sum_of_the_embeddings(form: str) -> None:
    model, content = explained(form, [6], layer=0)
    step = numbers(content)
    parts = [step["token_embedding"]]
    if "ngram_embedding" in step:
        assert model.ngram_embedding
        rows = model.ngram_embedding.rows(torch.tensor([IDS]))
        tables = [table.weight[row[0]] for table, row in zip(model.ngram_embedding.tables, rows, strict=True)]
        close(step["ngram_embedding"], sum(tables[1:], tables[0]).detach().numpy())
        total = step["token_embedding"] + step["ngram_embedding"]
        center = total.mean(-1, keepdims=True)
        parts = [(total - center) / np.sqrt(((total - center) ** 2).mean(-1, keepdims=True) + 1e-5)]
        close(step["ngram_normalised"], parts[0])
    if "position_embedding" in step:
        parts.append(step["position_embedding"])
    close(step["stream"], sum(parts[1:], parts[0]))
    formula = next(found["formula"] for found in content["steps"] if found["name"] == "stream")
    assert formula.count("+") == len(parts) - 1


def test_the_three_largest_are_named_with_their_tokens() -> None:
    model = model_of("learned")
    explanation = explain_head(model, TOKENS, IDS, layer=0, head=0, queries=[6])
    of = {step.name: step for step in explanation.steps}
    weights = of["weights"].numbers[0]
    assert of["token_embedding"].notes[0].values == {"ids": "10 250 3 77 3 10 99"}
    first, second, third = np.argsort(-weights)[:3]
    expected = ", ".join(f"{place} {IDS[place]} {weights[place]:.4f}" for place in (first, second, third))
    gaps = of["weights"].notes[1].values
    assert (gaps["query"], gaps["list"]) == ("6 99", expected)
    assert gaps["largest"] == [{"place": place, "number": weights[place]} for place in (first, second, third)]
    lengths = np.linalg.norm(of["weighted_values"].numbers, axis=1)
    longest = np.argsort(-lengths)[:3]
    told = ", ".join(f"{place} {IDS[place]} {lengths[place]:.4f}" for place in longest)
    assert of["head_output"].notes[0].values["list"] == told
