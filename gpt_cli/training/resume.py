"""Check a run before `start.py` resumes it: its config, environment and text, and what is left to train."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, ValidationError

from gpt_cli.checkpoints.checkpoint import Checkpoint
from gpt_cli.checkpoints.header import Figure, Progress, Step
from gpt_cli.checkpoints.run_list import read_outcome
from gpt_cli.checkpoints.run_paths import RunFiles
from gpt_cli.common.machine.devices import device_name, processor
from gpt_cli.common.units import twice_as_long
from gpt_cli.config import Config
from gpt_cli.config.field_types import FREE
from gpt_cli.config.load import config_differences
from gpt_cli.config.schema import keys_with
from gpt_cli.errors import CheckpointError, DataError, GptError, UsageError, shown, together, visible
from gpt_cli.text.sources import NAME_A_SOURCE, reads_stdin, source_names
from gpt_cli.training.events import Finished
from gpt_cli.training.intervals import is_finished, limit_reached, model_ends

FREE_KEYS = keys_with(FREE)  # any other setting would make it another run
_MOST_SOURCES = 3  # that a command in a hint names


class _Outcome(BaseModel):
    """The recorded outcome of a training that ended by itself, with its losses, times and sizes."""

    model_config = ConfigDict(strict=True)

    stopped_by: Literal["steps", "time", "patience"]
    step: Step
    best_step: Step
    tokens: Figure
    seconds: Figure
    loss: Figure | None
    smoothed_loss: Figure | None = None  # which earlier versions did not record
    validation_loss: Figure
    validation_loss_error: Figure | None
    validation_tokens: Figure
    bits_per_byte: Figure
    tokens_per_second: Figure | None
    parameters: Figure
    device: str
    dtype: str


_FIGURES = _Outcome.model_fields.keys() - {"stopped_by", "step", "best_step"}  # of a summary


def config_to_resume(stored: Config, requested: Config, run_config: Config | None, files: RunFiles) -> Config:
    """Return `requested`, with the run's earlier choices where `dtype`, `device` or `compile` is auto.

    `stored`, the checkpoint's config, also replaces null in data.loss and data.template. `run_config`, from config.yaml
    of the run, alone supplies `device` and `compile`, so that a stranger's checkpoint cannot start a compiler. Raises
    CheckpointError if `requested` changes a setting that may not change within a run.
    """
    noted = {key: getattr(stored.data, key) for key in ("loss", "template") if getattr(requested.data, key) is None}
    requested = requested.changed(data=noted)  # the run has recorded what null means for its text
    sources = {"dtype": stored, "device": run_config, "compile": run_config}
    chosen = {
        key: getattr(source.train, key)
        for key, source in sources.items()
        if source is not None and getattr(requested.train, key) == "auto"
    }
    requested = requested.changed(train=chosen)
    if changes := _fixed_changes(stored, requested):
        sentences = (
            f"{key} was {_quoted(old)} in this run and is {_quoted(new)} now, but it may not change"
            for key, old, new in changes
        )
        other = "start again with another ‹out›"
        if not any(key.startswith(("model.", "tokenizer.")) for key, _, _ in changes):
            other = f"begin a new run with these weights: {_begin_anew(files, run_config or stored)} ..."
        hint = f"leave out what changes these settings (‹config›, ‹settings›, ‹seed›, ...), or {other}"
        raise together([CheckpointError("‹resume›", sentence, hint=hint) for sentence in sentences])
    return requested


def _fixed_changes(one: Config, other: Config) -> list[tuple[str, str, str]]:
    """Return (key, value in `one`, value in `other`) of each differing setting that may not change within a run."""
    return [change for change in config_differences(one, other) if change[0] not in FREE_KEYS]


def _quoted(value: str) -> str:
    """Return a setting's value in quotes, or unchanged if it is valid JSON, such as a number or null."""
    try:
        json.loads(value)
    except ValueError:
        return shown(value)
    return value


def _begin_anew(files: RunFiles, config: Config) -> str:
    """Return the `gpt train --init-from` command that starts a new run with the weights of the run `files`."""
    sources = source_names(config.data.source)
    data = [f"--data {shlex.quote(source)}" for source in sources] if len(sources) <= _MOST_SOURCES else ["--data ..."]
    run_path, other = shlex.quote(str(files.path)), shlex.quote(f"{files.path}-2")
    return " ".join(["gpt train --init-from", run_path, *data, "--out", other])


def is_best_of_run(best: Checkpoint, config: Config, progress: Progress) -> bool:
    """Return whether the checkpoint `best` belongs to the run that `config` and `progress` describe.

    Text and settings (all but FREE_KEYS) must be equal; `best` must have the best loss or a step after `observed_step`.
    """
    return (
        not _fixed_changes(best.config, config)
        and best.progress.data_digest == progress.data_digest
        and (best.progress.step > progress.observed_step or best.progress.best_loss == progress.best_loss)
    )


def environment(config: Config) -> dict[str, str]:
    """Return the software and machine properties that two runs must share to give bit-identical results."""
    # versions before `tree_sum` added micro-batches in order, which is the same for up to three
    sums = {"sums": "tree"} if config.train.num_micro_batches > 3 and config.train.num_micro_batches % 2 == 0 else {}
    device = torch.device(config.train.device)
    named = {} if device.type == "cpu" else {"accelerator": device_name(device)}
    return {
        **sums,
        **named,
        "torch": torch.__version__,
        "threads": str(torch.get_num_threads()),
        "processor": processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "device": config.train.device,
        "dtype": config.train.dtype,
    }


def resumed_environment(before: Mapping[str, str], config: Config) -> dict[str, str]:
    """Return `environment(config)`, plus the choices of kernels in `before` if the accelerator is still the same."""
    now = environment(config)
    same = before.get("accelerator") == now.get("accelerator")
    return now | {name: before[name] for name in ("attention", "loss") if same and name in before}


def environment_changes(continued: Checkpoint, config: Config) -> list[str]:
    """Return how the `environment` of a resumed run differs from that of its checkpoint, such as "threads 2 -> 4"."""
    # a version without a compiler stored auto, and compiled nothing
    compiled, compiles = (settings.compile == "on" for settings in (continued.config.train, config.train))
    micro_batch_size = continued.config.train.micro_batch_size
    now = {**environment(config), "micro_batch_size": config.train.micro_batch_size, "compiled": compiles}
    unnamed = {"accelerator": now.get("accelerator")}  # in versions that stored an accelerator's kind alone
    then = {**unnamed, **continued.progress.environment, "micro_batch_size": micro_batch_size, "compiled": compiled}
    return [f"{name} {then.get(name)} -> {value}" for name, value in now.items() if then.get(name) != value]


def text_problem(error: DataError, continued: Checkpoint, config: Config, files: RunFiles) -> GptError:
    """Return the error for a resumed run's bad text: `error` and a hint if a source is missing, else a new error."""
    if is_missing(error):
        of_validation = any(error.where == shown(name) for name in source_names(config.data.validation_source))
        key = "data.validation_source" if of_validation else "data"
        error.hint = f"if it was moved or renamed, name its new path with ‹{key}=NEW/PATH›"
        return error
    return other_text(continued, config, files, f": {error}")  # such as a character that the vocabulary lacks


def is_missing(error: DataError) -> bool:
    """Return whether the error means that a text source does not exist."""
    return error.hint is not None and error.hint.endswith(NAME_A_SOURCE)


def other_text(continued: Checkpoint, config: Config, files: RunFiles, why: str = "") -> CheckpointError:
    """Return the error for a text whose ids differ from those of the run; `why` is the end of the error's sentence."""
    sources = ", ".join(source_names(config.data.source, config.data.validation_source))
    then, now = continued.config.data, config.data
    what = "has changed since this run began, or an older gpt read it otherwise"
    if (then.source, then.validation_source) != (now.source, now.validation_source):
        what = "is not the text that this run began with"
    begin = _begin_anew(files, config)
    hint = f"put the old text back, name another copy of it with ‹data›, or begin a new run with these weights: {begin}"
    if reads_stdin(now):
        hint = f"pipe the same text again: cat my.txt | {files.resume_command}"
    return CheckpointError("‹resume›", f"{shown(sources)} {what}{why}", hint=hint)


def ended_before(run: RunFiles, progress: Progress, requested: Config, run_config: Config | None) -> Finished | None:
    """Return the Finished event of a run that has trained all requested steps; None if something is left to do.

    `run_config` is the run's config.yaml. Raises UsageError if the run has already trained longer than requested.
    """
    _require_no_less(run, progress, requested, run_config)
    if not is_finished(progress, requested):
        return None
    if run.temporaries():
        return None  # a kill came while the outcome or the picture was written
    measured = ("source", "validation_source", "validation_tokens")
    if run_config is None or any(getattr(run_config.data, key) != getattr(requested.data, key) for key in measured):
        return None  # the closing evaluation is on another text
    try:
        outcome = read_outcome(run)
        if _Outcome.model_validate(outcome).step != progress.step:
            return None
    except (CheckpointError, ValidationError):
        return None  # a kill came before the closing evaluation, or a signal
    figures = {key: outcome[key] for key in outcome if key in _FIGURES}
    summary = {"run": str(run.path), "steps": progress.step, **figures, "stopped_by": outcome["stopped_by"]}
    return Finished(summary, None, outcome["best_step"], _sentence(run, progress, requested))


def _require_no_less(run: RunFiles, progress: Progress, requested: Config, run_config: Config | None) -> None:
    """Raise UsageError if the run has already trained longer than the requested max_steps or max_time."""
    steps, seconds, of_run = requested.train.max_steps, requested.train.max_time, run_config and run_config.train
    if of_run:  # the run may have reached a limit that the command does not change
        steps = None if steps == of_run.max_steps else steps
        seconds = None if seconds == of_run.max_time else seconds
    if steps is not None and steps < progress.step:
        sentence = f"{shown(run.path)} has trained {progress.step:,} steps already, more than {steps:,}"
        # the length of the run may still lie ahead
        longer = "" if of_run and (of_run.max_steps or 0) > progress.step else f" --max-steps {2 * progress.step}"
        raise UsageError("‹max_steps›", sentence, hint=f"{run.resume_command}{longer}")
    if seconds is not None and seconds < progress.elapsed:
        sentence = f"{shown(run.path)} has trained for {round(progress.elapsed):,} s already, more than {seconds:g} s"
        ahead = of_run and (of_run.max_time or 0) > progress.elapsed
        longer = "" if ahead else f" --max-time {twice_as_long(progress.elapsed)}"
        raise UsageError("‹max_time›", sentence, hint=f"{run.resume_command}{longer}")
    following = replace(progress, teachers=(*progress.teachers, progress.step - 1))
    if model_ends(following, requested.train) and not (of_run and model_ends(following, of_run)):
        sentence = "a model of this run would end after one step, and teach the last; name a longer training"
        raise UsageError("‹max_time›" if steps is None else "‹max_steps›", sentence, hint=run.resume_command)


def _sentence(run: RunFiles, progress: Progress, requested: Config) -> str:
    """Return a sentence that reports that nothing is left to train, and names flags that would continue the run."""
    settings, name = requested.train, visible(run.path)
    is_out = settings.patience is not None and progress.evaluations_without_best >= settings.patience
    also = " --set train.patience=null" if is_out else ""
    match limit_reached(progress, settings):
        case "steps":
            return f"{name} already has its {progress.step:,} steps; --max-steps {2 * progress.step}{also} continues it"
        case "time":
            assert settings.max_time is not None
            longer = twice_as_long(settings.max_time)
            return f"{name} already has its {settings.max_time:g} s; --max-time {longer}{also} continues it"
        case _:
            why = f"has ended at step {progress.step:,} for lack of a better validation loss"
            return f"{name} {why}; --set train.patience=null continues it"
