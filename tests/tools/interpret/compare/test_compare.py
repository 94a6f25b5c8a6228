"""`gpt compare`: figures that plain PyTorch and small arrays give too, and exact zeros for equal models."""

import csv
import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support.helpers import CORPUS_TEXT, RunCommand, sharp_model

import gpt_cli
from gpt_cli.attention_maps.activations import head_columns
from gpt_cli.model import GPT
from gpt_cli.tools.interpret.compare.compare import Window, compare_window, head_changes, most_apart, weight_changes

V = 11
IDS = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5])
FORMS = ([], ["model.norm_position=post"], ["model.attention=grouped_query"], ["model.attention=latent"])


def two_models(settings: list[str]) -> tuple[GPT, GPT]:
    """A model in float64, and the same with other numbers."""
    first, second = (sharp_model(V, *settings).double() for _ in range(2))
    with torch.no_grad():
        for n, parameter in enumerate(second.parameters()):
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(n)).double()
    return first, second


@pytest.mark.parametrize("settings", FORMS)
@pytest.mark.parametrize("at_once", [2**26, 3 * V])
def test_a_window_has_what_torch_finds(settings: list[str], at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpt_cli.tools.interpret.compare.compare.LOGITS_AT_ONCE", at_once)
    models = two_models(settings)
    found = compare_window(models, IDS)
    assert found.attention is not None
    assert found.write_squares is not None
    with torch.no_grad():
        p, q = (model(IDS[None, :-1])[0].softmax(-1) for model in models)
        weights = [model.attention_weights(IDS[None, :-1])[:, 0] for model in models]
        outputs = [[stages.heads[0] for stages in model.attention_stages(IDS[None, :-1])] for model in models]
    np.testing.assert_allclose(found.divergence, (p * (p / q).log()).sum(-1), rtol=1e-8, atol=1e-12)
    for nats, chances in zip(found.nats, (p, q), strict=True):
        np.testing.assert_allclose(nats, F.nll_loss(chances.log(), IDS[1:], reduction="none"), rtol=1e-10)
    np.testing.assert_allclose(found.attention, (weights[0] - weights[1]).abs().sum((-1, -2)) / 2, rtol=1e-8)
    for layer, head in np.ndindex(found.attention.shape):
        a, b = (
            of_model[layer][head] @ head_columns(model.blocks[layer])[head].T.detach()
            for of_model, model in zip(outputs, models, strict=True)
        )
        sums = [float(part.square().sum()) for part in (b - a, a)]
        np.testing.assert_allclose(found.write_squares[:, layer, head], sums, rtol=1e-8)


def test_changes_of_heads_are_means_over_windows_with_errors_as_resampling_finds_them() -> None:
    generator = np.random.default_rng(1)
    apart, before = generator.random((60, 1, 2)), 1 + generator.random((60, 1, 2))
    windows = [
        Window(np.zeros((2, 4)), np.zeros(4), 4 * a, np.stack([a, b])) for a, b in zip(apart, before, strict=True)
    ]
    rows = head_changes(windows)
    means = apart.mean(axis=0)[0]
    assert [row["head"] for row in rows] == np.argsort(-means).tolist()
    row = next(row for row in rows if row["head"] == 1)
    assert row["attention_change"] == pytest.approx(means[1])
    assert row["write_change"] == pytest.approx(math.sqrt(apart[:, 0, 1].sum() / before[:, 0, 1].sum()))
    drawn = generator.integers(0, 60, (4000, 60))
    of_attention = apart[:, 0, 1][drawn].mean(axis=1).std()
    of_writes = np.sqrt(apart[:, 0, 1][drawn].sum(axis=1) / before[:, 0, 1][drawn].sum(axis=1)).std()
    assert row["attention_change_error"] == pytest.approx(of_attention, rel=0.06)
    assert row["write_change_error"] == pytest.approx(of_writes, rel=0.06)


def test_the_error_of_a_paired_difference_is_that_of_resampled_windows(run: RunCommand, copied: Path) -> None:
    """The differences of two steps are drawn again by windows: far below the errors of both losses."""
    steps = sorted((copied / "checkpoints").glob("step-*"))
    found = gpt_cli.compare([steps[0], steps[-1]], max_tokens=1000)
    first, second = found.runs
    assert found.difference["value"] == second["loss"] - first["loss"]
    assert 0 < found.difference["error"] < math.hypot(first["loss_error"], second["loss_error"])
    Path("my.txt").write_text(CORPUS_TEXT[:3000])
    runs = ("--run", str(steps[0]), "--run", str(steps[-1]))
    evaluated = json.loads(run("eval", *runs, "--data", "my.txt", "--json").out)["runs"]
    whole = gpt_cli.compare([steps[0], steps[-1]], data="my.txt", max_tokens=10**6)
    for one, other in zip(whole.runs, evaluated, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], abs=1e-5)
        assert one["loss_error"] == pytest.approx(other["loss_error"], abs=1e-5)
        assert one["bits_per_byte"] == pytest.approx(other["bits_per_byte"], abs=1e-5)
    assert whole.difference["value"] == pytest.approx(evaluated[1]["difference"]["value"], abs=1e-5)
    assert whole.difference["error"] == pytest.approx(evaluated[1]["difference"]["error"], abs=1e-5)


def test_weights_are_compared_by_part_where_shapes_agree() -> None:
    first, second = sharp_model(V), sharp_model(V)
    with torch.no_grad():
        second.blocks[1].feed_forward.expand.weight *= 3
    changes = {(row["layer"], row["part"]): row["change"] for row in weight_changes(first, second)}
    own = [parameter.detach() for parameter in first.blocks[1].feed_forward.parameters()]
    size = math.sqrt(sum(float(each.double().square().sum()) for each in own))
    assert changes.pop((1, "feed-forward")) == pytest.approx(2 * float(own[0].norm()) / size)
    assert {*changes.values()} == {0.0}
    assert (0, "attention") in changes
    wide = sharp_model(V, "model.bias=false")
    assert {(row["layer"], row["part"]) for row in weight_changes(first, wide)} < {*changes, (1, "feed-forward")}


def test_passages_are_where_divergence_is_and_do_not_overlap() -> None:
    apart = [np.array([0, 9, 0, 0, 5, 5, 0, 0.0]), np.array([1.0, 1])]
    assert most_apart(apart, 3, length=2) == [(0, 4, 6), (0, 0, 2), (1, 0, 2)]
    assert most_apart([np.zeros(5)], 3) == []
    assert most_apart([np.zeros(0)], 3) == []


def test_runs_are_shown_and_saved(run: RunCommand, smoke_run: Path, tmp_path: Path) -> None:
    steps = sorted((smoke_run / "checkpoints").glob("step-*"))
    words = "compare", str(steps[0]), str(smoke_run), "--max-tokens", "300", "--passages", "2"
    outcome = run(*words)
    lines = outcome.out.splitlines()
    assert lines[0].split() == ["run", "step", "tokens", "nats/token", "bits/byte"]
    assert any(line.startswith("second - first: -") for line in lines)
    assert any(line.startswith("divergence, KL(first || second): ") for line in lines)
    found = json.loads(run(*words, "--out", str(tmp_path / "a.csv"), "--json").out)
    assert [passage["divergence"] for passage in found["passages"]] == sorted(
        (passage["divergence"] for passage in found["passages"]), reverse=True
    )
    for passage in found["passages"]:
        assert passage["first"] == pytest.approx(np.mean([token["first"] for token in passage["tokens"]]))
        assert "".join(token["token"] for token in passage["tokens"]) == passage["text"]
    rows = [*csv.DictReader(io.StringIO((tmp_path / "a.csv").read_text("utf-8")))]
    assert [row["what"] for row in rows[:5]] == ["loss", "bits_per_byte"] * 2 + ["difference (nats/token)"]
    assert sum(row["what"] == "attention_change" for row in rows) == len(found["heads"]) == 4
    same = gpt_cli.compare([smoke_run, smoke_run], max_tokens=200)
    assert same["loss"].coords["run"] == ("first", "second")
    assert same.passages == []
    names = ("attention_change", "attention_change_error", "write_change")
    assert {row[name] for row in same.heads for name in names} == {0}
    assert ({row["change"] for row in same.weights}, same.divergence["mean"]) == ({0}, 0)
    svg = (same.as_picture("svg") or b"").decode()
    said = ("second - first (nats/token)", "+0.0000 ± 0.0000", "bars: ± one standard error", "layer")
    assert [words for words in said if f"<!-- {words} -->" not in svg] == []
    assert [same[name].ends for name in ("attention_change", "write_change")] == [(0, 1), (0, 1)]


def test_models_of_another_shape_or_tokenizer_are_compared_as_far_as_they_can_be(run: RunCommand, copied: Path) -> None:
    small = "--config", "smoke", "--max-steps", "2", "--quiet"
    run("train", *small, "--set", "model.num_blocks=1", "--out", "runs/flat", exits=0)
    other = "--set", "tokenizer.kind=byte", "--set", "model.d_model=16", "--set", "model.context_length=16"
    Path("my.txt").write_text(CORPUS_TEXT[:3000])
    run("train", *small, "--data", "my.txt", *other, "--out", "runs/bytes", exits=0)
    outcome = run("compare", "smoke", "flat", "--max-tokens", "400", "--json")
    assert "no heads are compared" in outcome.err
    found = json.loads(outcome.out)
    assert found["heads"] == []
    assert {row["layer"] for row in found["weights"]} == {None, 0}
    outcome = run("compare", "smoke", "bytes", "--data", "my.txt", "--json")
    assert "the tokenizers differ" in outcome.err
    assert "no part of the weights has the same shapes in both models, so none is compared" in outcome.err
    found = json.loads(outcome.out)
    evaluated = json.loads(run("eval", "--run", "smoke", "--run", "bytes", "--data", "my.txt", "--json").out)["runs"]
    for one, other in zip(found["runs"], evaluated, strict=True):
        assert one["bits_per_byte"] == pytest.approx(other["bits_per_byte"])
    assert found["difference"] == {
        "value": pytest.approx(evaluated[1]["difference"]["value"]),
        "error": pytest.approx(evaluated[1]["difference"]["error"]),
        "unit": "bits/byte",
    }
    assert found["divergence"] is None
    run("compare", "smoke", "bytes", "--max-tokens", "300", "--out", "b.png", exits=0)
    assert "bits/byte" in run("compare", "smoke", "bytes", "--max-tokens", "300").out


def test_other_alphabets_are_read_by_bytes_and_a_model_that_lacks_one_is_named(run: RunCommand, copied: Path) -> None:
    """Of a text whose characters have three bytes, 300 tokens are about 1,200 bytes, and no passage has half of one."""
    Path("verse.txt").write_text("春眠不觉晓处处闻啼鸟" * 200, "utf-8")
    Path("my.txt").write_text(CORPUS_TEXT[:3000])
    small = "--config", "smoke", "--data", "my.txt", "--max-steps", "1", "--quiet"
    for kind in ("byte", "char"):
        run("train", *small, "--set", f"tokenizer.kind={kind}", "--out", f"runs/{kind}", exits=0)
    outcome = run("compare", "smoke", "byte", "--data", "verse.txt", "--max-tokens", "300", "--json")
    found = json.loads(outcome.out)
    assert 1150 < found["runs"][1]["tokens"] <= 1200
    assert found["passages"]
    for passage in found["passages"]:
        assert {*passage["text"]} <= {*"春眠不觉晓处处闻啼鸟"}
    outcome = run("compare", "smoke", "char", "--data", "verse.txt", exits=3)
    assert "error: char: this model knows" in outcome.err
    Path("short.txt").write_text("a")
    for other, words in (("byte", "is one token long"), ("smoke", "has 1 token")):
        assert f"error: --data: the text {words}" in run("compare", "smoke", other, "--data", "short.txt").err


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (["runs/smoke"] * 3, 2, "takes two runs"),
        (["runs/smoke", "The value of"], 4, "The value of"),
        (["missing", "gone"], 4, "gone"),
        (["runs/smoke", "runs/smoke", "--out", "a.html"], 2, "--out"),
        (["runs/smoke", "runs/smoke", "--data", "missing.txt"], 3, "missing.txt"),
        (["runs/smoke", "runs/smoke", "--passages", "-1"], 2, "--passages"),
    ],
)
def test_mistakes_are_named(run: RunCommand, smoke_run: Path, words: list[str], code: int, named: str) -> None:
    outcome = run("compare", *words, exits=code)
    assert named in outcome.err
    assert "error:" in outcome.err


def test_what_memory_cannot_hold_is_refused(run: RunCommand, smoke_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpt_cli.tools.interpret.compare.compare.available_memory", lambda: 1000)
    outcome = run("compare", str(smoke_run), str(smoke_run), exits=5)
    assert "error: compare: 4 heads on 32 tokens take about" in outcome.err
    assert "hint: use fewer --max-tokens" in outcome.err
