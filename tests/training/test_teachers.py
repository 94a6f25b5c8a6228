"""Two models that train in one run, the second taught by the first."""

import json
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support.corpora import Texts
from support.helpers import CORPUS_TEXT, small_config
from support.prepared import prepared
from support.runs import assert_same, start, tensors

import gpt_cli
from gpt_cli.checkpoints.checkpoint import read_checkpoint
from gpt_cli.checkpoints.header import Progress
from gpt_cli.checkpoints.metrics_files import smoothed
from gpt_cli.common.host import Host
from gpt_cli.config import TrainConfig
from gpt_cli.errors import EnvironmentFailure, UsageError
from gpt_cli.model import GPT
from gpt_cli.model.dropout import Dropout
from gpt_cli.text.token_files import TokensOnDisk
from gpt_cli.tools.reports.run_record import read_record
from gpt_cli.training import taught_targets, teachers
from gpt_cli.training.batches import Batches, batches_of
from gpt_cli.training.events import Stepped
from gpt_cli.training.intervals import model_ends, settings_of_model
from gpt_cli.training.loop import train
from gpt_cli.training.lr_schedule import lr_multiplier
from gpt_cli.training.resume import _require_no_less
from gpt_cli.training.state import TrainingState
from gpt_cli.training.taught_targets import BYTES_PER_TOKEN, CERTAIN, TaughtTargets
from gpt_cli.training.teachers import mean_probabilities

START = Progress.at_the_start(1000, "", {})
NO_SAMPLES = "train.sample_every=null"
SHORT_TEXT = CORPUS_TEXT[:1500]  # as the probabilities of each token are computed
SHORT = Texts((SHORT_TEXT,))


def settings(**values: object) -> TrainConfig:
    return TrainConfig.model_validate({"warmup_steps": 0, **values})


def by_steps(config: TrainConfig) -> list[tuple[Progress, TrainConfig]]:
    """The progress before each step, and the settings of the model that takes the step."""
    progress, found = START, list[tuple[Progress, TrainConfig]]()
    for step in range(config.max_steps or 0):
        progress = replace(progress, step=step)
        if model_ends(progress, config):
            progress = replace(progress, teachers=(*progress.teachers, step))
        found.append((progress, settings_of_model(progress, config)))
    return found


def test_models_share_the_steps_and_the_rate_falls_for_each() -> None:
    found = by_steps(settings(max_steps=10, teacher_share=0.3))
    rates = [lr_multiplier(progress.step - progress.model_step, of_model) for progress, of_model in found]
    assert found[-1][0].teachers == (3,)
    assert rates == pytest.approx([1, 2 / 3, 1 / 3, 1, 6 / 7, 5 / 7, 4 / 7, 3 / 7, 2 / 7, 1 / 7])


def test_after_the_first_model_all_train_equally_long_and_the_last_twice_as_long() -> None:
    found = by_steps(settings(max_steps=50, teacher_share=0.2, num_models=4))
    for progress, of_model in found:
        assert progress.model_step + (of_model.max_steps or 0) in (10, 20, 30, 50)
        # what is drawn anew is not memorised
        assert of_model.weight_decay == pytest.approx(0.01 if progress.step >= 30 else 0.1)
    assert found[-1][0].teachers == (10, 20, 30)


def test_models_share_the_time() -> None:
    by_clock = settings(max_time=120.0, teacher_share=0.25)  # 30 seconds, and 90
    assert [model_ends(replace(START, step=5, elapsed=elapsed), by_clock) for elapsed in (29.9, 30.1)] == [False, True]
    assert not model_ends(replace(START, step=5, elapsed=120.1), by_clock)  # nothing is left for another
    assert settings_of_model(replace(START, step=5), by_clock).max_time == 30.0
    second = replace(START, step=9, elapsed=110.0, teachers=(5,), model_elapsed=31.0)
    assert not model_ends(second, by_clock)
    assert settings_of_model(second, by_clock).max_time == 89.0  # until two minutes are over
    assert not model_ends(replace(START, elapsed=70.0), by_clock)  # a model takes a step at least
    assert settings_of_model(START, settings(max_time=120.0)).max_time == 120.0  # no teacher


def test_the_probabilities_of_teachers_are_their_mean_on_the_text_before() -> None:
    config = small_config("model.context_length=8", "model.dropout=0")
    models = [GPT(config.model, 5, torch.Generator().manual_seed(seed)) for seed in (0, 1)]
    ids = np.tile(np.array([0, 3, 1, 4, 2, 2, 0], np.int64), 6)  # 42 tokens
    with torch.no_grad():
        for parameter in (parameter for model in models for parameter in model.parameters()):
            parameter *= 4  # so that they prefer some tokens
    likely, cumulative = mean_probabilities(models, ids, config.train, 0, lambda _: None)
    assert likely.shape == cumulative.shape == (42, 5)
    # the target at 5 has all tokens before it as its context; the one at 30 has those from 24 on
    for position, begin in ((5, 0), (30, 24)):
        with torch.no_grad():
            logits = [model(torch.from_numpy(ids[None, begin:position]))[0, -1] for model in models]
        expected = (torch.softmax(logits[0], dim=-1) + torch.softmax(logits[1], dim=-1)).numpy() / 2
        probabilities = np.diff(cumulative[position].astype(float), prepend=0) / CERTAIN
        assert probabilities == pytest.approx(expected[likely[position]], abs=2 / CERTAIN)
        assert (np.diff(probabilities) <= 1 / CERTAIN).all()  # most probable first


def test_less_probable_tokens_than_are_stored_stay_as_probable_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 50 tokens 12 are stored, 4 of which stand for 42 others: on average, each of these is as probable as before."""
    monkeypatch.setattr(taught_targets, "MOST_LIKELY", 12)
    monkeypatch.setattr(teachers, "FROM_TAIL", 4)
    config = small_config("model.context_length=8", "model.dropout=0", "model.num_blocks=1")
    model, ids = GPT(config.model, 50, torch.Generator().manual_seed(0)), np.arange(9)
    mean = np.zeros(50)
    for step in range(500):
        likely, cumulative = mean_probabilities([model], ids, config.train, step, lambda _: None)
        assert likely.shape == (9, 12)
        np.add.at(mean, likely[4], np.diff(cumulative[4].astype(float), prepend=0) / CERTAIN / 500)
    with torch.no_grad():
        expected = torch.softmax(model(torch.from_numpy(ids[None, :4]))[0, -1], dim=-1).numpy()
    assert mean == pytest.approx(expected, abs=0.008)
    assert mean[expected.argsort()[-8:]] == pytest.approx(expected[expected.argsort()[-8:]], abs=1e-4)


@pytest.mark.parametrize("length", [2, 5, 9, 12, 13, 17])
def test_every_target_of_a_text_of_any_length_is_drawn(length: int) -> None:
    config = small_config("model.context_length=8")
    model = GPT(config.model, 5, torch.Generator().manual_seed(0))
    weights = {name: torch.zeros_like(weight) for name, weight in model.state_dict().items()}
    weights["final_norm.bias"] += 1.0
    weights["output_layer.weight"][4] = 10.0  # it knows nothing but token 4
    model.load_state_dict(weights)
    likely, cumulative = mean_probabilities([model], np.zeros(length, np.int64), config.train, 0, lambda _: None)
    assert (likely[1:, 0] == 4).all()
    assert (cumulative[1:, 0] == CERTAIN).all()


def test_the_memory_of_what_two_models_take_beside_one_is_in_the_estimate() -> None:
    ids = np.random.default_rng(0).integers(0, 1024, 20_000)
    tracemalloc.start()
    taught = TaughtTargets(ids.copy(), 1)
    assert taught.counts
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.7 * BYTES_PER_TOKEN < peak / len(ids) <= BYTES_PER_TOKEN

    alone = prepared("smoke", vocab_size=512, tokens=1000)
    both = replace(alone, config=alone.config.changed(train={"teacher_share": 0.2}))
    assert both.memory_bytes - alone.memory_bytes == 1000 * (BYTES_PER_TOKEN + 4 * 512)  # ids and probabilities
    longer = (replace(each, num_training_tokens=10**6).memory_bytes for each in (alone, both))
    assert -next(longer) + next(longer) == 10**6 * (BYTES_PER_TOKEN + 4 * 64)


def test_targets_that_memory_cannot_hold_are_refused_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpt_cli.training.setup.teaching_bytes", lambda *_: 2**50)
    (tmp_path / "a.txt").write_text(CORPUS_TEXT)
    config = small_config("train.teacher_share=0.5", "train.max_steps=2", NO_SAMPLES)
    with pytest.raises(EnvironmentFailure, match=r"train\.teacher_share: the targets of teachers take about"):
        list(gpt_cli.train(config, data=tmp_path / "a.txt", out=tmp_path / "run"))


def test_a_new_model_begins_anew_and_its_teacher_stays_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taught = ("train.teacher_share=0.33", "train.max_steps=12", "train.keep_checkpoints=1", NO_SAMPLES)
    run = start(tmp_path / "taught", small_config(*taught, "train.save_every=1", "train.log_every=1"), corpus=SHORT)
    weights = dict[int, torch.Tensor]()
    for _ in train(run):
        weights[run.progress.step] = tensors(run)["token_embedding.weight"].clone()
    assert run.progress.teachers == (4,)
    lines = [json.loads(line) for line in run.directory.metrics.read_text().splitlines()]
    expected = lines[4]["loss"]  # the mean of the second model's losses begins anew
    for step, line in enumerate(lines[5:], 2):
        expected = smoothed(expected, line["loss"], step)
        assert line["smoothed_loss"] == pytest.approx(expected)
    assert list(run.directory.steps()) == [4, 12]
    assert read_record(tmp_path / "taught").teachers == (4,)
    run.directory.step_file(12).unlink()  # as before the first save of the second model
    assert read_record(tmp_path / "taught").teachers == (4,)
    alone = small_config(*taught, "train.teacher_share=null", "train.max_steps=4")
    plain = start(tmp_path / "plain", alone, corpus=SHORT)
    list(train(plain))
    assert torch.equal(weights[4], tensors(plain)["token_embedding.weight"])  # the first is as if it were alone
    began = start(tmp_path / "other", small_config(*taught, "train.seed=5"), corpus=SHORT)
    began.state.progress = replace(began.progress, step=4)
    monkeypatch.setattr(TrainingState, "elapsed", lambda _: 7.5)  # with the time of drawing targets
    began.state.begin_next_model()
    assert (began.progress.model_elapsed, began.progress.elapsed) == (7.5, 0.0)
    assert all(not tensor.any() for name, tensor in tensors(began).items() if name.startswith("optimizer."))
    assert not torch.equal(tensors(began)["token_embedding.weight"], weights[4])


def test_a_run_that_stops_anywhere_goes_on_to_the_same_weights(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the second of four models begins, after its first step, in the last one, and in the closing evaluation."""
    (here / "text.txt").write_text(SHORT_TEXT[:600])
    averaged = ("train.teacher_share=0.25", "train.ema_decay=0.5", "train.num_models=4")
    config = small_config("data.source=text.txt", NO_SAMPLES, *averaged)
    settings = {"train.max_steps": 12, "train.save_every": 5, "train.eval_every": 6}
    whole = gpt_cli.train(config, out="whole", settings=settings).finish()
    last = read_checkpoint(Path("whole/checkpoints/step-00000012.safetensors"))
    for stop in (3, 4, 10):
        out = f"cut-{stop}"
        for event in gpt_cli.train(config, out=out, settings=settings):
            if isinstance(event, Stepped) and event.step == stop:
                break
        again = gpt_cli.train(out=out, resume=True).finish()
        assert again.summary["validation_loss"] == whole.summary["validation_loss"]
        found = read_checkpoint(Path(out) / "checkpoints/step-00000012.safetensors")
        assert_same(dict(found.weights), dict(last.weights))
        assert found.progress.teachers == last.progress.teachers == (3, 6, 8)
    Path("cut-3/outcome.json").unlink()
    monkeypatch.setattr("gpt_cli.training.setup.teach", pytest.fail)  # no step is left that needs a teacher
    again = gpt_cli.train(out="cut-3", resume=True).finish()
    assert again.summary["validation_loss"] == whole.summary["validation_loss"]


def test_the_first_model_teaches_all_but_the_last_which_learns_from_those(tmp_path: Path) -> None:
    config = small_config("train.teacher_share=0.2", "train.num_models=4", "train.max_steps=10", NO_SAMPLES)
    run = start(tmp_path / "run", config, corpus=SHORT)
    assert isinstance(run.state.batches, Batches)
    taught = run.state.batches.taught_targets
    assert taught is not None
    tables, dropouts = dict[int, tuple[np.ndarray | None, bool]](), dict[int, set[float]]()
    for _ in train(run):
        tables[run.progress.step] = taught.cumulative, taught.is_last
        dropouts[run.progress.step] = {part.p for part in run.state.model.modules() if isinstance(part, Dropout)}
    assert run.progress.teachers == (2, 4, 6)
    assert dropouts[6] == {config.model.dropout} != {0.0} == dropouts[10]
    assert run.state.optimizer.adamw.weight_decay == pytest.approx(config.train.weight_decay / 10)
    assert list(run.directory.steps())[:3] == [2, 4, 6]
    lines = map(json.loads, run.directory.metrics.read_text().splitlines())
    assert [(line["step"], line["model"]) for line in lines] == [(2, 1), (4, 2), (6, 3), (8, 4), (10, 4)]
    first, *others = (read_checkpoint(run.directory.step_file(step)).build_model() for step in (2, 4, 6))
    of_first, of_others = (
        mean_probabilities(models, taught.ids, run.config.train, step, lambda _: None)[1]
        for models, step in (([first], 2), (others, 6))
    )
    assert tables[2] == (None, False)
    for step, expected, expects_last in ((4, of_first, False), (6, of_first, False), (10, of_others, True)):
        table, is_last = tables[step]
        assert table is not None
        assert np.array_equal(table, expected)
        assert is_last == expects_last


def test_a_run_of_several_models_grows_no_shorter_than_its_models(tmp_path: Path) -> None:
    """Of 6 steps, the second model would end at the third and the third at the fourth, where the run is."""
    settings = ("train.teacher_share=0.2", "train.num_models=5", NO_SAMPLES)
    run = start(tmp_path / "run", small_config(*settings, "train.max_steps=20"), corpus=SHORT)
    for _ in train(run):
        if run.progress.step == 5:
            break
    assert run.progress.teachers == (4,)
    whole, shorter = run.config, run.config.changed(train={"max_steps": 6})
    _require_no_less(run.directory, run.progress, whole, whole)
    _require_no_less(run.directory, run.progress, run.config.changed(train={"max_steps": 16}), whole)
    with pytest.raises(UsageError, match="a model of this run would end after one step, and teach the last"):
        _require_no_less(run.directory, run.progress, shorter, whole)


def test_a_signal_right_after_the_second_model_began_leaves_its_teacher(tmp_path: Path) -> None:
    """Saved now, the new weights would replace those of the teacher, which has the same step."""
    run = start(tmp_path / "run", small_config("train.teacher_share=0.375", "train.max_steps=8"), corpus=SHORT)
    list(train(run, Host(stop=lambda: 15 if run.progress.teachers else None)))
    assert run.progress.teachers == (3,)
    assert list(run.directory.steps()) == [3]
    assert read_checkpoint(run.directory.step_file(3)).progress.teachers == ()


def test_patience_does_not_fit_to_teachers() -> None:
    (misfit,) = settings(teacher_share=0.2, patience=3).misfits()
    assert "the first evaluations of a new model are worse than the last of its teacher" in misfit.sentence


def test_a_model_that_begins_with_another_has_no_teacher(here: Path) -> None:
    (here / "text.txt").write_text(SHORT_TEXT)
    of_first = small_config(
        "data.source=text.txt", "train.max_steps=4", "train.teacher_share=0.3", "train.num_models=3"
    )
    gpt_cli.train(of_first, out="first").finish()
    gpt_cli.train(init_from="first", out="second", data="text.txt").finish()
    assert read_checkpoint(Path("second/checkpoints/step-00000004.safetensors")).progress.teachers == ()
    settings = {"train.teacher_share": 0.2}
    training = gpt_cli.train(init_from="first", out="third", data="text.txt", settings=settings)
    with pytest.raises(UsageError, match="must begin with random weights, not with those of another model"):
        training.finish()


def test_a_text_that_is_not_in_memory_has_no_teacher(tmp_path: Path) -> None:
    on_disk = TokensOnDisk(tmp_path, [], np.dtype(np.uint16), {})
    with pytest.raises(UsageError, match="a model cannot teach a text that stays on the disk"):
        batches_of(on_disk, small_config("train.teacher_share=0.2"), torch.device("cpu"))
