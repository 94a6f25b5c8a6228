"""The four kinds of training that a request may ask for, each with only the settings that it can have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gpt_cli.config import Config
from gpt_cli.training.init_from import Initial


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A training as requested: its run directory, and its config before any setting is chosen for this machine."""

    config: Config
    directory: Path
    of_sweep: bool = False  # whether a sweep tries settings, which may be far from the usual ones


@dataclass(frozen=True, kw_only=True)
class NewRun(Plan):
    """The plan to train new weights from step 0."""

    overwrite: bool = False  # whether it may replace the run in its directory
    shipped: Config | None = None  # the shipped config that its config is made from


class AutoRun(NewRun):
    """The plan to train new weights from step 0, with a config whose missing settings `auto_config` chooses."""


@dataclass(frozen=True, kw_only=True)
class FineTuning(NewRun):
    """The plan to train the weights of another model from step 0."""

    initial: Initial


@dataclass(frozen=True, kw_only=True)
class Resume(Plan):
    """The plan to continue the run in `directory`."""

    start: NewRun  # what to train where the directory has no checkpoint yet
    by_run_config: bool  # whether the config is that of the run, which must then exist
