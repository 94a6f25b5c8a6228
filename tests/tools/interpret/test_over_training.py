"""The film of a training, as bytes, and steps that do not belong to it. In a browser: pages/attention/test_film.py."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support.helpers import RunCommand
from support.pages import content_of, keep, snapshots_of, unpacked

from gpt_cli.attention_maps.head_metrics import COLUMNS
from gpt_cli.attention_maps.snapshots import kept_steps
from gpt_cli.checkpoints.checkpoint import read_checkpoint, save_checkpoint
from gpt_cli.checkpoints.load import load
from gpt_cli.checkpoints.run_paths import RunFiles
from gpt_cli.common.host import NOBODY
from gpt_cli.model import GPT
from gpt_cli.tools.interpret.over_training import MOST_BYTES, frames_apart, make_film
from gpt_cli.tools.interpret.text_windows import each_checkpoint

TOKENS = ["The", " value", " of", " 今天"]
PATCH = ("patch", "--clean", "The value of", "--corrupt", "The name of", "--answer", " the")


def test_each_frame_holds_the_weights_and_scores_of_its_snapshot(tmp_path: Path) -> None:
    snapshots = snapshots_of(4, 2, 3, TOKENS)
    film = make_film(kept_steps(keep(snapshots, tmp_path)))
    content = content_of(film.as_page().encode())
    assert content["frames"]["steps"] == list(film.steps) == [1, 10, 20, 30]
    assert content["frames"]["losses"] == [snapshot.loss for snapshot in snapshots]
    frames = np.cumsum(unpacked(content["weights"], "u1").reshape(4, 2, 3, 10), axis=0, dtype=np.uint8)
    numbers = unpacked(content["scores"]["numbers"], "<f4").reshape(4, 2, 3, len(COLUMNS))
    for frame, snapshot in enumerate(snapshots):
        expected = snapshot.weights[..., *np.tril_indices(4)]
        np.testing.assert_allclose((frames[frame] / 255) ** 2, expected, atol=1 / 255)
        for place, column in enumerate(COLUMNS):
            np.testing.assert_allclose(numbers[frame, ..., place], snapshot.scores[column], rtol=1e-6)


def test_layers_and_heads_are_chosen_as_for_a_dump(tmp_path: Path) -> None:
    snapshots = snapshots_of(2, 3, 3, TOKENS)
    film = make_film(kept_steps(keep(snapshots, tmp_path)), "1-2", "0,2")
    assert (film.layers, film.heads) == ((1, 2), (0, 2))
    first = unpacked(content_of(film.as_page().encode())["weights"], "u1").reshape(2, 2, 2, 10)[0]
    expected = snapshots[0].weights[1:, ::2][..., *np.tril_indices(4)]
    np.testing.assert_allclose((first / 255) ** 2, expected, atol=1 / 255)


def test_curves_come_from_the_metrics_and_are_thinned_to_what_a_page_shows(tmp_path: Path) -> None:
    run = keep(snapshots_of(2, 1, 1, TOKENS), tmp_path)
    lines = [json.dumps({"step": 1 + 9 * number // 4000, "loss": number}) for number in range(4000)]
    run.metrics.write_text("\n".join([*lines, '{"step": 10, "validation_loss": 3.5}', '{"step": 20, "val']))
    curves = content_of(make_film(kept_steps(run)).as_page().encode())["frames"]["curves"]
    assert curves["validation_loss"] == [[10, 3.5]]
    assert curves["loss"][:2] == [[1, 0], [1, 2]]
    assert len(curves["loss"]) == 2000


def test_snapshots_of_a_prompt_that_the_run_has_left_are_no_frames(tmp_path: Path) -> None:
    older, *newer = snapshots_of(3, 1, 2, TOKENS)
    film = make_film(kept_steps(keep([replace(older, prompt="another"), *newer], tmp_path)))
    assert (film.steps, film.num_others) == ((10, 20), 1)


def test_snapshots_of_an_earlier_model_of_the_run_are_no_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = keep(snapshots_of(4, 1, 2, TOKENS), tmp_path)
    lines = [{"step": step, "loss": 3.0, "model": 1 + (step > 10)} for step in (5, 10, 15, 25)]
    for of_checkpoint, with_models in ((10, False), (0, True)):  # the newest may be of the earlier model
        written = [line if with_models else {"step": line["step"], "loss": 3.0} for line in lines]
        (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in written))
        monkeypatch.setattr("gpt_cli.attention_maps.snapshots.model_began", lambda *_, began=of_checkpoint: began)
        steps = kept_steps(run)
        assert steps.losses is not None
        assert [*steps.losses["loss"]] == [(15, 3.0), (25, 3.0)]
        film = make_film(steps)
        assert film.steps == (20, 30)
        assert content_of(film.as_page().encode())["frames"]["curves"]["loss"] == [[25, 3.0]], "those of its frames"


def test_too_large_a_page_has_every_second_frame_and_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = keep(snapshots_of(4, 1, 2, TOKENS), tmp_path)
    frame = 2 * (10 + 4 * len(COLUMNS) + 1)
    monkeypatch.setattr("gpt_cli.tools.interpret.over_training.MOST_BYTES", 3 * frame)
    film = make_film(kept_steps(run))
    assert (film.every, film.steps) == (2, (10, 30))
    assert frames_apart(3, 2, 4, MOST_BYTES, 0) == 1


def test_a_frame_too_large_for_a_page_is_shown_alone() -> None:
    assert frames_apart(40, 144, 1024, MOST_BYTES, 0) == 40


def test_a_step_that_a_training_removes_meanwhile_is_left_out(copied: Path) -> None:
    paths = [*RunFiles(copied).steps().values()]
    newest = load(paths[-1])
    for path in paths:
        path.unlink()
    assert [each.step for each in each_checkpoint(paths, newest, torch.device("cpu"), NOBODY)] == [20]


def test_a_step_of_another_shape_is_named(run: RunCommand, copied: Path) -> None:
    step = copied / "checkpoints" / "step-00000010.safetensors"
    stored = read_checkpoint(step, everything=True)
    config = stored.config.changed(model={"num_heads": 1})
    weights = GPT(config.model, stored.tokenizer.vocab_size).state_dict()
    save_checkpoint(step, replace(stored, config=config, weights=weights, optimizer_state={}))
    for words in (("lens",), PATCH):
        outcome = run(*words, "--over-training", "--run", str(copied), exits=4)
        assert 'step-00000010.safetensors": its model is not of the same shape as in' in outcome.err
