"""What `gpt train` prints: an announcement, a bar or lines on the way, and the result."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from tqdm import tqdm

from gpt_cli.checkpoints.run_paths import RunFiles
from gpt_cli.cli.console import Console
from gpt_cli.cli.signals import signal_name
from gpt_cli.common.language import language, say
from gpt_cli.common.machine.devices import num_accelerators
from gpt_cli.common.units import duration, size
from gpt_cli.errors import counted
from gpt_cli.training.advice.loss_curve import Curve, Line, read_lines
from gpt_cli.training.advice.rates import Advice
from gpt_cli.training.advice.sizes import before_training
from gpt_cli.training.events import Evaluated, Finished, Prepared, Sampled, Saved, Stepped, TrainingEvent

# lines about the way of a training whose stderr is not a terminal: this many at most, or as many as these times allow
NUM_LINES = 20
LINE_SECONDS = 60.0
LEAST_SECONDS = 10.0  # between two such lines


def announce(prepared: Prepared, console: Console, *, of_sweep: bool = False) -> None:
    """Print what is about to be trained, on what, and what it will take."""
    settings, costs = prepared.config.train, prepared.costs
    threads = counted(torch.get_num_threads(), "thread")
    if prepared.num_processes > 1:
        threads = f"{prepared.num_processes} processes with {threads} each"
    parts = ", ".join(f"{part} {number:,}" for part, number in costs.parameters_by_part.items() if number)
    console.notice(f"device      {settings.device}, {settings.dtype}, {threads}, torch {torch.__version__}")
    console.notice(f"parameters  {costs.parameters:,}: {parts}")
    if not settings.trains_all:
        kind = "parameters" if settings.rank is None else f"numbers of low-rank changes (rank {settings.rank})"
        console.notice(f"training    {prepared.num_trained:,} {kind}; the rest stays as it is")
    amount = f"{counted(prepared.num_documents, 'document')}, {prepared.num_characters:,} characters"
    if prepared.config.data.loss is not None:  # their characters are those of lines of JSON
        amount = f"{counted(prepared.num_documents, 'example')} of questions and answers"
    console.notice(
        f"corpus      {amount}; "
        f"{prepared.num_training_tokens:,} training tokens, {prepared.num_validation_tokens:,} validation tokens"
    )
    console.notice(f"tokenizer   {prepared.config.tokenizer.kind}, vocabulary of {prepared.vocab_size:,}")
    if prepared.steps_left > 0:
        console.notice(
            f"estimate    {size(costs.training_bytes)} of memory, {size(prepared.disk_bytes)} of disk; "
            f"{duration(prepared.seconds_left)} for {counted(prepared.steps_left, 'step')} of "
            f"{prepared.config.tokens_per_step:,} tokens, "
            f"{_ratio(prepared.epochs_left)} epochs, and the closing evaluation"
        )
    if prepared.step:
        console.notice(f"resuming {prepared.directory} at step {prepared.step:,}")
    if not console.quiet:
        advise((one for one in before_training(prepared) if not (of_sweep and one.kind == "rate")), console)
    if prepared.num_processes == 1 and settings.device != "cpu" and (count := num_accelerators()) > 1:
        together = 1 << count.bit_length() - 1  # the largest power of two
        console.notice(f"this machine has {count} GPUs, of which this uses one; --processes {together} uses {together}")


def _ratio(number: float) -> str:
    """How often something is contained: three digits, or a whole number with commas."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def show_progress(reports: Iterator[TrainingEvent], prepared: Prepared, console: Console) -> Finished:
    """Print each report, on a terminal beside a bar, and advice that its figures give; returns the last one."""
    way, curve = _Way(prepared), Curve(prepared)
    bar = _Bar(
        total=way.length,
        initial=way.done,
        # as short as it can be, since 80 columns hold it with all figures
        bar_format="{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} " + say(way.unit) + "{figures}",
        dynamic_ncols=True,
        leave=False,
        file=sys.stderr,
        disable=not sys.stderr.isatty() or console.quiet,
    )
    evaluated: float | None = None
    said: str | None = None  # of an evaluation: below a bar that knows its step, or above the line of that
    knows_earlier = console.quiet or not prepared.step
    with bar:
        for report in reports:
            if isinstance(report, Finished):
                return report
            if not knows_earlier and isinstance(report, Evaluated | Stepped):
                # only now has the run dropped what it had written after it was saved
                for line in read_lines(RunFiles(prepared.directory).metrics, report.step):
                    curve.add(line)  # and has heard what comes of it
                    way.remember(line.step, line.validation_loss)
                knows_earlier = True
            if isinstance(report, Evaluated):
                evaluated, said = report.score.loss, _about_evaluation(report, way)
                if bar.disable:
                    console.notice(said)
            elif isinstance(report, Stepped):
                _show_step(report, way, bar, console)
                if said is not None and not bar.disable:
                    console.notice(said)
                said = None
                if report.logged and report.loss is not None and report.gradient_norm is not None:
                    line = Line(report.step, report.loss, report.gradient_norm, evaluated)
                    advise(curve.add(line), console, report.step)
                    evaluated = None
            else:
                _show(report, console)
    raise AssertionError("a training ends with Finished")


def advise(found: Iterable[Advice], console: Console, step: int | None = None) -> None:
    """Print pieces of advice, each on a line; `step` is where the training was when its figures gave them."""
    for advice in found:
        console.notice(f"advice: {advice}" if step is None else f"advice: step {step:,}: {advice}")


class _Bar(tqdm):
    """A bar whose figures are said in the language of the user where it is drawn, which is not at each step."""

    @property
    def format_dict(self) -> Any:
        found = super().format_dict
        comma = "，" if language() == "zh" else ", "
        return {**found, "figures": comma + say(found["postfix"]) if found.get("postfix") else ""}


class _Way:
    """How far a training is, in steps or, where the clock is likely to end it, in seconds, and its lowest loss."""

    def __init__(self, prepared: Prepared):
        self.start = prepared
        settings = prepared.config.train
        steps, seconds = settings.max_steps, settings.max_time
        self.by_clock = steps is None or (seconds is not None and prepared.steps_left != steps - prepared.step)
        self.length = max(1, round(seconds or 0)) if self.by_clock else steps or 0
        self.unit = "s" if self.by_clock else "steps"
        self.done = self.at(prepared.step, prepared.elapsed)
        self.best: tuple[int, float] | None = None  # its step, and the validation loss
        self._line_at = prepared.elapsed  # seconds

    def at(self, step: int, elapsed: float) -> int:
        """How much is done at a step, a number of seconds into the run."""
        return min(self.length, round(elapsed)) if self.by_clock else step

    def seconds_left(self, report: Stepped) -> float:
        """An estimate from the pace of this part of the run, with the closing evaluation."""
        left = self.length - self.at(report.step, report.elapsed)
        if not self.by_clock:
            steps = max(1, report.step - self.start.step)
            left *= (report.elapsed - self.start.elapsed) / steps
        return left + self.start.closing_seconds

    def remember(self, step: int, validation_loss: float | None) -> None:
        """Take note of an evaluation."""
        if validation_loss is not None and (self.best is None or validation_loss < self.best[1]):
            self.best = step, validation_loss

    def is_line_due(self, done_before: int, elapsed: float) -> bool:
        """Whether a line about the way is due, a number of seconds into the run; then it counts as printed."""
        part, since = max(1, self.length // NUM_LINES), elapsed - self._line_at
        due = since >= (LEAST_SECONDS if self.done // part > done_before // part else LINE_SECONDS)
        due = due or self.done == self.length > done_before
        if due:
            self._line_at = elapsed
        return due


def _show_step(report: Stepped, way: _Way, bar: Any, console: Console) -> None:
    done_before, done = way.done, way.at(report.step, report.elapsed)
    if report.loss is None:  # which a GPU still computes; a line due now is printed with the next loss
        way.done = done_before if bar.disable else done
        bar.update(done - done_before)
        return
    way.done, loss = done, report.loss if report.smoothed_loss is None else report.smoothed_loss
    best = "" if way.best is None else f"{way.best[1]:.3f}, "
    figures = f"{report.tokens_per_second:,.0f} tokens/s, {duration(way.seconds_left(report))} left"
    at = f"step {report.step:,}, " if way.by_clock else ""
    bar.set_postfix_str(f"{at}loss {loss:.3f}, {best and f'best {best}'}{figures}", refresh=False)
    bar.update(done - done_before)
    if bar.disable and way.is_line_due(done_before, report.elapsed):
        of = "" if way.by_clock else f"/{way.length:,}"
        console.notice(f"step {report.step:,}{of}: loss {loss:.4f}, {best and f'best validation {best}'}{figures}")


def _about_evaluation(report: Evaluated, way: _Way) -> str:
    loss, change, whole = report.score.loss, "the first", way.start.num_validation_tokens
    if report.score.num_tokens < whole - 1 and way.start.config.data.loss is None:  # the first has no prediction
        change = f"the first, on {report.score.num_tokens:,} of {whole:,} tokens"
    if way.best is not None:
        step, best = way.best
        change = f"better by {best - loss:.4f}" if loss < best else f"worse by {loss - best:.4f} than at step {step:,}"
        if f"{best:.4f}" == f"{loss:.4f}":
            change = f"the same as at step {step:,}"
    way.remember(report.step, loss)
    return f"{report}, {change}"


def _show(report: TrainingEvent, console: Console) -> None:
    if isinstance(report, Saved) and report.requested:
        console.notice(f"step {report.step:,}: saved as asked by SIGUSR1")
    elif isinstance(report, Sampled):
        console.notice(str(report))


def _advise_at_the_end(finished: Finished, prepared: Prepared, console: Console) -> None:
    """What to try next, from all lines of the run's metrics; nothing after a signal, or where nothing was trained."""
    if console.quiet or finished.signal is not None or not prepared.steps_left:
        return
    summary, curve = finished.summary, Curve(prepared)
    for line in read_lines(RunFiles(prepared.directory).metrics, summary["steps"] + 1):
        curve.add(line)
    resume = RunFiles(prepared.directory).resume_command
    advise(curve.at_the_end(summary["validation_loss"], summary["stopped_by"], resume), console)


def conclude(finished: Finished, prepared: Prepared, console: Console, *, as_json: bool) -> None:
    """Print the result on stdout, and what to do next on stderr."""
    summary = finished.summary
    if finished.signal is not None:
        saved = f"step {summary['steps']:,} is saved" if summary["steps"] else "no step was done"
        resume = RunFiles(prepared.directory).resume_command
        cause = "Ctrl-C" if finished.signal == signal.SIGINT else signal_name(finished.signal)
        console.tell(f"stopped by {cause}; {saved}. To go on: {resume}")
    elif summary["stopped_by"] == "patience":
        console.notice(
            f"stopped at step {summary['steps']:,}: no better validation loss for train.patience evaluations"
        )
    _show_result(finished, console, as_json=as_json)
    _advise_at_the_end(finished, prepared, console)
    if finished.signal is None and not as_json:
        run, prompt = shlex.quote(summary["run"]), shlex.quote(prepared.prompt)
        how = f"--prompt {prompt}" if prepared.config.data.loss is None else "--chat"
        console.notice(f"next: gpt sample --run {run} {how}")
        if prepared.config.inspect.prompt is not None:
            console.notice(f"the heads over time: gpt heads --run {run} --over-training")


def conclude_before(finished: Finished, console: Console, *, as_json: bool) -> None:
    """Print that nothing was left to train, and the result that the run has."""
    assert finished.before is not None
    console.notice(finished.before)
    _show_result(finished, console, as_json=as_json)


def _show_result(finished: Finished, console: Console, *, as_json: bool) -> None:
    if (
        not as_json and finished.losses and language() == "zh" and sys.stderr.isatty()
    ):  # what follows is English for scripts
        summary = finished.summary
        steps, time = counted(summary["steps"], "step"), duration(summary["seconds"])
        loss, bits = f"{summary['validation_loss']:.4f}", f"{summary['bits_per_byte']:.4f}"
        step = f"{finished.best_step:,}"
        console.notice(f"{steps} in {time}: validation loss {loss} nats/token, {bits} bits/byte, best at step {step}")
    console.show(finished, json=as_json)
