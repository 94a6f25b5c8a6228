"""What `gpt train` checks, reads and tells before it changes anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpt_cli.cli.terminal import Console, duration, size
from gpt_cli.errors import EnvironmentFailure, UsageError, counted, shown

if TYPE_CHECKING:
    from gpt_cli.checkpoints.checkpoint import Checkpoint
    from gpt_cli.config import Config
    from gpt_cli.text.corpus import Corpus
    from gpt_cli.training.session import Session


def prepare(console: Console, asked: Config, out: Path, *, resume: bool, overwrite: bool) -> tuple[Session, int | None]:
    """All that comes before the run directory is changed, and the step that a continued run stands after."""
    from gpt_cli.checkpoints.run_directory import RunDirectory
    from gpt_cli.machine import available_memory
    from gpt_cli.text.corpus import read_data
    from gpt_cli.training.session import begin

    directory = RunDirectory(out)
    if directory.exists() and not (resume or overwrite):
        raise UsageError(
            shown(directory.path), "a run is there already", "continue it with --resume or replace it with --overwrite",
            hint=directory.resume_command,
        )  # fmt: skip
    if not directory.exists() and (found := directory.files()):
        wrong = f"holds {found[0].name}, which no run of this program wrote"
        raise UsageError(shown(directory.path), wrong, "name an empty or a new directory with --out")
    free = available_memory()  # before a checkpoint is read, whose place the training takes over
    continued = directory.newest(console.warn) if resume else None
    if resume and continued is None:
        console.notice(f"no checkpoint in {directory.path} yet; starting at step 0")
    resolved = _resolved(asked, continued, console)
    _require_memory(resolved, free)
    corpus = read_data(resolved.data)
    for notice in corpus.notices():
        console.notice(notice)
    with console.counting("tokenizing", corpus.num_characters, "characters") as count:
        session = begin(resolved, corpus, directory, continued, count)
    if resolved.train.compile == "on":
        console.notice("compiling, which may take half a minute")
    seconds = _time_step(session, console, required=continued is None and asked.train.compile == "on")
    _require_space(session)
    _announce(console, session, corpus, seconds)
    if continued is None:
        return session, None
    console.notice(f"resuming {directory.path} at step {continued.progress.step}")
    return session, continued.progress.observed_step


def _time_step(session: Session, console: Console, *, required: bool) -> float:
    """The seconds of a step; where torch cannot compile, that of plain blocks, unless compiling is required."""
    from gpt_cli.training.step import time_step

    try:
        return time_step(session)
    except Exception as error:
        if session.config.train.compile == "off" or not type(error).__module__.startswith("torch._"):
            raise
        wrong = f"torch cannot compile here, {shown((str(error) or type(error).__name__).splitlines()[0])}"
        if required:
            raise EnvironmentFailure("train.compile", wrong, "use off", hint="--compile off") from error
    console.warn(f"{wrong}; training without{', not bit-exact from here on' if session.progress.step else ''}")
    session.compile_no_more()
    return time_step(session)


def _require_memory(config: Config, free: int | None) -> None:
    """Refuse a training that main memory surely cannot hold, whatever the vocabulary, before anything is made."""
    from gpt_cli.model.costs import estimate

    settings = config.train
    if settings.device != "cpu" or free is None:
        return  # a GPU tells of its own memory by itself

    def needs(num_sequences: int) -> int:
        costs = estimate(config.model, 1, micro_batch_size=num_sequences, dtype=settings.dtype)
        return costs.training_bytes * 4 // 5  # the estimate is a tenth above what was measured

    at_once = settings.micro_batch_size or settings.batch_size
    if (needed := needs(at_once)) <= free:
        return
    fitting = [n for n in range(1, at_once) if settings.batch_size % n == 0 and needs(n) <= free]
    fits = f"--set train.micro_batch_size={fitting[-1]}" if fitting else ""
    raise EnvironmentFailure(
        "memory", f"the model and {counted(at_once, 'sequence')} of its batch take at least {size(needed)}",
        f"{size(free)} are free", hint=fits or "lower model.d_model, model.num_blocks or model.context_length",
    )  # fmt: skip


def _require_space(session: Session) -> None:
    """Refuse a run whose checkpoints the disk cannot hold."""
    settings = session.config.train
    weights = sum(4 * parameter.numel() for parameter in session.model.parameters())
    num_kept = len(session.directory.steps()) if session.progress.step else 0
    # the new one is written before the oldest is removed
    at_once = settings.keep_checkpoints + 1
    if settings.max_time is None:
        num_saves = -(-(settings.max_steps - session.progress.step) // settings.save_every)
        at_once = min(num_kept + num_saves, at_once)
    session.directory.require_space(3 * weights, weights, at_once)


def _resolved(asked: Config, continued: Checkpoint | None, console: Console) -> Config:
    """The config to train with, once what a resumed run may not change is checked."""
    from gpt_cli.training.session import config_to_resume, environment_changes, resolve

    if continued is None:
        return resolve(asked, console.notice)
    config = config_to_resume(continued.config, asked)
    config = resolve(config, lambda _: None)
    if changes := environment_changes(continued, config):
        console.warn(f"not bit-exact from here on: {', '.join(changes)}")
    return config


def _announce(console: Console, session: Session, corpus: Corpus, step_seconds: float) -> None:
    """What is about to be trained, on what, and what it will take."""
    import torch

    from gpt_cli.model.costs import estimate

    config, settings = session.config, session.config.train
    costs = estimate(
        config.model, session.tokenizer.vocab_size,
        micro_batch_size=settings.micro_batch_size or settings.batch_size, dtype=settings.dtype,
    )  # fmt: skip
    num_ids = len(session.batches.ids)
    parts = ", ".join(f"{part} {count:,}" for part, count in costs.parameters_by_part.items() if count)
    seconds = settings.max_time and settings.max_time - session.progress.elapsed
    steps = settings.max_steps - session.progress.step if seconds is None else round(seconds / step_seconds)
    console.notice(
        f"device      {settings.device}, {settings.dtype}, {counted(torch.get_num_threads(), 'thread')}, "
        f"torch {torch.__version__}"
    )
    console.notice(f"parameters  {costs.parameters:,}: {parts}")
    console.notice(
        f"corpus      {counted(len(corpus.documents), 'document')}, {corpus.num_characters:,} characters; "
        f"{num_ids:,} training tokens, "
        f"{num_ids / costs.parameters:.3g} per parameter; {len(session.validation_ids):,} validation tokens"
    )
    console.notice(f"tokenizer   {session.tokenizer.kind}, vocabulary of {session.tokenizer.vocab_size:,}")
    if steps > 0:
        epochs = steps * settings.batch_size / session.batches.windows_per_epoch
        console.notice(
            f"estimate    {size(costs.training_bytes)} of memory; {duration(step_seconds * steps)} for "
            f"{steps:,} steps of {session.tokens_per_step:,} tokens, {epochs:.3g} epochs"
        )
