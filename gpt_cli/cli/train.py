"""`gpt train`"""

from __future__ import annotations

import contextlib
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpt_cli.cli import options
from gpt_cli.cli.preparation import prepare
from gpt_cli.cli.signals import Signals, listening, signal_name
from gpt_cli.cli.terminal import Console, abandon_stdout, duration
from gpt_cli.errors import DataError, UsageError, counted, shown

if TYPE_CHECKING:
    from gpt_cli.checkpoints.run_directory import RunDirectory
    from gpt_cli.training.reports import Finished, Report
    from gpt_cli.training.session import Session
    from gpt_cli.training.stopping import Stop


def train(
    config: options.Config = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            metavar="SOURCE",
            help="A text file, directory, glob, - or a name of `gpt data list`. Repeatable.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="The run directory. Default: runs/<config name>."),
    ] = None,
    settings: options.Settings = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    compile: Annotated[  # noqa: A002
        str | None, typer.Option("--compile", metavar="WHEN", help="auto, on or off: translate blocks to faster code.")
    ] = None,
    seed: Annotated[
        str | None, typer.Option("--seed", metavar="N", help="Seed of weights, batches and dropout.")
    ] = None,
    max_steps: Annotated[str | None, typer.Option("--max-steps", metavar="N", help="Optimizer steps.")] = None,
    max_time: Annotated[
        str | None,
        typer.Option(
            "--max-time",
            metavar="TIME",
            help="End after 90s, 5m or 2h in place of --max-steps; the learning rate follows the clock.",
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the newest intact checkpoint in --out.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in --out.")] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> int:
    """Train a model on text and save it, with its tokenizer, in a run directory."""
    console = Console(quiet)
    flags: dict[str, tuple[str, Any]] = {
        "data.source": ("--data", None if data is None else data[0] if len(data) == 1 else data),
        "train.device": ("--device", device),
        "train.dtype": ("--dtype", dtype),
        "train.compile": ("--compile", compile),
        "train.seed": ("--seed", seed),
        "train.max_steps": ("--max-steps", max_steps),
        "train.max_time": ("--max-time", max_time),
    }
    if max_steps is not None:
        if max_time is not None:
            raise UsageError("--max-time", "contradicts --max-steps", "use one of them")
        settings = [*(settings or ()), "train.max_time=null"]  # that of the config or the run ends it no more
    if resume and overwrite:
        raise UsageError("--overwrite", "contradicts --resume", "use one of them")
    if config is None and not (resume and out):
        allowed = "name a YAML file or a shipped config"
        raise UsageError("gpt train", "--config is missing", allowed, hint="gpt train --config tiny")
    out = out or Path("runs") / Path(config or "").stem

    from gpt_cli.config.reading import read_config

    if config is None and not (out / "config.yaml").exists():
        wrong = f"there is no run in {shown(out)}"
        raise UsageError("gpt train", wrong, "--config is needed to begin one")
    # a mistake in a config is told before torch is loaded
    asked = read_config(config or str(out / "config.yaml"), settings or (), flags)

    if out.exists() and not out.is_dir():
        raise UsageError(shown(out), "is not a directory", "--out names a directory")
    from gpt_cli.checkpoints.lock import sole_trainer
    from gpt_cli.machine import reuse_memory

    with contextlib.ExitStack() as stack:
        signals = Signals(before_leaving=stack.close)
        with listening(signals):
            require_held = stack.enter_context(sole_trainer(out, console.warn))
            reuse_memory()
            session, continued = prepare(console, asked, out, resume=resume, overwrite=overwrite)
            signals.saving = True
            session.directory.begin(session.config, continued)

            def stop() -> int | None:
                require_held()
                return signals.stop()

            finished = _follow(console, session, stop, signals.save_asked)
    try:
        _conclude(console, finished, session.directory, _first_prompt(session), as_json=json)
    except OSError:
        # whoever stopped it may have taken its stdout away too, as a closed terminal does
        if finished.signal is None:
            raise
        abandon_stdout()
    return 0 if finished.signal is None else 128 + finished.signal


def _follow(console: Console, session: Session, stop: Stop, save_asked: Callable[[], bool]) -> Finished:
    """Train, with a bar on a terminal and plain lines elsewhere; returns the closing report."""
    from tqdm import tqdm

    from gpt_cli.training.loop import train
    from gpt_cli.training.reports import Finished

    settings = session.config.train
    whole, done = _way(session)
    bar = tqdm(
        total=whole, initial=done, desc="training", unit="step" if settings.max_time is None else "s",
        dynamic_ncols=True, leave=False, file=sys.stderr, disable=not sys.stderr.isatty() or console.quiet,
    )  # fmt: skip
    total = len(session.validation_ids) - 1
    with bar, console.counting("closing evaluation", total, "tokens") as count:
        for report in train(session, stop, count, save_asked):
            if isinstance(report, Finished):
                return report
            done = _show(console, bar, report, done, session)
    raise AssertionError("a training ends with its summary")


def _way(session: Session) -> tuple[int, int]:
    """What there is to do, and what of it is done: in steps, or in seconds of the clock."""
    settings, progress = session.config.train, session.progress
    if settings.max_time is None:
        return settings.max_steps, progress.step
    return max(1, round(settings.max_time)), min(round(settings.max_time), round(progress.elapsed))


def _show(console: Console, bar: Any, report: Report, done_before: int, session: Session) -> int:
    """Tell what a report says; `done_before` is how much of the way was done then, the result how much is now."""
    from gpt_cli.training.reports import Evaluated, Sampled, Saved, Stepped

    settings = session.config.train
    if isinstance(report, Stepped):
        whole, done = _way(session)
        passed = done // max(1, whole // 20) > done_before // max(1, whole // 20)
        bar.update(done - done_before)
        if report.logged:
            bar.set_postfix_str(f"loss {report.loss:.3f}, {report.tokens_per_second:,.0f} tokens/s", refresh=False)
        if bar.disable and passed and report.loss is not None:
            by_clock = settings.max_time is not None
            left = whole - done if by_clock else session.progress.seconds / report.step * (whole - done)
            of = "" if by_clock else f"/{whole}"
            console.notice(
                f"step {report.step}{of}: loss {report.loss:.4f}, "
                f"{report.tokens_per_second:,.0f} tokens/s, {duration(left)} left"
            )
        return done_before if bar.disable and report.loss is None else done
    if isinstance(report, Evaluated):
        found = report.evaluation
        best = ", the best so far" if report.best else ""
        console.notice(
            f"step {report.step}: validation loss {found.loss:.4f} nats/token, "
            f"{found.bits_per_byte:.4f} bits/byte{best}"
        )
    elif isinstance(report, Saved):
        if report.asked:
            console.notice(f"step {report.step}: saved as asked by SIGUSR1")
    elif isinstance(report, Sampled):
        from gpt_cli.sampling.streaming import printable

        console.notice(f"step {report.step}: {printable(' '.join((report.prompt + report.text).split()))}")
    return done_before


def _first_prompt(session: Session) -> str:
    """A prompt that the tokenizer takes, after the text's own kind: English, or how the validation text begins."""
    text = session.tokenizer.decode(session.validation_ids[:64].tolist())
    words = [*re.findall(r"\w{1,4}", text), *text]
    for prompt in ["The ", *words] if text.isascii() else words:
        with contextlib.suppress(DataError):
            if session.tokenizer.encode(prompt):
                return prompt
    return ""


def _conclude(console: Console, finished: Finished, directory: RunDirectory, prompt: str, *, as_json: bool) -> None:
    """The result on stdout, and what to do next, such as continuing `prompt`, on stderr."""
    summary = finished.summary
    if finished.signal is not None:
        at = f"at step {summary['steps']}, which is saved" if summary["steps"] else "before the first step"
        console.warn(f"stopped by {signal_name(finished.signal)} {at}; resume: {directory.resume_command}")
    elif summary["stopped_by"] == "patience":
        console.notice(f"stopped at step {summary['steps']}: no better validation loss for train.patience evaluations")
    if as_json:
        console.json(summary)
        return
    figures = f"{counted(summary['steps'], 'step')} in {duration(summary['seconds'])}"
    if summary["validation_loss"] is not None:
        figures += (
            f", validation loss {summary['validation_loss']:.4f} nats/token, {summary['bits_per_byte']:.4f} bits/byte"
        )
    console.result(f"{summary['run']}: {figures}")
    if finished.signal is None:
        console.notice(f"next: gpt sample --run {shlex.quote(summary['run'])} --prompt {shlex.quote(prompt)}")
