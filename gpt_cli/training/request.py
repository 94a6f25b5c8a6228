"""The request to train, and the plan made from it. Requests are checked before torch is loaded or a file written."""

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, InstanceOf, WithJsonSchema

from gpt_cli.checkpoints.run_paths import RUNS, RunFiles, named_run
from gpt_cli.checkpoints.select import near_run, newest_run, run_hint
from gpt_cli.checkpoints.training_text import is_imported
from gpt_cli.common.extras import require_installed
from gpt_cli.common.files import require_no_file
from gpt_cli.common.host import Host
from gpt_cli.config import Config
from gpt_cli.config.field_types import Count, Duration, Few, Switch
from gpt_cli.config.load import (
    Flags,
    build_config,
    find_config,
    read_config,
    read_document,
    read_run_config,
    shipped_config,
)
from gpt_cli.config.request import (
    CONFIG,
    EMPTY,
    MAX_SEED,
    NONE,
    Coerced,
    Device,
    Flag,
    MaybeNamedPath,
    MaybePath,
    NamedPaths,
    ReadName,
    Request,
    Seed,
    Settings,
    Text,
    Threads,
)
from gpt_cli.config.strict_yaml import Document
from gpt_cli.distributed.environment import rank_environment
from gpt_cli.errors import GptError, UsageError, counted, shown
from gpt_cli.training.init_from import Initial, asks_for, read_initial, require_fit, with_source_settings

# the settings that have a flag of their own
_OF_TRAIN = ("device", "dtype", "compile", "threads", "seed", "max_steps", "max_time")
_KEYS = {"data": "data.source", **{name: f"train.{name}" for name in _OF_TRAIN}, "watch": "inspect.prompt"}
AUTO = "auto"  # the name of the config that is chosen
_INIT_FROM = "gpt train --init-from runs/tiny --data my.txt --out runs/mine"
_Hears = Annotated[Callable[[str], object] | None, WithJsonSchema({"enum": ["a function"]})]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A training as requested: its run directory, and its config before any setting is chosen for this machine."""

    config: Config
    directory: Path
    shipped: Config | None = None  # the shipped config that its config is made from
    initial: Initial | None = None  # the model whose weights step 0 has; None: random weights
    chooses: bool = False  # whether `auto_config` chooses the settings that its config lacks
    overwrite: bool = False  # whether it may replace the run in its directory
    resume: bool = False  # whether it continues that run, or begins at step 0 if the run has no checkpoint yet
    by_run_config: bool = False  # whether its config is that of the run, which must then exist
    of_sweep: bool = False  # whether a sweep tries settings, which may be far from the usual ones


class TrainRequest(Request):
    """Train a model on text and save it, with its tokenizer, in a run directory.

    Ctrl-C saves the last step and ends; ‹resume› continues from there, with the same result. Ctrl-C again, a second
    later, ends at once.
    """

    of_python: ClassVar[tuple[str, ...]] = ("progress", "notice", "warn")
    notice: _Hears = Field(default=None, description="A function that receives lines that a user may want to know.")
    warn: _Hears = Field(default=None, description="A function that receives warnings.")

    config: Annotated[
        Coerced[
            ReadName | Annotated[InstanceOf[Config], WithJsonSchema({"enum": ["a Config"]})] | None,
            str | Path | Config | None,
        ],
        Flag("FILE", offers="configs_and_auto"),
    ] = Field(
        default=NONE,
        kw_only=False,
        description=f"{CONFIG.description} Default: auto, which chooses settings for text, time and machine.",
    )
    data: Annotated[NamedPaths, Flag("SOURCE", offers="texts")] = Field(
        default=EMPTY,
        description="The text: a file, directory, glob, - for stdin, or a name that `gpt data list` prints. "
        "Repeatable.",
    )
    out: Annotated[MaybePath, Flag("DIR")] = Field(
        default=NONE, description="The run directory. Default: runs/<config name>."
    )
    settings: Settings = EMPTY
    device: Device = Field(
        default=None, description="auto, cpu, cuda, cuda:N, mps or xpu. Default: the value in the config."
    )
    dtype: Literal["auto", "float32", "bfloat16"] | None = Field(
        default=None, description="auto, float32 or bfloat16. Default: the value in the config."
    )
    compile: Annotated[Literal["auto", "on", "off"] | None, Flag("WHEN")] = Field(
        default=None, description="Compile the blocks with torch: auto, on or off."
    )
    threads: Threads = None
    seed: Seed | None = Field(default=None, description=f"Seed of weights, batches and dropout, from 0 to {MAX_SEED}.")
    max_steps: Count | None = Field(default=None, description="Optimizer steps.")
    max_time: Annotated[Coerced[Duration | None, float | str | None], Flag("TIME")] = Field(
        default=NONE,
        description="Train for a time such as 90s, 5m or 1h30m; the learning rate follows the clock. "
        "With ‹max_steps›, whichever comes first ends the run.",
    )
    watch: Text | None = Field(
        default=None,
        description="Keep snapshots of the attention to this text while the model trains, "
        "for gpt heads --over-training.",
    )
    processes: Few | None = Field(
        default=None,
        description="Share each step among N processes of this machine, such as one for each GPU, with the same "
        "result. Leave it out under torchrun.",
    )
    resume: Switch = Field(default=False, description="Continue from the newest intact checkpoint in ‹out›.")
    overwrite: Switch = Field(default=False, description="Replace the run in ‹out›.")
    init_from: Annotated[MaybeNamedPath, Flag("PATH", offers="runs")] = Field(
        default=NONE,
        description="Begin with the weights, the sizes and the tokenizer of a run, a checkpoint or a directory of "
        "transformers.",
    )

    dry_run: Switch = Field(
        default=False, description="Print the config and all lines that precede the first step, but train nothing."
    )

    exclusive = (("resume", "overwrite"),)

    def find(self, host: Host) -> Plan:
        """Return the plan of the training; with --init-from, read all of that model except its weights.

        Raises UsageError for settings that contradict each other, CheckpointError if the --init-from model does not
        fit, EnvironmentFailure for a logger whose package is missing.
        """
        config, out, settings = self.config, self.out, list(self.settings)
        flags: dict[str, tuple[str, Any]] = {key: (name, getattr(self, name)) for name, key in _KEYS.items()}
        flags["data.source"] = ("data", (self.data[0] if len(self.data) == 1 else list(self.data)) or None)
        if config is None and self.init_from and not out:
            sentence = "‹init_from› without ‹config› needs the run directory, ‹out›"
            raise UsageError("gpt train", sentence, hint=_INIT_FROM)
        if config == AUTO and self.init_from:
            sentence = "‹config=auto› chooses sizes, but the model of ‹init_from› has its own; leave ‹config› out"
            raise UsageError("gpt train", sentence)
        if isinstance(config, Config) and out is None:
            raise UsageError("‹out›", "a Config has no file name, so name the run directory with out")
        shipped = shipped_config(config, (AUTO,)) if isinstance(config, str) and config != AUTO else None
        directory = out or Path("runs") / (AUTO if config is None else Path(str(config)).stem)
        require_no_file(directory)
        if self.max_steps is not None and self.max_time is None and not asks_for(settings, "train.max_time="):
            settings.append("train.max_time=null")  # a config or the run may have a time
        run, initial = RunFiles(directory), None
        unnamed = config in (None, AUTO) and not self.init_from
        chooses = unnamed and not (self.resume and (config is None or run.exists()))
        if self.init_from is not None:
            merged, initial = self._with_initial(run, settings, flags, host)
        elif chooses:
            self._require_one_process()
            merged = self._fixed_settings(flags)
        elif isinstance(config, Config):
            merged = build_config(Document(config.model_dump(mode="json")), "config", settings, flags)
        elif config is None or config == AUTO:
            require_run(run)
            merged = read_run_config(run.config, settings, flags)
        else:
            merged = read_config(config, settings, flags)
        require_installed(merged.train.log_to)
        _require_what_stays(merged, initial, continues=self.resume and bool(run.steps()))
        return Plan(
            config=merged,
            directory=directory,
            shipped=shipped,
            initial=initial,
            chooses=chooses,
            overwrite=self.overwrite,
            resume=self.resume,
            by_run_config=unnamed and not chooses,
        )

    def _fixed_settings(self, flags: Flags) -> Config:
        """Return a config with only the settings that the user set; raise UsageError if gpt cannot choose the rest."""
        config = build_config(Document({}), AUTO, self.settings, flags, to_choose=True)
        fields_set = config.train.model_fields_set
        if "max_steps" not in fields_set and "max_time" in fields_set and config.train.max_time is None:
            sentence = "gpt chooses settings for a time or a number of steps; name one of them"
            raise UsageError("‹settings›: train.max_time", sentence, hint="‹max_steps=1000›")
        if config.tokenizer.kind == "imported":
            sentence = "imported is the tokenizer of an imported model, for a training with ‹init_from›"
            raise UsageError("‹settings›: tokenizer.kind", sentence, hint="use bpe, byte, char or tiktoken")
        return config

    def _require_one_process(self) -> None:
        """Raise UsageError if several processes would choose settings: each would measure a different speed."""
        several = (self.processes or 1) > 1 or rank_environment(os.environ) is not None
        if several and not self.dry_run:  # of which one process writes the config
            sentence = "one process chooses the settings; let it write them to a file, and train with that file"
            hint = "add ‹dry_run=True› > my.yaml to this command, then train with ‹config=my.yaml›"
            raise UsageError("‹config=auto›", sentence, hint=hint)

    def _with_initial(
        self, run: RunFiles, settings: list[str], flags: Flags, host: Host
    ) -> tuple[Config, Initial | None]:
        """Return the config for --init-from, and the named model, which gives sizes and tokenizer if no config does.

        The model is None if a run with a checkpoint is resumed, because that checkpoint has the weights.
        """
        assert self.init_from is not None
        names_text = bool(self.data) or asks_for(settings, "data.source=", "data=")
        initial, config = None, self.config
        if self.resume and run.steps():
            source = read_run_config(run.config)
        else:
            here = Path(self.init_from)
            foreign = (here / "config.json").is_file()  # which `gpt import` gives a run of the same name
            initial = read_initial(here if foreign else named_run(self.init_from), host)
            source = initial.settings(other_text=names_text) if config is None else initial.config
        document, where = _document(config, source)
        merged = build_config(with_source_settings(document, source), where, settings, flags)
        if initial is not None:
            new_tokenizer = asks_for(settings, "tokenizer.")
            initial = replace(initial, new_tokenizer=new_tokenizer, names_text=config is None and not names_text)
            require_fit(initial, merged, settings, config if isinstance(config, str) else None)
            section = document.content.get("tokenizer") if config is not None else None
            asks = asks_for(settings, "tokenizer.kind=") or "kind" in (section or {})
            if initial.new_tokenizer and merged.tokenizer.kind == "tiktoken" and not asks:
                has = f"{initial.where} has tiktoken, whose vocabulary may need a download"
                hint = "‹tokenizer.kind=tiktoken›"
                raise UsageError("tokenizer.kind", f"{has}, so gpt uses it only if you ask for it", hint=hint)
        return merged, initial


def require_run(run: RunFiles) -> None:
    """Raise UsageError if the directory contains no run; the hint names a run with a similar name, if there is one."""
    if not run.exists():
        other = near_run(run.path, trained=True)
        with contextlib.suppress(GptError):
            other = other or (newest_run() if run.path == RUNS / AUTO else None)
        hint = RunFiles(other).resume_command if other and not is_imported(RunFiles(other)) else run_hint(trained=True)
        raise UsageError("‹resume›", f"there is no run in {shown(run.path)} to continue", hint=hint)


def _require_what_stays(config: Config, initial: Initial | None, *, continues: bool) -> None:
    """Raise UsageError if `freeze` or `rank` would leave random weights untrained, or if `freeze` is too large."""
    settings, num_blocks = config.train, config.model.num_blocks
    if settings.trains_all:
        return
    name = "freeze" if settings.rank is None else "rank"
    if initial is None and not continues:
        sentence = "a new model has no trained weights to keep; name a trained model with ‹init_from›"
        raise UsageError(f"train.{name}", sentence, hint=_INIT_FROM)
    if initial is not None and initial.new_tokenizer:
        sentence = f"the embeddings of a new tokenizer must train, but train.{name} leaves them as they are"
        raise UsageError(f"train.{name}", sentence, hint=f"‹train.{name}=null›")
    most = num_blocks if settings.rank is None else num_blocks - 1
    if settings.freeze is not None and settings.freeze > most:
        sentence = f"none of {counted(num_blocks, 'block')} would be left to train; use at most {most}"
        raise UsageError("train.freeze", sentence, hint=f"‹train.freeze={most}›")


def _document(config: str | Config | None, source: Config) -> tuple[Document, str]:
    """Return the settings of `config`, or of `source` if `config` is None, and their name in error messages."""
    if config is None:
        return Document(source.model_dump(mode="json")), "config"
    if isinstance(config, Config):
        return Document(config.model_dump(mode="json", exclude_unset=True)), "config"
    path = find_config(config)
    return read_document(path), str(path)
