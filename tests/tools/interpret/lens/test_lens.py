"""`gpt lens`: what each layer would already predict, beside plain PyTorch on the same weights."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from support.helpers import RunCommand, sharp_model

import gpt_cli
from gpt_cli.common.drawing.panels import Curves, HeatMap
from gpt_cli.common.drawing.token_labels import label_of
from gpt_cli.tools.interpret.figure import Figure
from gpt_cli.tools.interpret.lens.lens import look
from gpt_cli.tools.interpret.lens.request import MEASURES
from gpt_cli.tools.interpret.lens.view import LensFinding

V = 11
IDS = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6])
FORMS = ([], ["model.norm_position=post"], ["model.tie_embeddings=false", "model.positions=rope", "model.norm=rmsnorm"])


@pytest.mark.parametrize("settings", FORMS)
@pytest.mark.parametrize("at_once", [2**26, 3 * V])  # logits; in parts of three positions
def test_layers_predict_what_hooks_find(settings: list[str], at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpt_cli.tools.interpret.lens.lens.LOGITS_AT_ONCE", at_once)
    model = sharp_model(V, "model.num_blocks=3", *settings)
    streams = list[torch.Tensor]()
    hooks = [block.register_forward_hook(lambda *found: streams.append(found[2][0])) for block in model.blocks]
    logits = model(IDS[None])[0]
    for hook in hooks:
        hook.remove()
    found = look(model, IDS, IDS[1:], range(len(streams)))
    for layer, stream in enumerate(streams):
        chances = (model.final_norm(stream) @ model.output_weight.T).softmax(dim=-1).detach()
        last = logits.softmax(dim=-1).detach()
        best, token = chances.max(dim=-1)
        assert found.tokens[layer].tolist() == token.tolist()
        true = chances[torch.arange(7), IDS[1:]]
        for numbers, expected in (
            (found.token_probability, best),
            (found.probability, true),
            (found.loss, -true.log()),
            (found.divergence, (last * (last / chances).log()).sum(dim=-1)),
        ):
            np.testing.assert_allclose(numbers[layer], expected.numpy(), rtol=1e-10, atol=1e-10)
        ranks = [int((chances[place] > true[place]).sum()) + 1 for place in range(7)]
        assert found.rank[layer].tolist() == ranks
        alone = look(model, IDS, IDS[1:], [layer])
        assert np.array_equal(alone.loss, found.loss[[layer]])
    assert found.divergence[-1].tolist() == [0.0] * 8
    assert (found.divergence[0] > 0.01).all()
    np.testing.assert_allclose(found.loss[-1].mean(), F.cross_entropy(logits[:-1], IDS[1:]).item(), rtol=1e-10)


def test_of_a_text_the_last_layer_has_the_loss_and_the_error_of_the_model(run: RunCommand, smoke_run: Path) -> None:
    words = "--run", str(smoke_run), "--max-tokens", "400", "--json"
    found = json.loads(run("lens", *words).out)
    of_heads = json.loads(run("heads", *words, "--ablate", "zero", "--dtype", "float32").out)
    assert found["tokens"] == of_heads["tokens"]
    assert found["layers"][-1]["loss"] == pytest.approx(of_heads["loss"], abs=1e-5)
    assert [row["layer"] for row in found["layers"]] == [0, 1]
    for row in found["layers"]:
        assert row["loss_error"] > 0
        assert 0 < row["probability"] < 1 <= row["rank"]
    assert found["layers"][-1]["divergence"] == found["layers"][-1]["divergence_error"] == 0
    assert "positions" not in found


def test_of_a_prompt_each_position_has_its_predictions(run: RunCommand, smoke_run: Path) -> None:
    words = "--run", str(smoke_run), "--prompt", "The value 值", "--json"
    found = json.loads(run("lens", *words, "--layers", "1").out)
    assert "".join(each["token"] for each in found["positions"][:3]).startswith("The")
    sampled = json.loads(run("sample", *words, "--greedy", "--max-new-tokens", "1").out)
    last = found["positions"][-1]
    assert last["layers"][0]["id"] == sampled["samples"][0]["tokens"][0]
    assert last["next"] is None
    assert [last["layers"][0][name] for name in ("loss", "rank", "probability")] == [None] * 3
    assert [each["next"] for each in found["positions"][:-1]] == [each["token"] for each in found["positions"][1:]]
    losses = [each["layers"][0]["loss"] for each in found["positions"][:-1]]
    assert found["layers"][0]["loss"] == pytest.approx(sum(losses) / len(losses))
    assert found["layers"][0]["loss_error"] is None
    lines = run("lens", "--run", str(smoke_run), "--prompt", "The value").out.splitlines()
    assert next(line for line in lines if line.startswith("token")).split() == ["token", "L0", "L1"]
    assert next(line for line in lines if line.startswith("layer")).split() == ["layer", *MEASURES]


def test_files_have_the_figures(run: RunCommand, smoke_run: Path, tmp_path: Path) -> None:
    words = "lens", "--run", str(smoke_run), "--prompt", "The value 值 =1"
    for name in ("a.csv", "a.json", "a.png", "a.html"):
        outcome = run(*words, "--out", str(tmp_path / name))
        assert outcome.out == ""
        assert f"{name}: 2 layers" in outcome.err
    found = json.loads((tmp_path / "a.json").read_text("utf-8"))
    rows = [*csv.DictReader(io.StringIO((tmp_path / "a.csv").read_text("utf-8")))]
    assert len(rows) == 2 * found["tokens"]
    assert float(rows[0]["loss"]) == found["positions"][0]["layers"][0]["loss"]
    assert rows[-1]["loss"] == rows[-1]["next"] == ""
    assert min(Image.open(io.BytesIO((tmp_path / "a.png").read_bytes())).size) > 100
    run("lens", "--run", str(smoke_run), "--max-tokens", "200", "--out", str(tmp_path / "b.csv"))
    assert [row["layer"] for row in csv.DictReader(io.StringIO((tmp_path / "b.csv").read_text("utf-8")))] == ["0", "1"]


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (["--layers", "7"], 2, "--layers"),
        (["--prompt", "a", "--data", "x.txt"], 2, "--data"),
        (["--truncate"], 2, "--truncate"),
        (["--out", "a.gif"], 2, "--out"),
        (["--prompt", "a", "--device", "nothing"], 5, "device"),
        (["--prompt", "word " * 400], 3, "prompt"),
    ],
)
def test_mistakes_are_named(run: RunCommand, smoke_run: Path, words: list[str], code: int, named: str) -> None:
    outcome = run("lens", "--run", str(smoke_run), *words, exits=code)
    assert named in outcome.err
    assert "error:" in outcome.err


def test_a_picture_has_its_layers_downwards_and_a_text_its_errors(smoke_run: Path) -> None:
    found = gpt_cli.lens("The value", run=smoke_run)
    (panel,) = found.panels()
    assert isinstance(panel, HeatMap)
    assert panel.texts is not None
    assert (panel.rows, panel.columns, panel.axis_labels) == (["L0", "L1"], ["The", " value"], ("layer", ""))
    assert gpt_cli.load(smoke_run).lens("The value").as_dict() == found.as_dict()
    assert panel.numbers[1, 0] == found.positions[0]["layers"][1]["token_probability"]
    assert panel.texts[1, 0] == label_of(found.positions[0]["layers"][1]["token"], 7)
    of_text = gpt_cli.lens(run=smoke_run, max_tokens=400)
    panels = [*of_text.panels()]
    assert [each.title for each in panels] == ["loss (nats)", "rank", "probability", "divergence (nats)"]
    assert isinstance(panels[0], Curves)
    assert panels[0].lines[0].errors.tolist() == [row["loss_error"] for row in of_text.layers]


def test_in_a_narrow_terminal_the_layers_that_fit_are_evenly_spaced() -> None:
    figures = tuple(Figure(name, {"layer": range(12)}, np.ones(12), np.ones(12)) for name in MEASURES)
    position = {"position": 0, "token": "a", "next": None, "layers": [{"layer": n, "token": "b"} for n in range(12)]}
    found = LensFinding({}, figures, {"positions": [position]})
    assert found.parts(50)[0][0] == ("token", "L3", "L7", "L11")
    assert len(found.parts(400)[0][0]) == 13
