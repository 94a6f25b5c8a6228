"""The request (flags and inputs) of `gpt sweep`. Needs no torch."""

import contextlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from gpt_cli.checkpoints.run_paths import RUNS, SWEEP
from gpt_cli.common.extras import require_installed
from gpt_cli.common.files import require_no_file
from gpt_cli.common.host import Host
from gpt_cli.common.limits import SWEEP_RECORD_BYTES
from gpt_cli.common.untrusted_files import read_bytes
from gpt_cli.config import Config
from gpt_cli.config.field_types import Few, Switch, as_yaml
from gpt_cli.config.load import without_retired
from gpt_cli.config.request import NONE, Digits, Flag, MaybePath, PathText, Request
from gpt_cli.distributed.environment import rank_environment
from gpt_cli.errors import CheckpointError, UsageError, shown, together, visible
from gpt_cli.text.sources import reads_stdin
from gpt_cli.tools.sweeps.sweep_file import Sweep, dotted_keys, read_sweep

_MOST = ("the record of a sweep", SWEEP_RECORD_BYTES)
_NAME_LENGTH = 60


class Point(NamedTuple):
    """A run of a sweep: its directory and config; `texts` has the settings that the sweep varies, as in the file."""

    path: Path
    texts: Mapping[str, Any]
    config: Config

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the sweep varies: section.key -> the value in this run's config."""
        content = dotted_keys(self.config.model_dump(mode="json"))
        return {key: content[key] for key in self.texts}

    def __str__(self) -> str:
        return " ".join(f"{key}={visible(as_yaml(value))}" for key, value in self.texts.items())


class SweepRequest(Request):
    """Train a base config with lists or ranges of settings, one ordinary run each, and compare them.

    The same command continues a sweep that was stopped or killed. If a run diverges, the sweep continues with the next.
    """

    file: Annotated[PathText, Flag("FILE", position=True)] = Field(
        kw_only=False, description="A YAML file: base, settings, grid, or random with num_runs, and repeats."
    )
    out: Annotated[MaybePath, Flag("DIR")] = Field(
        default=NONE, description="Where the runs go. Default: runs/<name of the file>."
    )
    max_time: Annotated[Digits, Flag("TIME")] = Field(
        default=NONE, description="Train each run for a time such as 90s or 5m, instead of a number of steps."
    )
    jobs: Few = Field(
        default=1,
        description="Train N runs at once, each with its share of the cores, or with a GPU of its own. Default: 1.",
    )
    dry_run: Switch = Field(
        default=False, description="Check every run and list them, but train none and write nothing."
    )

    def find(self, host: Host) -> tuple[Sweep, Path, list[Point]]:
        """Return the sweep of `file`, its directory and its runs; UsageError if the file or the directory is wrong."""
        if (launched := rank_environment(os.environ)) is not None:
            raise UsageError("gpt sweep", f"it starts its own processes, so start it without {launched.launcher}")
        plan = read_sweep(self.file, self.max_time)
        if any(reads_stdin(config.data) for config in plan.configs):
            sentence = "many runs cannot read stdin, so save the text to a file and name that file"
            raise UsageError(f"{self.file}: data.source", sentence)
        if not all(config.train.trains_all for config in plan.configs):
            sentence = "a sweep trains new models, so train.rank and train.freeze must be null"
            raise UsageError(str(self.file), sentence)
        require_installed(sorted({name for config in plan.configs for name in config.train.log_to}))
        directory = RUNS / self.file.stem if self.out is None else self.out
        require_same(directory, plan)
        both = enumerate(zip(plan.points, plan.configs, strict=True))
        points = [Point(directory / _name(number, texts), texts, config) for number, (texts, config) in both]
        return plan, directory, points


def require_same(directory: Path, plan: Sweep) -> None:
    """Raise UsageError if `directory` has files but not the sweep `plan`, CheckpointError for a damaged record."""
    record, before = directory / SWEEP, None
    if not record.exists():
        if directory.is_dir() and (others := sorted(p.name for p in directory.iterdir() if not p.name.startswith("."))):
            sentence = f"it contains {visible(others[0])}, which no sweep wrote; name an empty or a new directory"
            raise UsageError(shown(directory), sentence, hint=f"‹out={directory}-sweep›")
        require_no_file(directory)
        return
    with contextlib.suppress(ValueError, RecursionError):
        before = json.loads(read_bytes(record, CheckpointError, most=_MOST))
    if not isinstance(before, dict):
        raise CheckpointError(shown(record), "this is not the record of a sweep", hint="name another ‹out›")
    base: dict[str, dict[str, Any]] = {}
    for name in [name for name in before if name.startswith("base.")]:
        section, _, key = name.removeprefix("base.").partition(".")
        base.setdefault(section, {})[key] = before.pop(name)
    before |= dotted_keys(without_retired(base), "base.")  # an earlier version may have begun this sweep
    changed, hint = list[UsageError](), f"undo the change, or begin another sweep: ‹out={directory}-2›"
    for key in dict.fromkeys([*before, *plan.record]):
        if (was := before.get(key)) != (now := plan.record.get(key)):
            sentence = f"{key} was {_or_nothing(was)} in this sweep and is {_or_nothing(now)} now"
            changed.append(UsageError(shown(plan.path), sentence, hint=hint))
    if changed:
        raise together(changed)


def _or_nothing(value: Any) -> str:
    return "not set" if value is None else visible(as_yaml(value))


def _name(number: int, settings: Mapping[str, Any]) -> str:
    """Return the name of the directory of run `number`, such as 003-learning_rate-0.001."""
    words = [f"{key.partition('.')[2]}-{as_yaml(value)}" for key, value in settings.items()]
    short = re.sub(r"[^\w.+-]+", "-", "-".join(words))[:_NAME_LENGTH]
    return f"{number:03}-{short.strip('-')}"
