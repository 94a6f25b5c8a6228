"""Tables of metrics, as runs wrote them or made by hand, and what they are answered with."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.prepared import prepared

from gpt_cli.common.spelling import as_flags
from gpt_cli.training.advice.loss_curve import Curve, Line, read_lines
from gpt_cli.training.advice.rates import MORE_TEXT

Row = tuple[int, float, float | None]  # step, training loss, validation loss

# what `gpt train --config tiny` wrote: the mean of the training loss since the evaluation before, and that
TINY = """100 5.202 4.286, 200 3.788 3.769, 300 3.323 3.606, 400 3.041 3.530, 500 2.755 3.446,
600 2.561 3.416, 700 2.362 3.363, 800 2.204 3.362, 900 2.017 3.360, 1000 1.935 3.353"""
MULTI_HEAD = "100 5.202 4.286, 200 3.769 3.749, 300 3.256 3.560, 400 2.923 3.445"
# 5,000 characters of Shakespeare
SHORT = """100 2.626 2.578, 300 2.335 2.471, 500 2.091 2.435, 700 1.850 2.558, 900 1.624 2.641, 1100 1.632 2.723,
1300 1.439 2.777, 1500 1.463 2.831, 1700 1.334 2.971, 1900 1.283 3.016, 2100 1.281 3.033, 2300 1.145 3.189, 2900 1.012 3.278"""
# `gpt train --config induction`: its loss stays near ln 27 = 3.30 before it drops
INDUCTION = """25 3.302 3.301, 50 3.298 3.295, 75 3.290 3.287, 100 3.286 3.282, 125 3.281 3.278, 150 3.268 3.255,
175 3.247 3.234, 200 3.213 3.188, 225 3.110 3.029, 250 2.960 2.899, 275 2.850 2.794, 300 2.750 2.707, 400 2.510 2.459,
500 2.390 2.351, 600 2.346 2.319"""
# a page, read thousands of times
PAGE = "100 1.642 9.032, 200 0.035 9.665, 300 0.021 10.286, 400 0.021 10.121, 500 0.019 11.115"


def rows(table: str) -> list[Row]:
    """Ten lines to an evaluation, whose losses are equal."""
    found: list[Row] = []
    before = 0
    for evaluated in table.split(","):
        step, loss, validation_loss = evaluated.split()
        part = (int(step) - before) // 10
        found += [(before + part * n, float(loss), None) for n in range(1, 10)]
        found.append((int(step), float(loss), float(validation_loss)))
        before = int(step)
    return found


def curve_of(*settings: str, vocab_size: int = 1024, tokens: int = 143_569, **start: Any) -> Curve:
    """The curve of a run of `tiny`, before its first line."""
    found = prepared("tiny", "train.max_steps=3000", *settings, vocab_size=vocab_size, tokens=tokens)
    return Curve(replace(found, **start))


def told(
    table: Sequence[Row], *settings: str, norm: float = 0.7, said: Sequence[Row] = (), **sizes: int
) -> list[tuple[int, str]]:
    """The step and the text of each piece of advice about `tiny`, after lines whose advice was given before."""
    curve = curve_of(*settings, **sizes)
    for step, loss, validation_loss in said:
        curve.add(Line(step, loss, norm, validation_loss))
    return [
        (step, str(advice))
        for step, loss, validation_loss in table
        for advice in curve.add(Line(step, loss, norm, validation_loss))
    ]


def told_at_the_end(table: Sequence[Row], *settings: str, stopped_by: str = "steps", **start: Any) -> list[str]:
    curve = curve_of(*settings, **start)
    for step, loss, validation_loss in table:
        curve.add(Line(step, loss, 0.7, validation_loss))
    best = min(validation_loss for _, _, validation_loss in table if validation_loss is not None)
    return [str(advice) for advice in curve.at_the_end(best, stopped_by, "gpt train --out run --resume")]


@pytest.mark.parametrize("table", [TINY, MULTI_HEAD])
def test_a_run_that_learns_hears_nothing(table: str) -> None:
    assert told(rows(table)) == []
    assert told_at_the_end(rows(table)) == []


def test_a_validation_loss_that_turns_is_told_and_again_when_it_is_much_worse() -> None:
    first, again = told(rows(SHORT), vocab_size=54)
    assert first == (
        900,
        "the validation loss rises: it was 2.435 at step 500 and is 0.206 higher now, while the training loss falls; "
        "Ctrl-C keeps the best weights; try --set train.patience=3 or --set model.dropout=0.2",
    )
    assert again[0] == 2900
    assert "0.843 higher now" in again[1]  # less than four times as much says nothing
    # where all against it is set already
    ((_, line), *_) = told(rows(SHORT), "train.patience=20", "model.dropout=0.4", vocab_size=54)
    assert line.endswith(f"Ctrl-C keeps the best weights; try {as_flags(MORE_TEXT)}")


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("100 3.0 3.5, 200 2.5 3.4, 300 2.2 3.6", "one evaluation may be bad luck"),
        ("100 3.0 3.5, 200 2.5 3.40, 300 2.2 3.43, 400 2.1 3.44", "less than 0.02 times the loss is noise"),
        ("100 3.0 3.5, 200 2.5 3.4, 300 2.9 3.6, 400 2.8 3.6", "the training loss rises too"),
        ("100 0.3 0.065, 200 0.2 0.062, 300 0.1 0.077, 400 0.1 0.070", "0.02 nats are little for a loss near 0"),
    ],
)
def test_a_validation_loss_that_only_fluctuates_has_not_turned(table: str, why: str) -> None:
    assert told(rows(table)) == [], why


def test_a_run_that_continues_hears_nothing_twice() -> None:
    lines = rows(SHORT)
    whole = told(lines, vocab_size=54)
    for cut in (50, 90, 280):  # before the first, between both, and just before the second
        before, after = lines[:cut], lines[cut:]
        assert told(before, vocab_size=54) + told(after, vocab_size=54, said=before) == whole


@pytest.mark.parametrize(
    ("settings", "flags"),
    [
        ([], "--set train.patience=3 or --set model.dropout=0.2"),
        (["train.patience=20"], "--set model.dropout=0.2"),
        (["model.dropout=0"], "--set train.patience=3 or --set model.dropout=0.1"),
        (["model.dropout=0.4"], "--set train.patience=3"),
        (["train.teacher_share=0.1"], "--set model.dropout=0.2"),  # patience would end the first model
        (["train.teacher_share=0.1", "train.num_models=3"], as_flags(MORE_TEXT)),  # the last trains without dropout
    ],
)
def test_the_flags_against_learning_by_heart_are_those_that_are_left(settings: list[str], flags: str) -> None:
    assert told(rows(SHORT), *settings, vocab_size=54)[0][1].endswith(f"; try {flags}")


def test_a_loss_that_explodes_is_told_at_once_and_at_the_end() -> None:
    """As a learning rate of 100 does: two lines above one and a half times the loss of guessing, ln 1024 = 6.93."""
    table: list[Row] = [(10, 1744.6, None), (20, 20059.4, 44796.2), (30, 9000.0, None), (40, 700.0, 600.0)]
    flags = "--set train.learning_rate=0.004"
    assert told(table, "train.learning_rate=100") == [
        (20, f"the loss has risen to 2.006e+04, while guessing gives 6.93: the steps are too large; try {flags}")
    ]
    assert told_at_the_end(table, "train.learning_rate=100") == [
        f"the model is worse than guessing: its loss is 600, while guessing gives 6.93; try {flags}"
    ]


@pytest.mark.parametrize(
    ("losses", "why"),
    [([6.9, 6.5, 30.0, 6.4, 6.3], "one batch may be bad luck"), ([9.0, 9.5, 8.0, 7.0], "new embeddings begin high")],
)
def test_a_loss_that_is_high_for_a_moment_has_not_exploded(losses: list[float], why: str) -> None:
    assert told([(10 * (n + 1), loss, None) for n, loss in enumerate(losses)]) == [], why


@pytest.mark.parametrize(
    ("settings", "loss", "flag"),
    [
        (["train.learning_rate=0.3"], 5.99, "--set train.learning_rate=0.004"),
        (["train.learning_rate=1e-6"], 6.94, "--set train.learning_rate=0.004"),
        ([], 6.0, "--set train.learning_rate=0.001"),
        (["train.optimizer=muon"], 6.0, "--set train.muon_learning_rate=0.007"),
    ],
)
@pytest.mark.parametrize("log_every", [1, 5, 10, 50])
def test_a_loss_that_stays_near_that_of_guessing_is_told_after_a_third_of_the_run(
    settings: list[str], loss: float, flag: str, log_every: int
) -> None:
    """5.99 are the frequencies of tokens alone."""
    table: list[Row] = [(log_every * n, loss, None) for n in range(1, 400)]
    ((step, line),) = told(table, *settings, "train.max_steps=900")
    assert step == max(300, 10 * log_every)
    assert line.startswith(f"the loss stays at {loss:.2f}, while guessing gives 6.93: the model does not learn")
    assert line.endswith(f"; try {flag}")


@pytest.mark.parametrize(
    ("settings", "step"),
    [(["train.max_steps=90000"], 1000), (["train.max_time=60"], 1000), (["train.max_steps=90"], 100)],
)
def test_of_a_long_run_1000_steps_suffice_and_100_are_needed_of_any(settings: list[str], step: int) -> None:
    table: list[Row] = [(10 * n, 6.9, None) for n in range(1, 200)]
    assert [at for at, _ in told(table, *settings)] == [step]


def test_a_loss_that_stays_near_that_of_guessing_for_a_quarter_of_the_run_may_still_drop() -> None:
    short = ["train.max_steps=600", "train.learning_rate=5e-3"]
    assert told(rows(INDUCTION), *short, vocab_size=27) == []
    assert told_at_the_end(rows(INDUCTION), *short, vocab_size=27) == []


def test_at_the_end_a_loss_that_is_still_near_that_of_guessing_is_told() -> None:
    table = rows("50 6.9 6.9, 100 6.8 6.7, 150 6.8 6.7, 200 6.7 6.7")
    assert told_at_the_end(table, "train.max_time=20") == [
        "the loss ended at 6.70, while guessing gives 6.93: the model has learned little; try --set train.learning_rate=0.001"
    ]
    assert told_at_the_end(table[:10]) == []  # 50 steps show nothing


def test_in_a_long_warm_up_nothing_is_expected() -> None:
    table: list[Row] = [(10 * n, 6.9, None) for n in range(1, 40)]
    assert told(table, "train.warmup_steps=500", "train.max_steps=5000") == []


@pytest.mark.parametrize(
    ("settings", "norm", "line"),
    [
        ([], 7.2, "1; try --set train.gradient_clip=10"),
        (["train.gradient_clip=0.1"], 0.7, "0.1; try --set train.gradient_clip=1"),
        (["train.learning_rate=0.03"], 7.2, "1; try --set train.learning_rate=0.004"),
        ([], 3.5, None),  # memorising makes gradients so large, and AdamW divides by their size
        (["train.gradient_clip=null"], 7.2, None),
    ],
)
def test_gradients_that_are_all_clipped_by_far(settings: list[str], norm: float, line: str | None) -> None:
    found = told(rows(MULTI_HEAD), *settings, norm=norm)
    told_then = f"every gradient is clipped: the norm is {norm}, but train.gradient_clip is {line}"
    assert found == ([] if line is None else [(100, told_then)])


@pytest.mark.parametrize(
    ("settings", "flag"),
    [
        ([], "--set model.d_model=256"),
        (["train.learning_rate=3e-4"], "--set train.learning_rate=0.004"),
        (["train.learning_rate=0.02"], "--set train.learning_rate=0.004"),
    ],
)
def test_losses_that_do_not_move_for_half_of_the_run(settings: list[str], flag: str) -> None:
    table = rows(", ".join(f"{100 * n} {max(2.0, 4 - n)} {max(2.4, 4 - n)}" for n in range(1, 12)))
    line = f"the loss has not moved since step 500: 2.400; try {flag}"
    assert told(table, *settings) == [(800, line)]
    assert told_at_the_end(table, *settings) == []  # which was said
    short = ["train.max_steps=800"]
    assert told(table[:80], *settings, *short) == []
    assert told_at_the_end(table[:80], *settings, *short) == [line]
    # the weights of another model fit one width
    (line,) = told_at_the_end(table[:80], *settings, *short, began_from="runs/a")
    assert line.endswith(f"try {flag.replace('--set model.d_model=256', as_flags(MORE_TEXT))}")


# a text whose last tenth is of another kind
OTHER = "100 4.790 6.950, 200 3.850 6.910"
DIFFERS = "too few to memorise it: the end of my.txt, which is held out, differs from the rest"


def test_a_validation_text_of_another_kind_is_named_once_and_never_the_learning_rate() -> None:
    """Whether the first evaluation is the last one, or one of many."""
    table, settings = rows(OTHER), ("data.source=my.txt",)
    ((step, line),) = told(table, *settings, tokens=227_000)
    assert step == 100
    assert line == (
        f"training loss 4.79, validation loss 6.95 after 0.9 passes over the text, {DIFFERS}; "
        "try --set data.validation_source=FILE, a text like the rest, or mix the parts of the text"
    )
    assert told_at_the_end(table, *settings, tokens=227_000) == []
    assert told_at_the_end(table[:10], *settings, "train.max_steps=100", tokens=227_000) == [line]
    turned = rows(f"{OTHER}, 300 3.2 7.1, 400 3.0 7.3, 500 2.8 7.5")
    assert told(turned, *settings, tokens=227_000) == [(step, line)]
    assert told_at_the_end(turned, *settings, tokens=227_000) == []


def test_a_model_that_continues_or_a_named_validation_text_is_told_so() -> None:
    table, short = rows(OTHER)[:10], "train.max_steps=100"
    (line,) = told_at_the_end(table, short, "data.source=[a, b]", tokens=227_000, began_from="runs/a")
    assert (
        "the end of the text, which is held out, differs from the rest, or runs/a had already learned the training"
        in line
    )
    (line,) = told_at_the_end(table, short, "data.validation_source=held.txt", tokens=227_000)
    flag = "--set data.validation_source=FILE"
    assert line.endswith(f"data.validation_source differs from the training text; try {flag}, a text like the rest")


@pytest.mark.parametrize(
    ("table", "tokens", "line"),
    [
        (TINY, 143_569, None),  # 1.4 nats apart in the end, after 14 passes
        ("100 2.680 4.939", 11_000, None),  # read 18 times, so it may know the text by heart
        ("100 4.000 7.100", 3_500, "the model has learned its text (loss 4.00), and predicts other text worse than"),
        ("100 6.000 8.000", 227_000, "the model is worse than guessing: its loss is 8, while guessing gives 6.93; try"),
    ],
)
def test_other_gaps_have_other_causes(table: str, tokens: int, line: str | None) -> None:
    found = told_at_the_end(rows(table), "train.max_steps=100", tokens=tokens)
    assert len(found) == (line is not None)
    assert all(text.startswith(line or "") for text in found)


def test_at_the_end_a_text_that_was_learned_by_heart_is_named() -> None:
    """ln 716 = 6.57."""
    assert told_at_the_end(rows(PAGE), vocab_size=716, tokens=476) == [
        "the model has memorised its text (loss 0.02), and predicts other text worse than guessing: 9.03, while "
        "guessing gives 6.57; try more text, another --data FILE beside the first"
    ]


def test_a_loss_that_turned_at_once_calls_for_more_text() -> None:
    (line,) = told_at_the_end(rows("10 5.5 5.5, 20 4.3 5.6, 30 3.3 5.7, 40 2.7 6.5"), tokens=476)
    assert line.endswith(
        "lowest at step 10 of 40, and ended 1.000 higher; try more text, another --data FILE beside the first"
    )


def test_at_the_end_of_a_loss_that_turned_the_best_step_is_named() -> None:
    assert told_at_the_end(rows(SHORT), vocab_size=54) == [
        "the validation loss was lowest at step 500 of 2,900, and ended 0.843 higher; "
        "try --max-steps 500 or --set model.dropout=0.2"
    ]
    assert told_at_the_end(rows(SHORT), vocab_size=54, stopped_by="patience") == []  # which ended it for this reason


@pytest.mark.parametrize(
    ("settings", "stopped_by", "flag"),
    [
        ([], "steps", "--max-steps 800"),
        (["train.max_time=90"], "steps", "--max-steps 800"),
        (["train.max_time=90"], "time", "--max-time 180s"),
    ],
)
def test_at_the_end_of_a_loss_that_still_falls_more_is_suggested(
    settings: list[str], stopped_by: str, flag: str
) -> None:
    """3.75 at step 300, 3.50 at 400: 7 %, where a rate that falls to zero gives 3 %."""
    table = rows("100 4.5 4.6, 200 4.0 4.1, 300 3.6 3.75, 400 3.3 3.5")
    assert told_at_the_end(table, *settings, stopped_by=stopped_by) == [
        "the validation loss still fell by 7% in the last quarter, so it may fall further; "
        f"try gpt train --out run --resume {flag}"
    ]
    assert told_at_the_end(table, *settings, ends_early=True) == []  # gpt has said that more would be too many
    (below_one_nat,) = told_at_the_end(rows("100 0.4 0.5, 200 0.3 0.4, 300 0.15 0.2, 400 0.1 0.13"))
    assert below_one_nat.startswith("the validation loss still fell by 35% in the last quarter")


def test_the_next_model_is_not_compared_with_its_teacher() -> None:
    """Its validation loss ends above that of the teacher, with a lower training loss; that is no turn."""
    lines, curve = rows(TINY), curve_of("train.teacher_share=0.5")
    last, _, _ = lines[-1]
    for step, loss, validation_loss in lines:
        assert curve.add(Line(step, loss, 0.7, validation_loss)) == []
    for step, loss, validation_loss in lines:
        assert curve.add(Line(last + step, loss - 0.3, 0.7, validation_loss and validation_loss + 0.15, 2)) == []
    assert curve.at_the_end(4.0, "steps", "gpt train --out run --resume") == []
    lost = [line for n in range(1, 30) for line in curve.add(Line(2 * last + 10 * n, 6.9, 0.7, None, 3))]
    assert lost == []  # so many steps are no reason yet to say that it does not learn


def test_one_evaluation_alone_shows_nothing() -> None:
    assert told_at_the_end([(10, 5.0, None), (20, 4.0, 4.5)]) == []
    assert told_at_the_end([(10, 4.0, 4.5)]) == []


def test_lines_of_earlier_steps_are_read_and_damaged_ones_are_left_out(tmp_path: Path) -> None:
    line = {"step": 10, "loss": 2.5, "gradient_norm": 0.7, "learning_rate": 0.004}
    of_second = {"step": 20, "validation_loss": 2.6, "model": 2}
    lines = [line, line | of_second, [1], {"step": 25}, line | {"step": 30}]
    texts = [*map(json.dumps, lines), "\x00\x00", '{"step": 2']
    metrics = tmp_path / "metrics.jsonl"
    assert list(read_lines(metrics, 30)) == []
    metrics.write_text("\n".join(texts))
    assert list(read_lines(metrics, 30)) == [Line(10, 2.5, 0.7), Line(20, 2.5, 0.7, 2.6, model=2)]
    assert len(list(read_lines(metrics, 31))) == 3
    metrics.write_text("1" * 10**6)  # no number has this many digits, and no line
    assert list(read_lines(metrics, 30)) == []
    assert list(read_lines(tmp_path, 30)) == []
