"""Advise by the loss curve while a training runs, and at its end.

The limits come from runs of `tiny` and `smoke` on their own text and on parts of Shakespeare.
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from gpt_cli.checkpoints.metrics_files import metrics_of
from gpt_cli.common.units import twice_as_long
from gpt_cli.config import Config
from gpt_cli.errors import CheckpointError, GptError, visible
from gpt_cli.training.advice.rates import HARMLESS_EPOCHS, MORE_TEXT, Advice, one_digit, rate_of, text_name
from gpt_cli.training.events import Prepared
from gpt_cli.training.lr_schedule import warmup_steps

# fewer lines, or steps, show nothing
_MANY, _LONG = 10, 100
_CLIPPED = 5.0  # times train.gradient_clip; `tiny` has 0.7 to 0.9 times it, a `smoke` of 4,000 steps that learns well 3
# shares of the loss of guessing, ln V; a new model has 1.0, one with new embeddings on old blocks up to 1.4
_EXPLODED = 1.5
_STUCK = 0.8  # the frequencies of tokens alone give 0.86; `tiny` has 0.75 after 50 steps
_BY_HEART = 0.5
_OTHER_KIND = (
    0.15  # by which validation is above training; before a text is known by heart, parts of one kind differ by 0.05
)
_LATE = 1000  # steps; `induction` stays near guessing for a quarter of its 600, before its loss drops
_STILL = 0.01  # share of a loss, by which lines differ where nothing happens
_LEVEL = 0.005  # the same of means over half of a run; `tiny` gains 0.02 there when it gains least
_TURNED = 0.02  # share of the best validation loss, of 1 nat at least; evaluations that fluctuate differ by 0.01
_MUCH_MORE = 4.0  # times the degree that was said last
_FALLING = 0.04  # share of the validation loss in the last quarter; as the rate falls to zero, 0.03 come by themselves
# kinds that follow from others, and need no word of their own
_FOLLOWS = {
    "clipped": {"turned", "exploded", "stuck"},
    "stuck": {"exploded"},
    "plateau": {"stuck"},
    "turned": {"other"},
    "overfitted": {"other"},
    "worse": {"other"},
}


@dataclass(frozen=True)
class Line:
    """A line of metrics.jsonl; only some lines have a validation loss."""

    step: int
    loss: float
    gradient_norm: float
    validation_loss: float | None = None


@dataclass(frozen=True)
class CurvePoint:
    """A validation loss, and the mean of the training losses since the evaluation before."""

    step: int
    training_loss: float
    validation_loss: float


def read_lines(metrics: Path, before: int) -> Iterator[Line]:
    """Read the lines of metrics.jsonl of earlier steps.

    Lines that are cut off, have no loss or cannot be read are left out, as advice is worth no error.
    """
    with contextlib.suppress(OSError, GptError):
        for entry in metrics_of(metrics, CheckpointError):
            if entry.keys() >= {"step", "loss", "gradient_norm"} and entry["step"] < before:
                loss, norm, evaluated = entry["loss"], entry["gradient_norm"], entry.get("validation_loss")
                yield Line(int(entry["step"]), loss, norm, evaluated)


class Curve:
    """The loss curve of a run so far, and the advice about it, which follows from the lines alone.

    So a run that continues, and begins with the lines of its earlier parts, hears nothing twice.
    """

    def __init__(self, start: Prepared):
        self._start, self._config, self._guessing = start, start.config, math.log(start.vocab_size)
        self._lines: deque[Line] = deque()  # of the last steps
        self._losses: list[float] = []  # since the last evaluation
        self._evaluations: list[CurvePoint] = []
        self._said: dict[str, float] = {}

    def add(self, line: Line) -> list[Advice]:
        """Add a line of metrics; return new advice."""
        self._lines.append(line)
        while len(self._lines) > _MANY and self._lines[0].step <= line.step - _LONG:
            self._lines.popleft()
        self._losses.append(line.loss)
        candidates = [*of_lines(list(self._lines), self._config, self._guessing)]
        if line.validation_loss is not None:
            self._evaluations.append(CurvePoint(line.step, fmean(self._losses), line.validation_loss))
            self._losses.clear()
            if line.step < (self._config.train.max_steps or math.inf):  # at the last step, the end says more
                candidates += other_kind(self._evaluations, self._start, self._guessing)
                candidates += of_evaluations(self._evaluations, self._start, self._guessing)
        new_advice: list[Advice] = []
        for advice in filter(self._is_new, candidates):
            new_advice.append(advice)
            self._said[advice.kind] = advice.degree
        return new_advice

    def at_the_end(self, closing_loss: float, stopped_by: str, resume_command: str) -> list[Advice]:
        """Return at most one advice for the next run; `closing_loss` is that of the best weights, in nats per token."""
        if not self._evaluations:
            return []
        candidates = [
            *other_kind(self._evaluations, self._start, self._guessing),
            *of_the_whole(self._evaluations, self._start, self._guessing, closing_loss, stopped_by, resume_command),
        ]
        follows = {kind for kind, causes in _FOLLOWS.items() if causes & self._said.keys()}
        return [advice for advice in candidates if advice.kind not in self._said.keys() | follows][:1]

    def _is_new(self, advice: Advice) -> bool:
        before = self._said.get(advice.kind)
        if _FOLLOWS.get(advice.kind, set()) & self._said.keys():
            return False
        return before is None or 0 < before * _MUCH_MORE <= advice.degree


def of_lines(lines: Sequence[Line], config: Config, guessing: float) -> Iterator[Advice]:
    """Yield advice by the last lines of metrics; `guessing` is the loss of equally likely tokens, in nats."""
    last, rate = lines[-1], rate_of(config)
    if len(lines) > 1 and min(line.loss for line in lines[-2:]) > _EXPLODED * guessing:
        sentence = f"the loss has risen to {last.loss:.4g}, where guessing has {guessing:.2f}: the steps are too large"
        yield Advice("exploded", sentence, rate.lower)
        return
    if len(lines) < _MANY or last.step < max(_LONG, warmup_steps(config.train)):
        return
    half = len(lines) // 2
    then, now = fmean(line.loss for line in lines[:half]), fmean(line.loss for line in lines[half:])
    is_late = last.step >= min(_LATE, (config.train.max_steps or 3 * _LATE) / 3)
    if is_late and now > _STUCK * guessing and abs(now - then) < _STILL * then:
        sentence = f"the loss stays at {now:.2f}, where guessing has {guessing:.2f}: the model does not learn"
        yield Advice("stuck", sentence, rate.other)
    clip, norm = config.train.gradient_clip, median(line.gradient_norm for line in lines)
    if clip is not None and norm > _CLIPPED * clip and all(line.gradient_norm > clip for line in lines):
        sentence = f"every gradient is clipped: their norm is {norm:.2g}, and train.gradient_clip {clip:g}"
        yield Advice(
            "clipped", sentence, rate.lower if rate.is_high else f"‹train.gradient_clip={one_digit(2 * norm):g}›"
        )


def other_kind(evaluations: Sequence[CurvePoint], start: Prepared, guessing: float) -> Iterator[Advice]:
    """Advise where the validation loss is far above that of a text that was read few times: another kind of text."""
    last = evaluations[-1]
    # the first training loss is a mean from the very first step, so a validation loss above it shows more
    most = 2 * HARMLESS_EPOCHS if last is evaluations[0] else HARMLESS_EPOCHS
    passes = last.step * start.config.tokens_per_step / start.num_training_tokens
    apart = last.validation_loss - last.training_loss > _OTHER_KIND * guessing
    if passes > most or not apart or last.training_loss > _STUCK * guessing:
        return
    data, flags = start.config.data, "‹data.validation_source=FILE›, a text like the rest"
    differs = "data.validation_source differs from the training text"
    if data.validation_source is None:
        differs = f"the end of {text_name(data)}, which is held out, differs from the rest"
        flags += ", or mix the parts of the text"
    if start.began_from is not None:
        differs += f", or {visible(start.began_from)} had learned the training text before"
    sentence = (
        f"training loss {last.training_loss:.2f}, validation loss {last.validation_loss:.2f} after {passes:.1f} passes "
        f"over the text, too few to know it by heart: {differs}"
    )
    yield Advice("other", sentence, flags)


def of_evaluations(evaluations: Sequence[CurvePoint], start: Prepared, guessing: float) -> Iterator[Advice]:
    """Yield advice by the evaluations so far: the validation loss has turned, or the losses are level."""
    config = start.config
    last, best = evaluations[-1], _best(evaluations)
    if has_turned(evaluations):
        above = last.validation_loss - best.validation_loss
        sentence = (
            f"the validation loss has turned: {best.validation_loss:.3f} at step {best.step:,}, {above:.3f} worse now, "
            "while the training loss falls; Ctrl-C keeps the best weights"
        )
        flags = [] if config.train.patience else ["‹train.patience=3›"]
        yield Advice("turned", sentence, _either(*flags, *_against_memory(config)) or MORE_TEXT, degree=above)
    else:
        yield from _plateau(evaluations, start, guessing)


def _plateau(evaluations: Sequence[CurvePoint], start: Prepared, guessing: float) -> Iterator[Advice]:
    last, rate = evaluations[-1], rate_of(start.config)
    if is_level(evaluations) and last.training_loss < _STUCK * guessing:
        sentence = (
            f"the loss has not moved since step {evaluations[len(evaluations) // 2].step:,}: {last.validation_loss:.3f}"
        )
        is_new = start.began_from is None  # the weights of another fit one width alone
        wider = f"‹model.d_model={2 * start.config.model.d_model}›" if is_new else MORE_TEXT
        yield Advice("plateau", sentence, rate.other if rate.is_high or rate.is_low else wider)


def of_the_whole(
    evaluations: Sequence[CurvePoint],
    start: Prepared,
    guessing: float,
    closing_loss: float,
    stopped_by: str,
    resume_command: str,
) -> Iterator[Advice]:
    """Yield advice after a training that ended by itself, the most important first; nothing where all is well."""
    last, best, config, settings = evaluations[-1], _best(evaluations), start.config, start.config.train
    if closing_loss > guessing and last.training_loss < _STUCK * guessing:
        knows = "knows its text by heart" if last.training_loss < _BY_HEART * guessing else "has learned its text"
        sentence = (
            f"the model {knows} (loss {last.training_loss:.2f}), and predicts other text worse than "
            f"guessing: {closing_loss:.2f}, where guessing has {guessing:.2f}"
        )
        yield Advice("worse", sentence, MORE_TEXT)
    elif closing_loss > 1.05 * guessing:
        sentence = f"the model is worse than guessing: its loss is {closing_loss:.4g}, that of guessing {guessing:.2f}"
        yield Advice("worse", sentence, rate_of(config).lower)
    now, is_long = last.training_loss, last.step >= max(_LONG, warmup_steps(settings))
    if is_long and now > _STUCK * guessing and falling(evaluations) <= _FALLING:
        sentence = f"the loss ended at {now:.2f}, where guessing has {guessing:.2f}: the model has learned little"
        yield Advice("stuck", sentence, rate_of(config).other)
    if has_turned(evaluations) and stopped_by != "patience":
        above = last.validation_loss - best.validation_loss
        sentence = (
            f"the validation loss was lowest at step {best.step:,} of {last.step:,}, and ended {above:.3f} higher"
        )
        flags = [MORE_TEXT] if best.step < _LONG else [f"‹max_steps={best.step}›", *_against_memory(config)]
        yield Advice("overfitted", sentence, _either(*flags))
    if last is best and not start.ends_early and (share := falling(evaluations)) > _FALLING:
        sentence = f"the validation loss still fell by {share:.0%} in the last quarter, so it may fall further"
        longer = f"‹max_steps={2 * last.step}›"
        if settings.max_time is not None and stopped_by != "steps":
            longer = f"‹max_time={twice_as_long(settings.max_time)}›"
        yield Advice("falling", sentence, f"{resume_command} {longer}")
    yield from _plateau(evaluations, start, guessing)


def has_turned(evaluations: Sequence[CurvePoint]) -> bool:
    """Return whether the validation loss rises, at two evaluations at least, while the training loss falls."""
    last, best = evaluations[-1], _best(evaluations)
    late = len(evaluations) > 2 and evaluations[-2].step > best.step
    rises = last.validation_loss - best.validation_loss > _TURNED * max(1.0, best.validation_loss)
    return late and rises and last.training_loss < best.training_loss


def is_level(evaluations: Sequence[CurvePoint]) -> bool:
    """Return whether neither loss has moved over half of the run, of eight evaluations and 200 steps at least."""
    if len(evaluations) < 8 or evaluations[-1].step < 2 * _LONG:
        return False
    before, now = evaluations[len(evaluations) // 2], evaluations[-1]
    return (
        abs(now.validation_loss - before.validation_loss) < _LEVEL * before.validation_loss
        and abs(now.training_loss - before.training_loss) < _LEVEL * before.training_loss
    )


def falling(evaluations: Sequence[CurvePoint]) -> float:
    """Return the share by which the validation loss fell in the last quarter of the steps; 0 where it is unknown."""
    last = evaluations[-1]
    start = 0.75 * last.step
    earlier = [point for point in evaluations if point.step <= start]
    if not earlier:
        return 0.0
    before = earlier[-1]
    after = evaluations[len(earlier)]
    part = (start - before.step) / (after.step - before.step)
    then = before.validation_loss + part * (after.validation_loss - before.validation_loss)
    return (then - last.validation_loss) / max(1.0, then)


def _best(evaluations: Sequence[CurvePoint]) -> CurvePoint:
    return min(evaluations, key=lambda point: point.validation_loss)


def _against_memory(config: Config) -> list[str]:
    """Return a flag against memorising a text, where dropout is still low."""
    dropout = config.model.dropout
    return [f"‹model.dropout={dropout + 0.1:g}›"] if dropout <= 0.2 else []


def _either(*flags: str) -> str:
    return " or ".join(flags)
