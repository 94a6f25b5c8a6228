"""What a training prints, made of reports."""

import json
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import support.prepared
import torch
from support.helpers import Terminal, small_config

from gpt_cli.cli.console import Console
from gpt_cli.cli.train_output import announce, conclude, show_progress
from gpt_cli.evaluation.nll import Score
from gpt_cli.training.advice.loss_curve import Curve, Line
from gpt_cli.training.events import Evaluated, Finished, Prepared, Sampled, Stepped, TrainingEvent


def prepared(*settings: str, step: int = 0, elapsed: float = 0.0) -> Prepared:
    """Of a run whose closing evaluation takes 5 s."""
    small = {"config": small_config(*settings), "step": step, "elapsed": elapsed, "closing_seconds": 5.0}
    return replace(support.prepared.prepared("smoke", vocab_size=257, tokens=10, documents=1), **small, steps_left=1)


def stepped(step: int, elapsed: float = 0.0, loss: float = 1.5, *, logged: bool = False, **more: Any) -> Stepped:
    return replace(Stepped(step, loss, 1e-3, 1.0, 1000.0, logged, elapsed, loss), **more)


def reports(*events: TrainingEvent) -> Iterator[TrainingEvent]:
    """Events with time between them, in which a bar is drawn, ten times a second at most; then the end."""
    for event in events:
        time.sleep(0.11)
        yield event
    yield Finished({}, None, None)


def test_the_time_left_follows_the_pace_of_this_part_or_the_clock_and_has_the_closing_evaluation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The first 10 of 30 steps took 100 s, on a busy machine; now a step takes 1 s."""
    start = prepared("train.max_steps=30", step=10, elapsed=100.0)
    show_progress(reports(stepped(20, 110.0)), start, Console())
    assert capsys.readouterr().err == "step 20/30: loss 1.5000, 1,000 tokens/s, 15 s left\n"
    show_progress(reports(stepped(3, 20.0)), prepared("train.max_time=60"), Console())
    assert capsys.readouterr().err == "step 3: loss 1.5000, 1,000 tokens/s, 45 s left\n"


def test_in_a_sweep_a_rate_is_what_is_tried(capsys: pytest.CaptureFixture[str]) -> None:
    for of_sweep in (False, True):
        announce(prepared("train.learning_rate=1e-6"), Console(), of_sweep=of_sweep)
        assert ("a learning rate of 1e-06 is 1/" in capsys.readouterr().err) != of_sweep


@pytest.mark.parametrize(
    ("settings", "flags"),
    [
        (["train.micro_batch_size=4"], "--processes 2 uses 2"),
        ([], "--processes 2 --set train.micro_batch_size=4 uses 2"),
        (["train.batch_size=7"], None),  # which no number of processes shares
        (["train.device=cuda:1"], None),
    ],
)
def test_a_run_on_one_of_three_gpus_names_flags_that_fit(
    settings: list[str], flags: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 3)
    start = prepared("train.device=cuda", "train.batch_size=8", *settings)
    announce(start, Console())
    notices = [line for line in capsys.readouterr().err.splitlines() if "GPUs" in line]
    assert notices == [f"this machine has 3 GPUs, but this run uses one; {flags}" for _ in range(flags is not None)]
    announce(start, Console(), of_sweep=True)
    assert "GPUs" not in capsys.readouterr().err


def test_large_numbers_have_commas_and_no_exponents(capsys: pytest.CaptureFixture[str]) -> None:
    start = replace(prepared("train.max_steps=4000", step=3000), epochs_left=1454.6, num_training_tokens=10**9)
    announce(start, Console())
    told = capsys.readouterr().err
    assert " tokens, 1,455 epochs, and the closing evaluation\n" in told
    assert "resuming run at step 3,000\n" in told
    assert "e+" not in told
    announce(replace(start, epochs_left=1.001), Console())
    assert " tokens, 1 epoch, and the closing evaluation\n" in capsys.readouterr().err


def put_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> Terminal:
    """A terminal in place of stderr."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", str(columns))
    return terminal


@pytest.mark.parametrize(
    ("language", "settings", "expected"),
    [
        ("en", "train.max_time=60", "20/60 s, step 3, loss 1.500"),
        ("en", "train.max_steps=30", "3/30 steps, loss 1.500"),
        ("zh", "train.max_time=60", "20/60 秒，第 3 步，损失 1.500，1,000 token/s，"),
        ("zh", "train.max_steps=30", "3/30 步，损失 1.500，1,000 token/s，"),
    ],
)
def test_the_bar_has_the_unit_of_its_way_and_the_step(
    language: str, settings: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPT_LANGUAGE", language)
    terminal = put_terminal(monkeypatch, 120)
    show_progress(reports(stepped(3, 20.0)), prepared(settings), Console())
    assert expected in terminal.getvalue()


def test_off_a_terminal_the_first_line_comes_an_interval_after_the_work_begins(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("gpt_cli.cli.progress.time.monotonic", lambda: now)
    with Console().counting("closing evaluation", 30, "tokens") as count:
        for now, amount in ((60.0, 0), (65.0, 10), (71.0, 10), (72.0, 10)):  # noqa: B007 - the clock reads it
            count(amount)
    assert capsys.readouterr().err == "closing evaluation: 20 of 30 tokens, 5.5 s left\n"


def finished(best_step: int, loss: float, error: float | None, **more: Any) -> Finished:
    summary = {"run": "run", "steps": 10, "seconds": 3.0, "stopped_by": "steps", "bits_per_byte": 2.107}
    summary |= {"validation_loss": loss, "validation_loss_error": error, "validation_tokens": 111539}
    return Finished(summary | more, None, best_step)


@pytest.mark.parametrize(("error", "expected"), [(0.00318, "1.4605 ± 0.0032 nats/token"), (None, "1.4605 nats/token")])
def test_the_result_tells_how_much_was_read_and_how_exact_the_loss_is(
    error: float | None, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    conclude(finished(10, 1.46049, error), prepared(), Curve(prepared()), Console(), as_json=False)
    figures = f"validation loss {expected} (111,539 tokens), 2.1070 bits/byte with the best weights, those of step 10"
    assert capsys.readouterr().out == f"run: 10 steps in 3.0 s, {figures}\n"


def test_a_piped_run_continues_with_its_text(capsys: pytest.CaptureFixture[str]) -> None:
    start, ended = prepared("data.source=-"), replace(finished(10, 1.5, None), signal=signal.SIGINT)
    conclude(ended, start, Curve(start), Console(), as_json=False)
    line = "stopped by Ctrl-C; step 10 is saved. To continue: cat my.txt | gpt train --out run --resume"
    assert line in capsys.readouterr().err.splitlines()


def evaluated(step: int, loss: float, model: int = 1) -> Evaluated:
    return Evaluated(step, Score(100, loss, None, 0.9), False, model)


def shown(
    reports: list[TrainingEvent], start: Prepared, capsys: pytest.CaptureFixture[str], *, quiet: bool = False
) -> list[str]:
    """The lines on stderr of a training that reports these."""
    show_progress(iter([*reports, Finished({}, None, None)]), start, Console(quiet))
    return capsys.readouterr().err.splitlines()


def test_an_evaluation_says_whether_it_is_better_or_worse_and_by_how_much(capsys: pytest.CaptureFixture[str]) -> None:
    losses = [(4, 2.533), (8, 2.413), (12, 2.5), (16, 2.40004), (1020, 2.40006)]
    assert shown([evaluated(step, loss) for step, loss in losses], prepared(), capsys) == [
        "step 4: validation loss 2.5330 nats/token, 0.9000 bits/byte, the first",
        "step 8: validation loss 2.4130 nats/token, 0.9000 bits/byte, better by 0.1200",
        "step 12: validation loss 2.5000 nats/token, 0.9000 bits/byte, worse by 0.0870 than at step 8",
        "step 16: validation loss 2.4000 nats/token, 0.9000 bits/byte, better by 0.0130",
        "step 1,020: validation loss 2.4001 nats/token, 0.9000 bits/byte, the same as at step 16",
    ]


def test_an_evaluation_says_which_earlier_model_was_better(capsys: pytest.CaptureFixture[str]) -> None:
    events = [evaluated(4, 2.4), evaluated(8, 2.5, model=2), evaluated(12, 2.4, model=2), evaluated(16, 2.3, model=2)]
    ends = [line.rpartition(", ")[2] for line in shown([*events, evaluated(20, 2.35, model=2)], prepared(), capsys)]
    assert ends[1:3] == ["worse by 0.1000 than at step 4 of model 1", "the same as at step 4 of model 1"]
    assert ends[3:] == ["better by 0.1000", "worse by 0.0500 than at step 16"]


@pytest.mark.parametrize(
    ("num_tokens", "words"),
    [(101, "the first"), (102, "the first, on 100 of 102 tokens"), (5000, "the first, on 100 of 5,000 tokens")],
)
def test_the_first_evaluation_says_how_much_of_the_validation_text_it_read(
    num_tokens: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The evaluation predicts 100 tokens: all of 101, since the first has no prediction."""
    start = replace(prepared(), num_validation_tokens=num_tokens)
    first, second = shown([evaluated(4, 2.5), evaluated(8, 2.4)], start, capsys)
    assert first == f"step 4: validation loss 2.5000 nats/token, 0.9000 bits/byte, {words}"
    assert second.endswith(", better by 0.1000")


def test_a_sample_is_set_apart_by_an_indent_and_keeps_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    sampled = Sampled(4, "The \x1b[31mvalue", " of\n\nthe ‹thing›")
    assert shown([sampled], prepared(), capsys) == [
        "step 4 sample, after its prompt in « »:",
        "    «The \\x1b[31mvalue» of",
        "    the ‹thing›",
    ]


def test_in_chinese_a_sample_has_chinese_marks_and_a_terminal_the_result_in_chinese(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPT_LANGUAGE", "zh")
    assert shown([Sampled(4, "今天", "天气\n不错")], prepared(), capsys) == [
        "第 4 步的样本（【 】里是提示词）：",
        "    【今天】天气",
        "    不错",
    ]
    ended = finished(600, 5.5952, 0.035, steps=1000, seconds=377.0, stopped_by="patience")
    conclude(ended, prepared(), Curve(prepared()), Console(), as_json=False)
    assert "训练完成" not in capsys.readouterr().err
    terminal = put_terminal(monkeypatch, 80)
    conclude(ended, prepared(), Curve(prepared()), Console(), as_json=False)
    line = "训练完成：1,000 步，用时 6 分 17 秒，验证损失 5.5952 nat/token，2.1070 bit/byte，第 600 步的权重最好"
    assert line in terminal.getvalue().splitlines()
    assert capsys.readouterr().out.startswith("run: 1,000 steps in 6 min 17 s, validation loss 5.5952 ± 0.0350")


def test_lines_have_a_smoothed_loss_and_the_best_validation_loss(capsys: pytest.CaptureFixture[str]) -> None:
    steps = [stepped(n) for n in range(1, 400)]
    last = stepped(400, 400.0, 3.0, smoothed_loss=2.05)
    lines = shown([evaluated(1, 2.413), *steps, last], prepared("train.max_steps=400"), capsys)
    assert lines[-1:] == ["step 400/400: loss 2.0500, best validation 2.413, 1,000 tokens/s, 5.0 s left"]


def test_the_bar_with_all_figures_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = put_terminal(monkeypatch, 80)
    step = stepped(450, 450.0, 2.345, tokens_per_second=29_389.0)
    show_progress(reports(evaluated(1, 2.413), step), prepared("train.max_steps=1000"), Console())
    assert " 450/1000 steps, loss 2.345, best 2.413, 29,389 tokens/s, 9 min 15 s left" in terminal.getvalue()


def test_an_evaluation_is_said_above_a_bar_that_knows_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = put_terminal(monkeypatch, 80)
    events = [stepped(49, 49.0), evaluated(50, 2.413), stepped(50, 50.0)]
    show_progress(reports(*events), prepared("train.max_steps=100"), Console())
    drawn = terminal.getvalue()
    assert " 49/100 steps" not in drawn[drawn.index("step 50: validation loss") :]


def test_off_a_terminal_a_line_comes_for_each_twentieth_of_the_way_and_each_minute(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def steps_with_lines(num_steps: int, seconds: float) -> list[int]:
        steps: list[TrainingEvent] = [stepped(n, seconds * n) for n in range(1, 101)]
        lines = shown(steps, prepared(f"train.max_steps={num_steps}"), capsys)
        return [int(line.split("/")[0].removeprefix("step ")) for line in lines]

    assert steps_with_lines(100, 0.5) == list(range(20, 101, 20)), "ten seconds apart"
    assert steps_with_lines(100, 2.0) == list(range(5, 101, 5))
    assert steps_with_lines(100_000, 25.0) == list(range(3, 101, 3))


def test_advice_is_told_after_the_line_that_it_is_about(capsys: pytest.CaptureFixture[str]) -> None:
    logged = [stepped(step, loss=loss, logged=True) for step, loss in ((10, 600.0), (20, 650.0), (30, 500.0))]
    steps: list[TrainingEvent] = [logged[0], evaluated(20, 700.0), *logged[1:]]
    lines = shown(steps, prepared("train.max_steps=1000"), capsys)
    assert lines[1] == (
        "advice: step 20: the loss has risen to 650, while guessing gives 5.55: the steps are too large; "
        "try --set train.learning_rate=0.0003"
    )
    assert len([line for line in lines if line.startswith("advice")]) == 1
    assert shown(steps, prepared("train.max_steps=1000"), capsys, quiet=True) == []


def test_a_run_that_continues_knows_its_best_evaluation_and_what_was_said(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("run").mkdir()
    lines = [(10, 600.0, None), (20, 650.0, 2.5), (30, 700.0, 1.0)]
    texts = [
        json.dumps({"step": step, "loss": loss, "gradient_norm": 1.0, "validation_loss": validation_loss})
        for step, loss, validation_loss in lines
    ]
    Path("run/metrics.jsonl").write_text("\n".join(texts))
    start = prepared("train.max_steps=1000", step=20)  # the last line has been written again, before its report
    at_30, at_40 = (stepped(step, loss=700.0, logged=True) for step in (30, 40))
    assert shown([at_30, evaluated(40, 2.6), at_40], start, capsys) == [
        "step 40: validation loss 2.6000 nats/token, 0.9000 bits/byte, worse by 0.1000 than at step 20"
    ]


@pytest.mark.parametrize("as_json", [False, True])
def test_at_the_end_advice_follows_the_result(as_json: bool, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    curve = Curve(prepared())
    curve.add(Line(10, 9.0, 1.0, 8.0))
    ended = finished(10, 8.0, None)
    conclude(ended, prepared(), curve, Console(), as_json=as_json)
    advice, *rest = capsys.readouterr().err.splitlines()
    assert advice == (
        "advice: the model is worse than guessing: its loss is 8, while guessing gives 5.55; "
        "try --set train.learning_rate=0.0003"
    )
    assert [line.partition(":")[0] for line in rest] == ([] if as_json else ["next"])
    for start, console in ((prepared(), Console(quiet=True)), (replace(prepared(), steps_left=0), Console())):
        conclude(ended, start, curve, console, as_json=True)
        assert capsys.readouterr().err == ""
