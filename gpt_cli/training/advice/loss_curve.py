"""Give advice from the loss curve, while a training runs and at its end.

The thresholds come from runs of the configs `tiny` and `smoke`, on their own texts and on parts of Shakespeare.
"""

import contextlib
import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

import numpy as np

from gpt_cli.checkpoints.metrics_files import metrics_of
from gpt_cli.common.units import twice_as_long
from gpt_cli.errors import CheckpointError, GptError, visible
from gpt_cli.training.advice.rates import HARMLESS_EPOCHS, MORE_TEXT, Advice, one_digit, rate_of, text_name
from gpt_cli.training.events import Prepared
from gpt_cli.training.lr_schedule import warmup_steps

# advice needs so many lines of metrics.jsonl, from so many steps
_MANY, _LONG = 10, 100
_CLIPPED = 5.0  # times train.gradient_clip; `tiny` has 0.7 to 0.9 times it, a `smoke` of 4,000 steps that learns well 3
# shares of ln V, the loss of guessing; a new model has 1.0, a trained model with new embeddings up to 1.4
_EXPLODED = 1.5
_STUCK = 0.8  # the frequencies of tokens alone give 0.86; `tiny` has 0.75 after 50 steps
_BY_HEART = 0.5
# share of ln V by which validation loss exceeds training loss; parts of one kind of text differ by 0.05 at first
_OTHER_KIND = 0.15
_LATE = 1000  # steps; `induction` stays near guessing for a quarter of its 600, before its loss drops
_STILL = 0.01  # share of a loss; a smaller change counts as none
_LEVEL = 0.005  # share of a loss; over half of a run, a smaller change counts as none; `tiny` always gains 0.02 or more
_TURNED = 0.02  # share of the best validation loss, of 1 nat at least; evaluations that fluctuate differ by 0.01
_MUCH_MORE = 4.0  # times the degree of the last advice
_FALLING = 0.04  # share of the loss, of 1 nat at least, in the last quarter; a rate that falls to zero gives 0.03
# kind of advice -> kinds of which it is a consequence, and after which gpt does not report it
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
    """A line of metrics.jsonl (losses in nats per token); `validation_loss` is None if the step has no evaluation."""

    step: int
    loss: float
    gradient_norm: float
    validation_loss: float | None = None
    model: int = 1  # which of the models that the run trains in turn


@dataclass(frozen=True)
class CurvePoint:
    """A validation loss and the mean of the training losses logged since the previous evaluation, in nats per token."""

    step: int
    training_loss: float
    validation_loss: float


def read_lines(metrics: Path, before: int) -> Iterator[Line]:
    """Yield the lines of the file `metrics` (metrics.jsonl) for steps below `before`.

    Skips incomplete lines and lines without a loss; ends without an error where the file cannot be read.
    """
    with contextlib.suppress(OSError, GptError):
        for entry in metrics_of(metrics, CheckpointError):
            if entry.keys() >= {"step", "loss", "gradient_norm"} and entry["step"] < before:
                loss, norm, evaluated = entry["loss"], entry["gradient_norm"], entry.get("validation_loss")
                yield Line(int(entry["step"]), loss, norm, evaluated, int(entry.get("model", 1)))


class Curve:
    """The loss curve of a run, from lines of metrics.jsonl; `add` and `at_the_end` return advice on the curve so far.

    A resumed run adds the lines of its earlier steps first, so that no advice is repeated. If a run trains several
    models one after another, the curve starts anew with each model.
    """

    def __init__(self, start: Prepared):
        self._start, self._config, self._rate = start, start.config, rate_of(start.config)
        self._guessing = math.log(start.vocab_size)  # the loss of equally likely tokens, in nats
        self._model_step = 0  # at which the model begins
        self._lines: deque[Line] = deque()  # of the last steps
        self._losses: list[float] = []  # since the last evaluation
        self._evaluations: list[CurvePoint] = []
        self._said: dict[str, float] = {}

    def add(self, line: Line) -> list[Advice]:
        """Add a line of metrics; return advice on new problems, and on old ones whose `degree` has grown 4-fold."""
        if self._lines and line.model != self._lines[-1].model:
            self._model_step = self._lines[-1].step
            for of_model_before in (self._lines, self._losses, self._evaluations):
                of_model_before.clear()
        self._lines.append(line)
        while len(self._lines) > _MANY and self._lines[0].step <= line.step - _LONG:
            self._lines.popleft()
        self._losses.append(line.loss)
        candidates = [*self._of_lines()]
        if line.validation_loss is not None:
            self._evaluations.append(CurvePoint(line.step, fmean(self._losses), line.validation_loss))
            self._losses.clear()
            if line.step < (self._config.train.max_steps or math.inf):  # else `at_the_end` gives advice
                candidates += [*self._other_kind(), *self._of_evaluations()]
        new_advice: list[Advice] = []
        for advice in filter(self._is_new, candidates):
            new_advice.append(advice)
            self._said[advice.kind] = advice.degree
        return new_advice

    def at_the_end(self, closing_loss: float, stopped_by: str, resume_command: str) -> list[Advice]:
        """Return at most one Advice, for the next run; `closing_loss` is the best weights' loss in nats per token.

        `stopped_by` is "steps", "time" or "patience". Advice to train longer contains `resume_command`.
        """
        if not self._evaluations:
            return []
        candidates = [*self._other_kind(), *self._of_the_whole(closing_loss, stopped_by, resume_command)]
        return list(filter(self._is_new, candidates))[:1]

    def _is_new(self, advice: Advice) -> bool:
        before = self._said.get(advice.kind)
        if _FOLLOWS.get(advice.kind, set()) & self._said.keys():
            return False
        return before is None or 0 < before * _MUCH_MORE <= advice.degree

    def _of_lines(self) -> Iterator[Advice]:
        """Yield advice if recent lines show an exploding loss, a loss that stays high, or clipping of all gradients."""
        lines, config, guessing, rate = list(self._lines), self._config, self._guessing, self._rate
        last, half = lines[-1], len(lines) // 2
        if len(lines) > 1 and min(line.loss for line in lines[-2:]) > _EXPLODED * guessing:
            sentence = (
                f"the loss has risen to {last.loss:.4g}, while guessing gives {guessing:.2f}: the steps are too large"
            )
            yield Advice("exploded", sentence, rate.lower)
            return
        if len(lines) < _MANY or not self._is_long(last.step):
            return
        then, now = fmean(line.loss for line in lines[:half]), fmean(line.loss for line in lines[half:])
        is_late = last.step - self._model_step >= min(_LATE, (config.train.max_steps or 3 * _LATE) / 3)
        if is_late and now > _STUCK * guessing and abs(now - then) < _STILL * then:
            sentence = f"the loss stays at {now:.2f}, while guessing gives {guessing:.2f}: the model does not learn"
            yield Advice("stuck", sentence, rate.other)
        clip, norm = config.train.gradient_clip, median(line.gradient_norm for line in lines)
        if clip is not None and norm > _CLIPPED * clip and all(line.gradient_norm > clip for line in lines):
            sentence = f"every gradient is clipped: the norm is {norm:.2g}, but train.gradient_clip is {clip:g}"
            yield Advice(
                "clipped", sentence, rate.lower if rate.is_high else f"‹train.gradient_clip={one_digit(2 * norm):g}›"
            )

    def _other_kind(self) -> Iterator[Advice]:
        """Yield advice if validation loss is far above training loss after few epochs: the two texts must differ."""
        last, start = self._evaluations[-1], self._start
        # the first training loss is a mean from the very first step, so a validation loss above it shows more
        most = 2 * HARMLESS_EPOCHS if len(self._evaluations) == 1 else HARMLESS_EPOCHS
        passes = (last.step - self._model_step) * self._config.tokens_per_step / start.num_training_tokens
        apart = last.validation_loss - last.training_loss > _OTHER_KIND * self._guessing
        if passes > most or not apart or last.training_loss > _STUCK * self._guessing:
            return
        data, flags = self._config.data, "‹data.validation_source=FILE›, a text like the rest"
        differs = "data.validation_source differs from the training text"
        if data.validation_source is None:
            differs = f"the end of {text_name(data)}, which is held out, differs from the rest"
            flags += ", or mix the parts of the text"
        if start.began_from is not None:
            differs += f", or {visible(start.began_from)} had already learned the training text"
        losses = f"training loss {last.training_loss:.2f}, validation loss {last.validation_loss:.2f}"
        sentence = f"{losses} after {passes:.1f} passes over the text, too few to memorise it: {differs}"
        yield Advice("other", sentence, flags)

    def _of_evaluations(self) -> Iterator[Advice]:
        """Yield advice if validation loss rises while training loss falls, or if both losses have levelled off."""
        last, best = self._evaluations[-1], self._best()
        if not self._has_turned():
            yield from self._plateau()
            return
        above = last.validation_loss - best.validation_loss
        rise = f"it was {best.validation_loss:.3f} at step {best.step:,} and is {above:.3f} higher now"
        sentence = f"the validation loss rises: {rise}, while the training loss falls; Ctrl-C keeps the best weights"
        settings = self._config.train
        flags = [] if settings.patience or settings.num_teachers else ["‹train.patience=3›"]
        yield Advice("turned", sentence, " or ".join([*flags, *self._against_memory()]) or MORE_TEXT, degree=above)

    def _plateau(self) -> Iterator[Advice]:
        """Yield advice if training and validation loss changed by < 0.5 % in the last half of 8 or more evaluations."""
        before, now, rate = self._evaluations[len(self._evaluations) // 2], self._evaluations[-1], self._rate
        is_early = len(self._evaluations) < 8 or now.step - self._model_step < 2 * _LONG
        if is_early or now.training_loss >= _STUCK * self._guessing:
            return
        if (
            abs(now.validation_loss - before.validation_loss) < _LEVEL * before.validation_loss
            and abs(now.training_loss - before.training_loss) < _LEVEL * before.training_loss
        ):
            sentence = f"the loss has not moved since step {before.step:,}: {now.validation_loss:.3f}"
            is_new = self._start.began_from is None  # initial weights fit only one width
            wider = f"‹model.d_model={2 * self._config.model.d_model}›" if is_new else MORE_TEXT
            yield Advice("plateau", sentence, rate.other if rate.is_high or rate.is_low else wider)

    def _of_the_whole(self, closing_loss: float, stopped_by: str, resume_command: str) -> Iterator[Advice]:
        """Yield advice for the next run from all losses, most important first; arguments as in `at_the_end`."""
        last, best, guessing, settings = self._evaluations[-1], self._best(), self._guessing, self._config.train
        now = last.training_loss
        if closing_loss > guessing and now < _STUCK * guessing:
            knows = "has memorised its text" if now < _BY_HEART * guessing else "has learned its text"
            losses = f"{closing_loss:.2f}, while guessing gives {guessing:.2f}"
            sentence = f"the model {knows} (loss {now:.2f}), and predicts other text worse than guessing: {losses}"
            yield Advice("worse", sentence, MORE_TEXT)
        elif closing_loss > 1.05 * guessing:
            sentence = (
                f"the model is worse than guessing: its loss is {closing_loss:.4g}, while guessing gives {guessing:.2f}"
            )
            yield Advice("worse", sentence, self._rate.lower)
        if self._is_long(last.step) and now > _STUCK * guessing and not self._falling():
            sentence = f"the loss ended at {now:.2f}, while guessing gives {guessing:.2f}: the model has learned little"
            yield Advice("stuck", sentence, self._rate.other)
        if self._has_turned() and stopped_by != "patience":
            above = last.validation_loss - best.validation_loss
            sentence = (
                f"the validation loss was lowest at step {best.step:,} of {last.step:,}, and ended {above:.3f} higher"
            )
            fewer = [f"‹max_steps={best.step}›", *self._against_memory()]
            is_early = best.step - self._model_step < _LONG
            yield Advice("overfitted", sentence, MORE_TEXT if is_early else " or ".join(fewer))
        if last is best and not self._start.ends_early and (share := self._falling()):
            sentence = f"the validation loss still fell by {share:.0%} in the last quarter, so it may fall further"
            longer = f"‹max_steps={2 * last.step}›"
            if settings.max_time is not None and stopped_by != "steps":
                longer = f"‹max_time={twice_as_long(settings.max_time)}›"
            yield Advice("falling", sentence, f"{resume_command} {longer}")
        yield from self._plateau()

    def _is_long(self, step: int) -> bool:
        """Return whether, at `step`, the current model has taken 100 steps or more, including its whole warm-up."""
        return step - self._model_step >= max(_LONG, warmup_steps(self._config.train))

    def _has_turned(self) -> bool:
        """Return whether validation loss rose while training loss fell, in 2 or more evaluations after the best."""
        last, best = self._evaluations[-1], self._best()
        late = len(self._evaluations) > 2 and self._evaluations[-2].step > best.step
        rises = last.validation_loss - best.validation_loss > _TURNED * max(1.0, best.validation_loss)
        return late and rises and last.training_loss < best.training_loss

    def _falling(self) -> float:
        """Return the share by which validation loss fell in the last quarter (0.1: 10 %); 0 if unknown or slight."""
        last = self._evaluations[-1]
        start = self._model_step + 0.75 * (last.step - self._model_step)
        if self._evaluations[0].step > start:
            return 0.0
        steps, losses = zip(*((point.step, point.validation_loss) for point in self._evaluations), strict=True)
        then = float(np.interp(start, steps, losses))
        fall = then - last.validation_loss
        return fall / then if fall > _FALLING * max(1.0, then) else 0.0

    def _best(self) -> CurvePoint:
        return min(self._evaluations, key=lambda point: point.validation_loss)

    def _against_memory(self) -> list[str]:
        """Return [flag] to raise dropout by 0.1 against memorising, [] if it is above 0.2 or over two models train."""
        dropout, is_used = self._config.model.dropout, self._config.train.num_teachers < 2
        return [f"‹model.dropout={dropout + 0.1:g}›"] if dropout <= 0.2 and is_used else []
