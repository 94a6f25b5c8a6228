"""Print the output of `gpt train`: an announcement, a bar or lines of progress, and the result."""

import shlex
import signal
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from tqdm import tqdm

from gpt_cli.checkpoints.run_paths import RunFiles
from gpt_cli.cli.console import Console
from gpt_cli.common.language import language, say
from gpt_cli.common.units import duration, size
from gpt_cli.distributed.launch import fitting_sizes
from gpt_cli.errors import counted
from gpt_cli.text.sources import reads_stdin
from gpt_cli.training.advice.loss_curve import Curve, Line, read_lines
from gpt_cli.training.advice.rates import Advice
from gpt_cli.training.advice.sizes import before_training
from gpt_cli.training.events import Evaluated, Finished, Prepared, Sampled, Saved, Stepped, TrainingEvent

# lines of progress of a training whose stderr is not a terminal: this many at most, or as many as these times allow
NUM_LINES = 20
LINE_SECONDS = 60.0
LEAST_SECONDS = 10.0  # between two such lines


def announce(prepared: Prepared, console: Console, *, of_sweep: bool = False) -> None:
    """Print model, corpus and estimates before training; `of_sweep` omits advice on learning rates and --processes."""
    settings, costs = prepared.config.train, prepared.costs
    threads = counted(torch.get_num_threads(), "thread")
    if prepared.num_processes > 1:
        threads = f"{prepared.num_processes} processes with {threads} each"
    parts = ", ".join(f"{part} {number:,}" for part, number in costs.parameters_by_part.items() if number)
    console.notice(f"device      {settings.device}, {settings.dtype}, {threads}, torch {torch.__version__}")
    console.notice(f"parameters  {costs.parameters:,}: {parts}")
    if not settings.trains_all:
        kind = "parameters" if settings.rank is None else f"parameters of low-rank changes (rank {settings.rank})"
        console.notice(f"training    {costs.num_trained:,} {kind}; the rest stays as it is")
    amount = f"{counted(prepared.num_documents, 'document')}, {prepared.num_characters:,} characters"
    if prepared.config.data.loss is not None:  # their characters are those of lines of JSON
        amount = f"{counted(prepared.num_documents, 'example')} of questions and answers"
    training = f"{prepared.num_training_tokens:,} training tokens"
    console.notice(f"corpus      {amount}; {training}, {prepared.num_validation_tokens:,} validation tokens")
    console.notice(f"tokenizer   {prepared.config.tokenizer.kind}, vocabulary of {prepared.vocab_size:,}")
    if prepared.steps_left > 0:
        epochs = f"{prepared.epochs_left:{',.0f' if prepared.epochs_left >= 100 else '.3g'}}"
        memory = (f"{prepared.num_processes} x " if prepared.num_processes > 1 else "") + size(prepared.memory_bytes)
        console.notice(
            f"estimate    {memory} of memory, {size(prepared.disk_bytes)} of disk; "
            f"{duration(prepared.seconds_left)} for {counted(prepared.steps_left, 'step')} of "
            f"{prepared.config.tokens_per_step:,} tokens, "
            f"{epochs} epoch{'' if epochs == '1' else 's'}, and the closing evaluation"
        )
    if prepared.step:
        console.notice(f"resuming {prepared.directory} at step {prepared.step:,}")
    advise((one for one in before_training(prepared) if not (of_sweep and one.kind == "rate")), console)
    # a sweep, a run that gpt chooses settings for, and a run on cuda:1 or of stdin take no --processes
    piped = reads_stdin(prepared.config.data)
    alone = prepared.num_processes == 1 and not (of_sweep or prepared.reasons or ":" in settings.device or piped)
    if alone and settings.device != "cpu":
        count, sizes = torch.accelerator.device_count(), fitting_sizes(settings.batch_size)
        if (together := max(size for size in sizes if size <= max(1, count))) > 1:
            flags = f"--processes {together}"
            if settings.num_micro_batches % together:
                flags += f" --set train.micro_batch_size={settings.batch_size // together}"
            console.notice(f"this machine has {count} GPUs, but this run uses one; {flags} uses {together}")


def show_progress(events: Iterator[TrainingEvent], prepared: Prepared, console: Console) -> tuple[Finished, Curve]:
    """Print events and advice while a training runs, with a bar on a terminal; return Finished and the loss curve.

    If `console` is quiet, the curve of a resumed run lacks the earlier part of the run.
    """
    progress, curve = _TrainingPosition(prepared), Curve(prepared)
    if prepared.step and not console.quiet:
        for line in read_lines(RunFiles(prepared.directory).metrics, prepared.step + 1):
            curve.add(line)  # the part of the run before the resume has printed its advice
            progress.remember(line.step, line.validation_loss, line.model)
    bar = _Bar(
        total=progress.length,
        initial=progress.done,
        # as short as it can be, since 80 columns hold it with all figures
        bar_format="{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} " + say(progress.unit) + "{figures}",
        dynamic_ncols=True,
        leave=False,
        file=sys.stderr,
        disable=not sys.stderr.isatty() or console.quiet,
    )
    evaluated: float | None = None
    said: str | None = None  # the line on an evaluation, which is printed after its step has moved the bar
    with bar:
        for event in events:
            if isinstance(event, Finished):
                return event, curve
            if isinstance(event, Evaluated):
                evaluated, said = event.score.loss, _about_evaluation(event, progress)
                if bar.disable:
                    console.notice(said)
            elif isinstance(event, Stepped):
                _show_step(event, progress, bar, console)
                if said is not None and not bar.disable:
                    console.notice(said)
                said = None
                if event.logged and event.loss is not None and event.gradient_norm is not None:
                    line = Line(event.step, event.loss, event.gradient_norm, evaluated, event.model)
                    advise(curve.add(line), console, event.step)
                    evaluated = None
            elif isinstance(event, Saved) and event.requested:
                console.notice(f"step {event.step:,}: saved, as SIGUSR1 requested")
            elif isinstance(event, Sampled):
                console.notice(str(event))
    raise AssertionError("a training ends with Finished")


def advise(pieces: Iterable[Advice], console: Console, step: int | None = None) -> None:
    """Print a line for each piece of advice; the line names the `step`, unless that is None."""
    for advice in pieces:
        console.notice(f"advice: {advice}" if step is None else f"advice: step {step:,}: {advice}")


class _Bar(tqdm):
    """A tqdm bar that translates the text beside it only when tqdm draws the bar, instead of at each step."""

    @property
    def format_dict(self) -> Any:
        fields = super().format_dict
        comma = "，" if language() == "zh" else ", "
        return {**fields, "figures": comma + say(fields["postfix"]) if fields.get("postfix") else ""}


class _TrainingPosition:
    """The progress of a training, in seconds if train.max_time will likely end it, else in steps; and its best loss."""

    def __init__(self, prepared: Prepared):
        self.start = prepared
        settings = prepared.config.train
        steps, seconds = settings.max_steps, settings.max_time
        self.by_clock = steps is None or (seconds is not None and prepared.steps_left != steps - prepared.step)
        self.length = max(1, round(seconds or 0)) if self.by_clock else steps or 0
        self.unit = "s" if self.by_clock else "steps"
        self.done = self.at(prepared.step, prepared.elapsed)  # at the last step for which a line could be printed
        self.best: tuple[int, float, int] | None = None  # its step, the validation loss, and the number of the model
        self._line_at = prepared.elapsed  # seconds

    def at(self, step: int, elapsed: float) -> int:
        """Return the progress: `elapsed` seconds, rounded, if the training likely ends by time; otherwise `step`."""
        return min(self.length, round(elapsed)) if self.by_clock else step

    def seconds_left(self, event: Stepped) -> float:
        """Estimate the seconds left, closing evaluation included, from the pace since the run began or was resumed."""
        left = self.length - self.at(event.step, event.elapsed)
        if not self.by_clock:
            left *= (event.elapsed - self.start.elapsed) / max(1, event.step - self.start.step)
        return left + self.start.closing_seconds

    def remember(self, step: int, validation_loss: float | None, model: int) -> None:
        """Store a step, its validation loss and the number of its model, if this loss is the lowest so far."""
        if validation_loss is not None and (self.best is None or validation_loss < self.best[1]):
            self.best = step, validation_loss, model

    def prints_line(self, done: int, elapsed: float) -> bool:
        """Return whether to print a line at progress `done` and `elapsed` seconds; store both for the next line."""
        part, since = max(1, self.length // NUM_LINES), elapsed - self._line_at
        prints = since >= (LEAST_SECONDS if done // part > self.done // part else LINE_SECONDS)
        prints = prints or done == self.length > self.done
        self.done = done
        if prints:
            self._line_at = elapsed
        return prints


def _show_step(event: Stepped, progress: _TrainingPosition, bar: Any, console: Console) -> None:
    done, loss = progress.at(event.step, event.elapsed), event.smoothed_loss
    if loss is None:  # which a GPU still computes; a line due now is printed with the next loss
        bar.update(done - bar.n)
        return
    best = "" if progress.best is None else f"{progress.best[1]:.3f}, "
    figures = f"{event.tokens_per_second:,.0f} tokens/s, {duration(progress.seconds_left(event))} left"
    at = f"step {event.step:,}, " if progress.by_clock else ""
    bar.set_postfix_str(f"{at}loss {loss:.3f}, {best and f'best {best}'}{figures}", refresh=False)
    bar.update(done - bar.n)
    if bar.disable and progress.prints_line(done, event.elapsed):
        of = "" if progress.by_clock else f"/{progress.length:,}"
        console.notice(f"step {event.step:,}{of}: loss {loss:.4f}, {best and f'best validation {best}'}{figures}")


def _about_evaluation(event: Evaluated, progress: _TrainingPosition) -> str:
    loss, change, whole = event.score.loss, "the first", progress.start.num_validation_tokens
    if event.score.num_tokens < whole - 1 and progress.start.config.data.loss is None:  # the first has no prediction
        change = f"the first, on {event.score.num_tokens:,} of {whole:,} tokens"
    if progress.best is not None:
        step, best, model = progress.best
        at = f"step {step:,}" if model == event.model else f"step {step:,} of model {model}"
        change = f"better by {best - loss:.4f}" if loss < best else f"worse by {loss - best:.4f} than at {at}"
        if f"{abs(best - loss):.4f}" == "0.0000":
            change = f"the same as at {at}"
    progress.remember(event.step, loss, event.model)
    return f"{event}, {change}"


def conclude(finished: Finished, prepared: Prepared, curve: Curve, console: Console, *, as_json: bool) -> None:
    """Print the result of a training on stdout; print advice from its loss curve and the next command on stderr."""
    summary, files, steps = finished.summary, RunFiles(prepared.directory), finished.summary["steps"]
    command = ("cat my.txt | " if reads_stdin(prepared.config.data) else "") + files.resume_command
    if finished.signal is not None:
        saved = f"step {steps:,} is saved" if steps else "no step was completed"
        cause = "Ctrl-C" if finished.signal == signal.SIGINT else signal.Signals(finished.signal).name
        console.tell(f"stopped by {cause}; {saved}. To continue: {command}")
    elif summary["stopped_by"] == "patience":
        console.notice(f"stopped at step {steps:,}: no better validation loss for train.patience evaluations")
    show_result(finished, console, as_json=as_json)
    if finished.signal is None and prepared.steps_left and not console.quiet:
        advise(curve.at_the_end(summary["validation_loss"], summary["stopped_by"], command), console)
    if finished.signal is None and not as_json:
        run, prompt = shlex.quote(summary["run"]), shlex.quote(prepared.prompt)
        how = f"--prompt {prompt}" if prepared.config.data.loss is None else "--chat"
        console.notice(f"next: gpt sample --run {run} {how}")
        if prepared.config.inspect.prompt is not None:
            console.notice(f"the heads over time: gpt heads --run {run} --over-training")


def show_result(finished: Finished, console: Console, *, as_json: bool) -> None:
    """Print the result of a run, preceded by a notice if nothing was left to train."""
    if finished.before is not None:
        console.notice(finished.before)
    # what follows is English for scripts
    if not as_json and finished.losses and language() == "zh" and sys.stderr.isatty():
        summary = finished.summary
        steps, time = counted(summary["steps"], "step"), duration(summary["seconds"])
        loss, bits = f"{summary['validation_loss']:.4f}", f"{summary['bits_per_byte']:.4f}"
        step = f"{finished.best_step:,}"
        console.notice(f"{steps} in {time}: validation loss {loss} nats/token, {bits} bits/byte, best at step {step}")
    console.show(finished, json=as_json)
