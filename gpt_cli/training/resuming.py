"""What may change when a run continues, and what must stay the same for it to be exact to the last bit."""

from __future__ import annotations

import json
import shlex

import torch

from gpt_cli.checkpoints.checkpoint import Checkpoint
from gpt_cli.checkpoints.header import Header, Progress
from gpt_cli.checkpoints.run_files import RunFiles
from gpt_cli.config import Config
from gpt_cli.config.reading import differences
from gpt_cli.errors import CheckpointError, DataError, GptError, advised, shown
from gpt_cli.machine.devices import processor
from gpt_cli.text.reading import NAME_A_SOURCE
from gpt_cli.text.sources import names_of

# any other setting would make it another run
FREE_KEYS = frozenset(
    {
        "data.source",  # where the text is; the text itself must be the same
        "data.validation_source",
        "data.validation_tokens",
        "data.skip_bad",
        "data.max_expansion",
        "train.max_steps",
        "train.max_time",
        "train.micro_batch_size",
        "train.device",
        "train.threads",
        "train.compile",
        "train.parallel",
        "train.log_every",
        "train.eval_every",
        "train.eval_tokens",
        "train.sample_every",
        "train.sample_prompt",
        "train.save_every",
        "train.keep_checkpoints",
        "train.patience",
        "inspect.prompt",
        "inspect.every",
        "train.log_to",
    }
)
_MOST_SOURCES = 3  # that a command in a hint names


def config_to_resume(stored: Config, asked: Config, run: Config | None, files: RunFiles) -> Config:
    """The asked config, in which `auto` means what the run chose; raises CheckpointError for every fixed setting.

    `stored` is of the checkpoint, `run` of the config.yaml of `files`. A stranger's checkpoint in a run starts no
    compiler.
    """
    sources = {"dtype": stored, "device": run, "compile": run}
    chosen = {
        key: getattr(source.train, key)
        for key, source in sources.items()
        if source is not None and getattr(asked.train, key) == "auto"
    }
    asked = asked.changed(train=chosen)
    changes = _fixed_changes(stored, asked)
    sentences = (
        f"{key} was {_quoted(old)} in this run and is {_quoted(new)} now, and it may not change"
        for key, old, new in changes
    )
    if fixed := [CheckpointError("--resume", sentence) for sentence in sentences]:
        hint = "leave out what changes these settings (--config, --set, --seed, ...), or start anew with another --out"
        if not any(key.startswith(("model.", "tokenizer.")) for key, _, _ in changes):
            hint = (
                "leave out what changes these settings (--config, --set, --seed, ...), or begin a new run with these "
                f"weights: {_begin_anew(files, asked)} ..."
            )
        raise advised(fixed, hint)
    return asked


def _fixed_changes(one: Config, other: Config) -> list[tuple[str, str, str]]:
    """The settings in which two configs are of different runs: key, value, and the other value."""
    return [change for change in differences(one, other) if change[0] not in FREE_KEYS]


def _quoted(written: str) -> str:
    """A value as a config writes it, a text in quotes."""
    try:
        json.loads(written)
    except ValueError:
        return shown(written)
    return written


def _begin_anew(files: RunFiles, config: Config) -> str:
    """What begins a new run with the weights of this one."""
    sources = names_of(config.data.source)
    data = [f"--data {shlex.quote(source)}" for source in sources] if len(sources) <= _MOST_SOURCES else ["--data ..."]
    own, other = shlex.quote(str(files.path)), shlex.quote(f"{files.path}-2")
    return " ".join(["gpt train --init-from", own, *data, "--out", other])


def is_own_best(best: Header, config: Config, progress: Progress) -> bool:
    """Whether a best.safetensors is that of a run at this progress; of a later step it may be, too.

    Raises CheckpointError where it is damaged.
    """
    found = best.progress
    return (
        not _fixed_changes(best.config, config)
        and found.data_digest == progress.data_digest
        and (found.step > progress.observed_step or found.best_loss == progress.best_loss)
    )


def environment(config: Config) -> dict[str, str]:
    """What two runs must have in common to agree bit for bit."""
    # versions before the tree added micro-batches in their order, which for up to three is the same
    sums = {"sums": "tree"} if config.train.num_lanes > 3 and config.train.num_lanes % 2 == 0 else {}
    return sums | {
        "torch": torch.__version__,
        "threads": str(torch.get_num_threads()),
        "processor": processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "device": config.train.device,
        "dtype": config.train.dtype,
    }


def environment_changes(continued: Checkpoint, config: Config) -> list[str]:
    """What differs from the environment in which a checkpoint was written, such as "threads 2 -> 4"."""
    # a version without a compiler stored auto, and compiled nothing
    compiled, compiles = (settings.compile == "on" for settings in (continued.config.train, config.train))
    micro_batch_size = continued.config.train.micro_batch_size
    then = {**continued.progress.environment, "micro_batch_size": micro_batch_size, "compiled": compiled}
    now = {**environment(config), "micro_batch_size": config.train.micro_batch_size, "compiled": compiles}
    return [f"{name} {then.get(name)} -> {value}" for name, value in now.items() if then.get(name) != value]


def require_same_text(continued: Checkpoint, data_digest: str, config: Config, files: RunFiles) -> None:
    """Raises CheckpointError where the text's ids are not those that the run was trained on."""
    if continued.progress.data_digest != data_digest:
        raise _other_text(continued, config, files)


def text_problem(error: DataError, continued: Checkpoint, config: Config, files: RunFiles) -> GptError:
    """What a text that cannot be read or encoded means for a run that continues."""
    if is_missing(error):
        error.hint = f"if it was moved or renamed: {files.resume_command} {flag_of(error, config)}"
        return error
    return _other_text(continued, config, files, f": {error}")  # such as a character that the vocabulary lacks


def is_missing(error: DataError) -> bool:
    """Whether there is no text where a SOURCE says."""
    return error.hint is not None and error.hint.endswith(NAME_A_SOURCE)


def flag_of(error: DataError, config: Config) -> str:
    """The flag that names a missing text anew."""
    of_validation = any(error.where == shown(name) for name in names_of(config.data.validation_source))
    return "--set data.validation_source=NEW/PATH" if of_validation else "--data NEW/PATH"


def _other_text(continued: Checkpoint, config: Config, files: RunFiles, why: str = "") -> CheckpointError:
    sources = ", ".join([*names_of(config.data.source), *names_of(config.data.validation_source)])
    then, now = continued.config.data, config.data
    if (then.source, then.validation_source) == (now.source, now.validation_source):
        sentence = f"{shown(sources)} has changed since this run began"
    else:
        sentence = f"{shown(sources)} is not the text that this run began with"
    begin = _begin_anew(files, config)
    hint = f"put the old text back, name another copy of it with --data, or begin a new run with these weights: {begin}"
    return CheckpointError("--resume", sentence + why, hint=hint)
