"""What `gpt train` prints: an announcement, a bar or lines on the way, and the result."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from typing import Any

import torch
from tqdm import tqdm

from gpt_cli.checkpoints.run_files import RunFiles
from gpt_cli.cli.amounts import duration, size
from gpt_cli.cli.signals import signal_name
from gpt_cli.cli.terminal import Console
from gpt_cli.errors import counted
from gpt_cli.sampling.streaming import printable
from gpt_cli.training.reports import Evaluated, Finished, Prepared, Report, Sampled, Saved, Stepped

NUM_LINES = 20  # at most, about the way of a training whose stderr is no terminal


def announce(prepared: Prepared, console: Console) -> None:
    """Print what is about to be trained, on what, and what it will take."""
    settings, costs = prepared.config.train, prepared.costs
    threads = counted(torch.get_num_threads(), "thread")
    if prepared.num_processes > 1:
        threads = f"{prepared.num_processes} processes with {threads} each"
    parts = ", ".join(f"{part} {number:,}" for part, number in costs.parameters_by_part.items() if number)
    console.notice(f"device      {settings.device}, {settings.dtype}, {threads}, torch {torch.__version__}")
    console.notice(f"parameters  {costs.parameters:,}: {parts}")
    console.notice(
        f"corpus      {counted(prepared.num_documents, 'document')}, {prepared.num_characters:,} characters; "
        f"{prepared.num_training_tokens:,} training tokens, "
        f"{prepared.num_training_tokens / costs.parameters:.3g} per parameter; "
        f"{prepared.num_validation_tokens:,} validation tokens"
    )
    console.notice(f"tokenizer   {prepared.config.tokenizer.kind}, vocabulary of {prepared.vocab_size:,}")
    if prepared.steps_left > 0:
        console.notice(
            f"estimate    {size(costs.training_bytes)} of memory; {duration(prepared.seconds_left)} for "
            f"{prepared.steps_left:,} steps of {prepared.config.tokens_per_step:,} tokens, "
            f"{prepared.epochs_left:.3g} epochs, and the closing evaluation"
        )
    if prepared.step:
        console.notice(f"resuming {prepared.directory} at step {prepared.step}")


def show_progress(reports: Iterator[Report], prepared: Prepared, console: Console) -> Finished:
    """Print each report, on a terminal beside a bar; returns the last one."""
    scale = _Scale(prepared)
    bar = tqdm(
        total=scale.length,
        initial=scale.done,
        desc="training",
        bar_format="{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} " + scale.unit + "{postfix}",
        dynamic_ncols=True,
        leave=False,
        file=sys.stderr,
        disable=not sys.stderr.isatty() or console.quiet,
    )
    with bar:
        for report in reports:
            if isinstance(report, Finished):
                return report
            if isinstance(report, Stepped):
                _show_step(report, scale, bar, console)
            else:
                _show(report, console)
    raise AssertionError("a training ends with Finished")


class _Scale:
    """How far a training is, in steps or, by the clock, in seconds."""

    def __init__(self, prepared: Prepared):
        self.start = prepared
        settings = prepared.config.train
        self.by_clock = settings.max_time is not None
        self.length = settings.max_steps if settings.max_time is None else max(1, round(settings.max_time))
        self.unit = "s" if self.by_clock else "steps"
        self.done = self.at(prepared.step, prepared.elapsed)

    def at(self, step: int, elapsed: float) -> int:
        """How much is done at a step, so many seconds into the run."""
        return min(self.length, round(elapsed)) if self.by_clock else step

    def seconds_left(self, report: Stepped) -> float:
        """An estimate from the pace of this part of the run, with the closing evaluation."""
        left = self.length - self.at(report.step, report.elapsed)
        if not self.by_clock:
            steps = max(1, report.step - self.start.step)
            left *= (report.elapsed - self.start.elapsed) / steps
        return left + self.start.closing_seconds


def _show_step(report: Stepped, scale: _Scale, bar: Any, console: Console) -> None:
    done_before, done = scale.done, scale.at(report.step, report.elapsed)
    if report.loss is None:  # which a GPU still computes; a line due now is printed with the next loss
        scale.done = done_before if bar.disable else done
        bar.update(done - done_before)
        return
    scale.done = done
    figures = f"{report.tokens_per_second:,.0f} tokens/s, {duration(scale.seconds_left(report))} left"
    at = f"step {report.step}, " if scale.by_clock else ""
    bar.set_postfix_str(f"{at}loss {report.loss:.3f}, {figures}", refresh=False)
    bar.update(done - done_before)
    part = max(1, scale.length // NUM_LINES)
    if bar.disable and done // part > done_before // part:
        of = "" if scale.by_clock else f"/{scale.length}"
        console.notice(f"step {report.step}{of}: loss {report.loss:.4f}, {figures}")


def _show(report: Report, console: Console) -> None:
    if isinstance(report, Evaluated):
        best = ", the best so far" if report.best else ""
        console.notice(
            f"step {report.step}: validation loss {report.score.loss:.4f} nats/token, "
            f"{report.score.bits_per_byte:.4f} bits/byte{best}"
        )
    elif isinstance(report, Saved) and report.asked:
        console.notice(f"step {report.step}: saved as asked by SIGUSR1")
    elif isinstance(report, Sampled):
        prompt, text = (printable(" ".join(part.split())) for part in (report.prompt, report.text))
        console.notice(f"step {report.step} sample: «{prompt}» → {text}")


def conclude(finished: Finished, prepared: Prepared, console: Console, *, as_json: bool) -> None:
    """Print the result on stdout, and what to do next on stderr."""
    summary = finished.summary
    if finished.signal is not None:
        at = f"at step {summary['steps']}, which is saved" if summary["steps"] else "before the first step"
        resume = RunFiles(prepared.directory).resume_command
        console.warn(f"stopped by {signal_name(finished.signal)} {at}; resume: {resume}")
    elif summary["stopped_by"] == "patience":
        console.notice(f"stopped at step {summary['steps']}: no better validation loss for train.patience evaluations")
    if as_json:
        console.json(summary)
        return
    figures = f"{counted(summary['steps'], 'step')} in {duration(summary['seconds'])}"
    if summary["validation_loss"] is not None:
        error = summary["validation_loss_error"]
        more_or_less = "" if error is None else f" ± {error:.4f}"
        figures += (
            f", validation loss {summary['validation_loss']:.4f}{more_or_less} nats/token "
            f"({counted(summary['validation_tokens'], 'token')}), {summary['bits_per_byte']:.4f} bits/byte "
            f"with the best weights, those of step {finished.best_step}"
        )
    console.result(f"{summary['run']}: {figures}")
    if finished.signal is None:
        run, prompt = shlex.quote(summary["run"]), shlex.quote(prepared.prompt)
        console.notice(f"next: gpt sample --run {run} --prompt {prompt}")
