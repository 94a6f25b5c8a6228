"""The four kinds of training that a request may ask for, each without flags that it cannot have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gpt_cli.config import Config
from gpt_cli.training.init_from import Initial


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A config before anything is chosen for this machine, and the directory of the run."""

    config: Config
    directory: Path
    of_sweep: bool = False  # whether a sweep tries settings, which may be far from the usual ones


@dataclass(frozen=True, kw_only=True)
class NewRun(Plan):
    """Train new weights from step 0."""

    overwrite: bool = False  # whether it may replace the run in its directory
    shipped: Config | None = None  # the shipped config that its config is made from


class AutoRun(NewRun):
    """Train new weights from step 0; the config has some settings, and `auto_config` chooses the rest."""


@dataclass(frozen=True, kw_only=True)
class FineTuning(NewRun):
    """Train the weights of another model from step 0."""

    initial: Initial


@dataclass(frozen=True, kw_only=True)
class Resume(Plan):
    """Continue the run in the directory."""

    start: NewRun  # what to train where the directory has no checkpoint yet
    by_run_config: bool  # whether the config is that of the run, which must then exist
