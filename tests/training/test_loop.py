import json
import math
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.corpora import noting
from support.helpers import small_config
from support.runs import assert_same, assert_same_run, finish, metrics, start, tensors

from gpt_cli.checkpoints.checkpoint import read_checkpoint
from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.common.host import Host
from gpt_cli.errors import CheckpointError, DivergedError, EnvironmentFailure
from gpt_cli.model import GPT
from gpt_cli.text.sft_examples import Examples
from gpt_cli.text.token_files import validation_windows
from gpt_cli.training import evaluate_and_log
from gpt_cli.training.batches import Batches
from gpt_cli.training.events import Evaluated, Finished, Sampled, Saved, Stepped, TrainingEvent
from gpt_cli.training.loop import lower_rates, train
from gpt_cli.training.run import Run
from gpt_cli.training.step import compute_gradient, send, time_step
from gpt_cli.training.validation import validation_score

pytestmark = pytest.mark.slow
AT_THE_END = ("train.eval_every=1000", "train.save_every=1000", "train.sample_every=null")


def first_tokens(run: Run, number: int) -> None:
    """Let a run train on the first tokens of its text alone."""
    assert isinstance(run.state.batches, Batches)
    run.state.batches = replace(run.state.batches, ids=run.state.batches.ids[:number])


def until_saved(reports: Iterator[TrainingEvent], step: int) -> None:
    """Take reports until the checkpoint of a step is written, then abandon the run as a kill would."""
    for report in reports:
        if isinstance(report, Saved) and report.step == step:
            return
    raise AssertionError(f"step {step} was never saved")


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(
    "settings",
    [
        ["model.dropout=0.1", "train.dtype=bfloat16", "model.positions=rope", "train.batch_size=64"],
        ["model.attention=latent", "model.positions=rope", "model.feed_forward_size=40", "train.optimizer=muon"],
        ["train.rank=2", "train.freeze=1", "train.micro_batch_size=1"],
    ],
    ids=["bfloat16-over-epochs", "latent", "low-rank"],
)
def test_a_run_cut_in_two_equals_the_whole_bit_for_bit(tmp_path: Path, settings: list[str]) -> None:
    config = small_config(*settings, "train.sample_every=8")
    whole = start(tmp_path / "whole", config)
    finish(whole)
    first = start(tmp_path / "cut", config)
    time_step(first.state)  # which changes nothing
    until_saved(train(first), 4)
    stored = first.directory.newest(print)
    assert stored is not None
    second = start(tmp_path / "cut", config, stored)
    finish(second)
    assert_same_run(second, whole)


def test_micro_batches_give_the_gradient_of_the_whole_batch(tmp_path: Path) -> None:
    gradients = []
    for micro in ("1", "2", "4"):
        run = start(tmp_path / micro, small_config("model.dropout=0.5", f"train.micro_batch_size={micro}"))
        run.state.model.double()
        compute_gradient(run.state, send(run.state, 0))
        gradients.append([p.grad.clone() for p in run.state.model.parameters() if p.grad is not None])
    for other in gradients[1:]:
        for a, b in zip(gradients[0], other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-14)


def test_one_repeated_batch_is_learned(tmp_path: Path) -> None:
    settings = ["model.dropout=0", "train.max_steps=60", "train.learning_rate=2e-2", "train.batch_size=2"]
    run = start(tmp_path, small_config(*settings, *AT_THE_END))
    first_tokens(run, 18)
    losses = [report.loss for report in train(run) if isinstance(report, Stepped) and report.loss is not None]
    assert len(losses) == 60
    assert losses[0] == pytest.approx(math.log(257), abs=0.3)
    assert losses[-1] < 0.1


def test_reports_files_and_summary_belong_together(tmp_path: Path) -> None:
    run = start(tmp_path, small_config("train.keep_checkpoints=1"))
    reports = list(train(run))
    assert [report.step for report in reports if isinstance(report, Stepped)] == list(range(1, 9))
    assert [report.step for report in reports if isinstance(report, Evaluated)] == [4, 8]
    assert [report.step for report in reports if isinstance(report, Sampled)] == [4, 8]
    lines = [json.loads(line) for line in run.directory.metrics.read_text().splitlines()]
    assert [line["step"] for line in lines] == [2, 4, 6, 8]
    assert " ".join(lines[0]) == "step tokens seconds loss smoothed_loss learning_rate gradient_norm tokens_per_second"
    assert set(lines[1]) - set(lines[0]) == {"validation_loss", "validation_tokens", "bits_per_byte"}
    assert [line["tokens"] for line in lines] == [2 * 64, 4 * 64, 6 * 64, 8 * 64]
    assert list(run.directory.steps()) == [8]
    assert read_checkpoint(run.directory.best).optimizer_state == {}
    (finished,) = (report for report in reports if isinstance(report, Finished))
    assert " ".join(finished.summary) == (
        "run steps tokens seconds loss smoothed_loss validation_loss validation_loss_error validation_tokens "
        "bits_per_byte tokens_per_second parameters device dtype stopped_by"
    )
    assert finished.summary["stopped_by"] == "steps"
    assert finished.signal is None
    figures = {key: value for key, value in finished.summary.items() if key not in ("run", "steps")}
    assert outcome_of(run) == {"stopped_by": "steps", "step": 8, "best_step": finished.best_step} | figures
    # the last evaluation was the best, so its weights are those of the closing one, on more tokens
    best = min(line["validation_loss"] for line in lines if "validation_loss" in line)
    assert finished.summary["validation_loss"] == pytest.approx(best, abs=0.3)


def test_patience_stops_and_keeps_the_best_whose_loss_on_the_whole_validation_text_is_the_closing_one(
    tmp_path: Path,
) -> None:
    settings = ["train.max_steps=400", "train.learning_rate=0.03", "train.patience=2", "train.eval_every=5"]
    run = start(tmp_path, small_config(*AT_THE_END, *settings, "model.dropout=0"))
    first_tokens(run, 40)  # little text: it overfits
    reports, ids = list(train(run)), run.validation_ids
    losses = [report.score.loss for report in reports if isinstance(report, Evaluated)]
    (finished,) = (report for report in reports if isinstance(report, Finished))
    assert finished.summary["stopped_by"] == "patience"
    assert losses.index(min(losses)) == len(losses) - 3
    best = read_checkpoint(run.directory.best)
    assert best.progress.best_loss == min(losses)
    assert run.progress.step in run.directory.steps()

    def loss(model: GPT) -> float:
        windows = validation_windows(len(ids), run.config.model.context_length)
        return validation_score(model, run.tokenizer, ids, windows, batch_size=4096 // 16, dtype="float32").loss

    assert finished.summary["validation_loss"] == loss(best.build_model())
    assert finished.summary["validation_loss"] != loss(run.state.model)


@pytest.mark.parametrize("moment", ["before", "during"])
def test_a_signal_cuts_the_closing_evaluation_short(tmp_path: Path, moment: str) -> None:
    run = start(tmp_path, small_config(*AT_THE_END))
    calls: list[int] = []

    def stop() -> int | None:
        # once everything is saved, asked before the closing evaluation and after each of its batches
        if 8 in run.directory.steps():
            calls.append(1)
        return 2 if len(calls) > (0 if moment == "before" else 2) else None

    finished = finish(run, Host(stop=stop))
    assert (finished.signal, finished.summary["stopped_by"], finished.summary["validation_loss"]) == (2, "signal", None)
    assert finished.summary["validation_loss_error"] is finished.summary["validation_tokens"] is None
    assert 8 in run.directory.steps()


def test_what_a_signal_cuts_short_is_left_for_the_run_that_continues(tmp_path: Path) -> None:
    run = start(tmp_path, small_config("train.eval_tokens=640", "train.batch_size=1"))
    asked_in_step_4 = 0

    def stop() -> int | None:
        nonlocal asked_in_step_4
        asked_in_step_4 += run.progress.step == 4 and not run.progress.observed
        return 15 if asked_in_step_4 == 3 else None  # in the third of forty batches

    list(train(run, Host(stop=stop)))
    stored = run.directory.newest(print)
    assert stored is not None
    assert (stored.progress.step, stored.progress.observed_step, stored.progress.best_loss) == (4, 3, None)
    assert [line["step"] for line in metrics(run)] == [2]
    assert run.state.model.training
    again = start(tmp_path, run.config, stored)
    assert isinstance(next(train(again)), Evaluated)
    assert [line["step"] for line in metrics(again)] == [2, 4]


def test_an_unfinished_accumulation_is_dropped(tmp_path: Path) -> None:
    run = start(tmp_path, small_config("train.micro_batch_size=1", "train.eval_every=100"))
    before = tensors(run)
    asked = iter([None, None, None, 2, 2])  # before the step, and between its four micro-batches
    list(train(run, Host(stop=lambda: next(asked))))
    assert run.progress.step == 0
    assert_same(tensors(run), before)
    assert all(parameter.grad is None for parameter in run.state.model.parameters())


def test_a_checkpoint_whose_directory_is_gone_is_not_called_intact(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    reports = train(start(folder, small_config("train.log_every=1")))
    until_saved(reports, 4)
    shutil.rmtree(folder)
    with pytest.raises(EnvironmentFailure) as raised:
        list(reports)
    assert raised.value.lines() == [
        f'error: writing "{folder}/metrics.jsonl": there is no such directory; the checkpoint of step 4 is gone with its directory',
        f"hint: put the directory back; then continue with gpt train --out '{folder}' --resume",
    ]
    assert not folder.exists()


def test_a_sample_whose_logits_are_not_finite_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise CheckpointError("checkpoint", "its weights give logits that are not finite")

    monkeypatch.setattr(evaluate_and_log, "continuations", refuse)
    for every, clause in ((8, "nothing was saved yet"), (1, "only the best weights so far are saved")):
        run = start(tmp_path / str(every), small_config("train.sample_every=2", f"train.eval_every={every}"))
        with pytest.raises(DivergedError, match=f"step 2: the logits of a sample are not finite; {clause}"):
            list(train(run))


def test_a_validation_loss_that_is_not_finite_ends_the_run(tmp_path: Path) -> None:
    run = start(tmp_path, small_config("train.eval_every=2"))
    with torch.no_grad():
        run.state.model.token_embedding.weight[ord("~")] = math.nan  # a byte that only the validation text has
    assert not isinstance(run.validation_ids, Examples)
    run.validation_ids = np.concatenate([run.validation_ids[:], [ord("~"), 1]])
    run.state.config = run.config.changed(train={"eval_tokens": 10**6})
    with pytest.raises(DivergedError, match="step 2: the validation loss is nan; nothing was saved yet"):
        list(train(run))


@pytest.mark.parametrize(("what", "step", "rate"), [("weight", 1, 50), ("logits", 6, 93.75)])
def test_a_loss_that_is_not_finite_ends_before_the_weights_change(
    tmp_path: Path, what: str, step: int, rate: float
) -> None:
    run = start(tmp_path, small_config("train.learning_rate=100", "train.gradient_clip=null", "train.max_steps=50"))
    if what == "weight":
        with torch.no_grad():
            run.state.model.token_embedding.weight[ord("s")] = math.nan
    else:
        run.state.model.register_forward_hook(lambda *call: call[2] * (1e30 if run.progress.step == 5 else 1))
    figures = f"the loss is (nan|inf) and the gradient norm is nan at learning rate {rate:g}"
    intact = "nothing was saved yet" if what == "weight" else "the checkpoint of step 4 is intact"
    with pytest.raises(DivergedError, match=f"^step {step}: {figures}; {intact}$") as raised:
        list(train(run))
    assert raised.value.exit_code == 6
    assert raised.value.hint == "start again with ‹overwrite=True› and ‹train.learning_rate=0.03›"
    assert outcome_of(run) == {"stopped_by": "diverged", "step": step}
    saved = run.directory.newest(print)
    assert saved is None or all(tensor.isfinite().all() for tensor in saved.weights.values())


def test_a_lower_rate_is_the_usual_one_or_a_third_and_every_rate_has_a_flag() -> None:
    """At a width of 16 the usual one is 0.03."""
    for rate, lower in ((100, 0.03), (0.1, 0.03), (0.03, 0.01), (1e-3, 0.0003)):
        assert lower_rates(small_config(f"train.learning_rate={rate}")) == f"‹train.learning_rate={lower:g}›"
    flags = "‹train.learning_rate=0.0003› ‹train.muon_learning_rate=0.007›"
    assert lower_rates(small_config("train.optimizer=muon")) == flags


class Clock:
    """Advances by a second at each call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.now = 0.0
        monkeypatch.setattr(time, "perf_counter", self.read)

    def read(self) -> float:
        self.now += 1
        return self.now


def test_by_the_clock_the_last_step_is_the_last_that_ends_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Clock(monkeypatch)
    settings = ["train.max_time=100", "train.warmup_steps=0", "train.log_every=1", "train.learning_rate=1.0"]
    run = start(tmp_path, small_config(*settings, *AT_THE_END))
    reports = list(train(run))
    lines = metrics(run)
    assert len(lines) == run.progress.step == 20  # of five seconds each
    assert [line["learning_rate"] for line in lines] == pytest.approx([0.98 - 0.05 * step for step in range(20)])
    assert "validation_loss" in lines[-1]
    assert isinstance(reports[-1], Finished)
    assert reports[-1].summary["stopped_by"] == "time"
    # stopped in the middle, it goes on from the seconds it had spent
    run = start(tmp_path / "b", small_config(*settings, *AT_THE_END, "train.save_every=12"))
    until_saved(train(run), 12)
    stored = read_checkpoint(run.directory.step_file(12), everything=True)
    again = start(tmp_path / "b", stored.config, stored)
    list(train(again))
    assert abs(again.progress.step - 20) <= 1
    rates = [line["learning_rate"] for line in metrics(again)]
    assert rates == sorted(rates, reverse=True)
    assert rates[12] == pytest.approx(0.38, abs=0.03)


def test_by_the_clock_evaluations_count_and_one_that_uses_up_the_time_is_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)

    def slow(*args: Any, **options: Any) -> Any:
        clock.now += 30
        return validation_score(*args, **options)

    monkeypatch.setattr("gpt_cli.training.evaluate_and_log.validation_score", slow)
    settings = ["train.max_time=100", "train.warmup_steps=0", "train.log_every=1", "train.learning_rate=1.0"]
    watched = ["inspect.prompt=4 squared", "inspect.every=50"]
    run = start(tmp_path, small_config(*settings, "train.sample_every=50", *watched))
    sampled = [report.step for report in train(run) if isinstance(report, Sampled)]
    assert (sampled, list(run.directory.snapshots())) == ([8], [1, 8])
    lines = metrics(run)
    # twice four steps of 5 s and an evaluation of 30 s
    assert [line["step"] for line in lines] == list(range(1, 9))
    assert lines[4]["learning_rate"] == pytest.approx(1 - 0.52, abs=0.02)
    assert lines[-1]["learning_rate"] > 0.3
    assert "validation_loss" in lines[-1]


def test_by_the_clock_the_last_step_is_sampled_though_something_takes_the_rest_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an evaluation that left time for a step, a slow terminal takes it: the step follows, and is the last."""
    clock = Clock(monkeypatch)
    settings = ["train.max_time=100", "train.warmup_steps=0", "train.eval_every=4", "train.sample_every=50"]
    run = start(tmp_path, small_config(*settings))
    evaluated, sampled = list[int](), list[int]()
    for report in train(run):
        if isinstance(report, Evaluated):
            evaluated.append(report.step)
            clock.now += 100 if report.step == 8 else 0
        elif isinstance(report, Sampled):
            sampled.append(report.step)
    assert (evaluated, sampled) == ([4, 8, 9], [9])


def test_a_run_saved_without_elapsed_time_has_spent_the_seconds_of_its_steps(tmp_path: Path) -> None:
    run = start(tmp_path, small_config("train.max_steps=1"))
    list(train(run))
    stored = run.checkpoint(with_optimizer=True)
    old = replace(stored, progress=replace(stored.progress, elapsed=0.0, seconds=3600.0))
    assert start(tmp_path, stored.config, old).progress.elapsed == 3600


def test_work_is_counted_and_an_evaluation_computes_as_much_at_once_as_a_step_but_the_closing_one_more(
    tmp_path: Path,
) -> None:
    """A model whose steps fit into memory fits there at its evaluations too."""
    micro = ("train.batch_size=2", "train.micro_batch_size=1")
    run = start(tmp_path, small_config(*micro, "train.max_steps=1", "data.validation_tokens=64"))
    amounts: dict[str, list[int]] = {}
    finished = finish(run, Host(counting=noting(amounts)))
    assert amounts["evaluating"] == [64, 0, *[16] * 4]
    assert amounts["sampling"] == [8, 0, *[1] * 8]
    assert {"saving", "saving the best weights", "reading the best weights"} <= amounts.keys()
    assert amounts["closing evaluation"] == [64, 0, 64]  # all at once
    windows = validation_windows(len(run.validation_ids), 16, 64)
    assert len(windows) == 4
    best = read_checkpoint(run.directory.best).build_model()
    found = validation_score(best, run.tokenizer, run.validation_ids, windows, batch_size=4, dtype="float32")
    assert finished.summary["validation_loss"] == pytest.approx(found.loss, rel=1e-6)
    assert finished.summary["validation_tokens"] == 64
    assert 0 < finished.summary["validation_loss_error"] < 1
    assert finished.best_step == 1


def outcome_of(run: Run) -> dict[str, Any]:
    return json.loads(run.directory.outcome.read_text())


def test_a_run_that_continues_has_no_outcome_until_it_ends_again(tmp_path: Path) -> None:
    run = start(tmp_path, small_config())
    finished = finish(run, Host(stop=lambda: 15 if run.progress.step >= 3 else None))
    assert (finished.signal, outcome_of(run)["stopped_by"], list(run.directory.steps())) == (15, "signal", [3])
    assert (outcome_of(run)["step"], outcome_of(run)["validation_loss"]) == (3, None)
    again = start(tmp_path, run.config, run.directory.newest(print))
    assert not again.directory.outcome.exists()
    list(train(again))
    assert (outcome_of(again)["stopped_by"], outcome_of(again)["step"]) == ("steps", 8)
    assert not start(tmp_path, run.config).directory.outcome.exists()


def test_a_figure_that_json_cannot_hold_is_null_in_the_outcome(tmp_path: Path) -> None:
    RunDirectory(tmp_path).end("steps", 3, loss=math.inf, parameters=7)
    written = json.loads((tmp_path / "outcome.json").read_text())
    assert written == {"stopped_by": "steps", "step": 3, "loss": None, "parameters": 7}
