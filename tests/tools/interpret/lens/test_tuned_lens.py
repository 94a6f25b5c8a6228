"""`gpt lens --tuned` and `--over-training`: maps trained as in plain PyTorch, kept for their weights alone."""

import csv
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.exchange import sharp_checkpoint
from support.helpers import RunCommand, sharp_model

import gpt_cli
from gpt_cli.checkpoints.checkpoint import save_checkpoint
from gpt_cli.errors import CheckpointError, DataError
from gpt_cli.tools.interpret.lens import tuned_lens as training
from gpt_cli.tools.interpret.lens.lens import look
from gpt_cli.tools.interpret.lens.tuned_lens import (
    Maps,
    Tuned,
    identity_of,
    maps_bytes,
    num_steps,
    read_maps,
    train_maps,
)

V = 11
IDS = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6])
TEXT = np.random.default_rng(0).integers(0, V, 300)


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "MOST_STEPS", 6)
    monkeypatch.setattr(training, "FEWEST_STEPS", 6)


def test_maps_that_change_nothing_are_the_logit_lens() -> None:
    model = sharp_model(V)
    plain, behind = (look(model, IDS, IDS[1:], [0, 1], maps) for maps in (None, Maps.identity(model)))
    for name in vars(plain):
        assert np.array_equal(getattr(plain, name), getattr(behind, name)), name


@pytest.mark.parametrize("settings", [[], ["model.norm_position=post"], ["model.norm=rmsnorm", "model.bias=false"]])
def test_training_is_that_of_autograd_and_adam_on_the_whole_loss(settings: list[str]) -> None:
    model = sharp_model(V, *settings).double()
    found = train_maps(model, TEXT, 7, lambda _: None, steps=3)
    assert found.weights.shape == (1, model.config.d_model, model.config.d_model)
    W, b = torch.nn.Parameter(found.weights[0] * 0), torch.nn.Parameter(found.biases[0] * 0)
    optimizer = torch.optim.Adam([W, b], betas=(0.9, 0.99))
    for step in range(3):
        first, last = training._streams(model, TEXT, training.stream_key(7, "tuned lens", step))
        p = model.logits(last).softmax(-1).detach()
        q = model.logits(first @ (torch.eye(len(b)).double() + W).T + b).softmax(-1)
        loss = (p * (p / q).log()).sum() / len(p)
        for group in optimizer.param_groups:
            group["lr"] = training.LEARNING_RATE / len(b) * (1 - step / 3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.testing.assert_close(found.weights[0], W.data, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(found.biases[0], b.data, rtol=1e-8, atol=1e-10)
    assert float(W.detach().abs().max()) > 0


def test_maps_come_closer_to_the_last_layer_and_repeat() -> None:
    model = sharp_model(V)
    maps, again = (train_maps(model, TEXT, 0, lambda _: None, steps=30) for _ in range(2))
    assert torch.equal(maps.weights, again.weights)
    plain, behind = (look(model, IDS, IDS[1:], [0, 1], lens) for lens in (None, maps))
    assert behind.divergence[0].mean() < plain.divergence[0].mean()
    assert (behind.divergence[1] == 0).all()
    assert not model.output_weight.grad


def test_steps_follow_from_sizes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "MOST_STEPS", 500)
    model = sharp_model(V)
    assert num_steps(model) == 500
    monkeypatch.setattr(training, "OPERATIONS", 1)
    assert num_steps(model) == training.FEWEST_STEPS


def test_maps_are_trained_once_and_kept_for_these_weights_alone(run: RunCommand, copied: Path, few_steps: None) -> None:
    words = "lens", "--run", str(copied), "--tuned", "--max-tokens", "400", "--json"
    first = run(*words)
    assert "training the maps" in first.err
    found, file = json.loads(first.out), Path(json.loads(first.out)["tuned"]["kept"])
    assert file.parent == copied / "lens"
    again = run(*words)
    assert "training the maps" not in again.err
    assert json.loads(again.out) == found
    assert found["tuned"]["steps"] == 6
    plain = json.loads(run("lens", "--run", str(copied), "--max-tokens", "400", "--json").out)
    for row, alone in zip(found["layers"], plain["layers"], strict=True):
        assert alone.items() <= row.items()
        assert row["loss_gain"] == pytest.approx(row["loss"] - row["tuned_loss"], abs=1e-5)
        assert row["divergence_gain"] == pytest.approx(row["divergence"] - row["tuned_divergence"], abs=1e-5)
    assert found["layers"][0]["divergence_gain"] > 2 * found["layers"][0]["divergence_gain_error"] > 0
    assert found["layers"][1]["loss_gain"] == found["layers"][1]["loss_gain_error"] == 0

    loaded = gpt_cli.load(copied)
    assert read_maps(file, identity_of(loaded), loaded)
    with torch.no_grad():
        loaded.model.output_weight.mul_(2)
    assert read_maps(file, identity_of(loaded), loaded) is None
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(CheckpointError, match="damaged"):
        read_maps(file, "me", loaded)
    assert "is not a tuned lens" in run(*words).err
    assert "training the maps" not in run(*words).err
    assert run("lens", "--run", str(copied), "--out", str(file), "--max-tokens", "99").code == 2
    run("runs", "rm", str(copied), "--yes")
    assert not copied.exists()


def test_maps_do_not_bring_back_a_run_that_is_removed_while_they_train(
    run: RunCommand, copied: Path, few_steps: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remove_first(*words: Any, **more: Any) -> Maps:
        shutil.rmtree(copied)
        return train_maps(*words, **more)

    monkeypatch.setattr(training, "train_maps", remove_first)
    ended = run("lens", "--run", str(copied), "--tuned", "--prompt", "The value", exits=0)
    assert "this run was removed while the maps trained; the maps are not kept" in ended.err
    assert not copied.exists()


def test_maps_of_a_text_that_has_changed_are_not_kept(run: RunCommand, copied: Path, few_steps: None) -> None:
    Path("my.txt").write_text("one two three four five six seven\n" * 60, encoding="utf-8")
    config = copied / "config.yaml"
    config.write_text(config.read_text("utf-8").replace("source: python-docs", "source: my.txt"), encoding="utf-8")
    ended = run("lens", "--run", str(copied), "--tuned", "--prompt", "The value", exits=0)
    assert "warning: my.txt has changed since this run was trained on it, so the maps are not kept" in ended.err
    assert not (copied / "lens").exists()


def test_a_prompt_that_is_too_long_is_refused_before_maps_train(
    smoke_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpt_cli.tools.interpret.lens.lens.tuned_maps", lambda *_: pytest.fail("maps train"))
    with pytest.raises(DataError, match="prompt"):
        gpt_cli.lens("The value " * 200, run=smoke_run, tuned=True)


def test_maps_with_numbers_that_are_not_finite_are_refused(copied: Path, tmp_path: Path) -> None:
    loaded, file = gpt_cli.load(copied), tmp_path / "maps.safetensors"
    maps = Maps.identity(loaded.model)
    maps.biases[0, 0] = torch.nan
    file.write_bytes(maps_bytes(Tuned(maps, "a", False, 1), "me"))
    with pytest.raises(CheckpointError, match="damaged"):
        read_maps(file, "me", loaded)


def test_a_model_without_a_text_learns_on_the_beginning_of_data(run: RunCommand, copied: Path, few_steps: None) -> None:
    shutil.move(copied / "checkpoints" / "best.safetensors", "alone.safetensors")
    Path("my.txt").write_text("one two three four five six seven\n" * 60, encoding="utf-8")
    (copied / "config.yaml").unlink()
    outcome = run("lens", "--run", str(copied), "--tuned", "--prompt", "The value", exits=2)
    assert "--data FILE in place of --prompt trains maps" in outcome.err
    words = "lens", "--run", str(copied), "--data", "my.txt", "--json"
    Path("short.txt").write_text("the value\n" * 2)
    outcome = run("lens", "--run", str(copied), "--data", "short.txt", "--tuned", exits=3)
    assert re.search(r"error: --tuned: the text has \d+ tokens, which are too few to train maps on\n", outcome.err)
    found, plain = (json.loads(run(*words, *more).out) for more in (["--tuned"], []))
    assert found["tuned"]["text"] == ["my.txt"]
    assert 8 < plain["tokens"] / found["tokens"] < 12
    outcome = run("lens", "--run", str(copied), "--data", "./my.txt", "--json", "--tuned")
    assert (json.loads(outcome.out)["tokens"], outcome.err) == (found["tokens"], ""), "of the same text"
    outcome = run("lens", "--run", str(copied), "--data", "my.txt", "--data", "corpus.txt", "--tuned")
    assert "the maps have learned a part of this text" in outcome.err
    shutil.copy("my.txt", "other.txt")
    other = json.loads(run("lens", "--run", str(copied), "--data", "other.txt", "--json", "--tuned").out)
    assert (other["tuned"]["text"], other["tokens"]) == (["my.txt"], plain["tokens"]), "of a text without maps, all"
    assert run("lens", "--run", str(copied), "--tuned", "--prompt", "The value").code == 0
    outcome = run("lens", "--run", "alone.safetensors", "--tuned", "--max-tokens", "99", "--json")
    assert "not kept" in outcome.err
    assert json.loads(outcome.out)["tuned"]["kept"] is None


def test_one_block_has_no_maps_to_train(run: RunCommand, here: Path) -> None:
    Path("my.txt").write_text("one two three four five six seven\n" * 60, encoding="utf-8")
    save_checkpoint(here / "one.safetensors", sharp_checkpoint("model.num_blocks=1"))
    outcome = run("lens", "--run", "one.safetensors", "--data", "my.txt", "--tuned", exits=2)
    assert "error: --tuned: this model has one block" in outcome.err


def test_files_and_tables_have_both_lenses(run: RunCommand, copied: Path, few_steps: None) -> None:
    words = "lens", "--run", str(copied), "--tuned", "--prompt", "The value 值 =1"
    lines = run(*words).out.splitlines()
    assert next(line for line in lines if line.startswith("layer")).split()[:4] == ["layer", "loss", "loss,", "tuned"]
    for name in ("a.csv", "a.json"):
        run(*words, "--out", name, exits=0)
    at = json.loads(Path("a.json").read_text("utf-8"))["positions"][0]["layers"][0]
    row = next(csv.DictReader(io.StringIO(Path("a.csv").read_text("utf-8"))))
    assert float(row["tuned_divergence"]) == at["tuned_divergence"] != at["divergence"]
    assert int(row["tuned_id"]) == at["tuned_id"]
    assert run("lens", "--run", str(copied), "--tuned", "--max-tokens", "200", "--out", "b.png").code == 0
    assert min(Image.open(io.BytesIO(Path("b.png").read_bytes())).size) > 100


def test_over_training_has_what_each_checkpoint_has(run: RunCommand, copied: Path, here: Path) -> None:
    steps = sorted(int(path.stem[5:]) for path in (copied / "checkpoints").glob("step-*"))
    words = "lens", "--run", str(copied), "--max-tokens", "200"
    found = json.loads(run(*words, "--over-training", "--json").out)
    assert [at["step"] for at in found["steps"]] == steps
    for step, at in zip(steps, found["steps"], strict=True):
        alone = json.loads(run(*words, "--checkpoint", str(step), "--json").out)
        assert at["layers"] == alone["layers"]
    lines = run(*words, "--over-training").out.splitlines()
    assert lines[0] == "loss"
    assert lines[2].split() == ["step", "L0", "L1"]
    run(*words, "--over-training", "--out", "h.csv", exits=0)
    assert len([*csv.DictReader(io.StringIO(Path("h.csv").read_text("utf-8")))]) == 2 * len(steps)
    of_prompt = gpt_cli.load(copied).lens("The value", over_training=True, layers=1)
    assert of_prompt["loss"].axes == ("step", "layer")
    assert of_prompt["position_loss"].values.shape == (len(steps), 1, of_prompt.tokens)
    assert [row["loss_error"] for at in of_prompt.steps for row in at["layers"]] == [None] * len(steps)
    # one token has no next one, and so no rank
    for name in ("t.csv", "t.png"):
        assert run("lens", "--run", str(copied), "--over-training", "--prompt", "", "--out", name).code == 0
    assert min(Image.open(io.BytesIO(Path("t.png").read_bytes())).size) > 100
    outcome = run(*words, "--over-training", "--out", "h.html")
    assert (outcome.code, outcome.err.splitlines()[-1]) == (2, "hint: --out lens.png")
    shutil.copy(copied / "checkpoints" / "best.safetensors", "alone.safetensors")
    run("lens", "--run", "alone.safetensors", "--over-training", "--prompt", "a", exits=4)
    run(*words, "--over-training", "--tuned", exits=2)
    for path in (copied / "checkpoints").glob("step-*"):
        path.unlink()
    assert "this run has no checkpoints of steps" in run(*words, "--over-training", exits=4).err
