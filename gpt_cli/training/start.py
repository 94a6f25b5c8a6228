"""Choose the start of a training: new weights, the weights of another model, or a checkpoint of the run."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, replace
from pathlib import Path

from gpt_cli.checkpoints.checkpoint import Checkpoint, read_checkpoint
from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.checkpoints.training_text import valid_config
from gpt_cli.common.host import Host, Notify
from gpt_cli.common.machine.devices import choose_device
from gpt_cli.config import Config
from gpt_cli.errors import CheckpointError, UsageError, shown, visible
from gpt_cli.text.load import SourceCorpus, read_data
from gpt_cli.text.sources import require_there, source_names
from gpt_cli.training.auto_config.auto_config import choose_config
from gpt_cli.training.auto_config.rules import Choice
from gpt_cli.training.events import Finished
from gpt_cli.training.init_from import Initial
from gpt_cli.training.request import AutoRun, FineTuning, NewRun, Plan, Resume, require_run
from gpt_cli.training.resume import config_to_resume, ended_before, is_best_of_run


@dataclass(frozen=True)
class Start:
    """The start of a training: a config, and a checkpoint of the run, another model, or neither (random weights)."""

    config: Config
    sources: tuple[Config | None, ...] = ()  # configs that it is made from, whose settings nobody has set here
    checkpoint: Checkpoint | None = None  # of the run that continues
    initial: Initial | None = None
    run_config: Config | None = None  # the config.yaml of a run that is to continue
    choice: Choice | None = None  # of a config that gpt chose
    corpus: SourceCorpus | None = None  # which was read for the choice


def start_of(plan: Plan, directory: RunDirectory, host: Host) -> Start | Finished:
    """Return the start of a plan's training, or Finished if the run has nothing left to train.

    Raises UsageError if the directory has another run, CheckpointError if the run cannot continue.
    """
    if isinstance(plan, NewRun):
        if directory.exists() and not plan.overwrite:
            raise _other_run(directory, plan.config)
        directory.require_no_foreign_files()
        return _new(plan, host)
    assert isinstance(plan, Resume)
    if plan.by_run_config:  # the run may have been removed since its config was read
        require_run(directory)
    directory.require_no_foreign_files()
    run_config = valid_config(directory)
    checkpoint = directory.newest(host.warn)
    if checkpoint is None:
        host.notice(f"no checkpoint in {directory.path} yet; starting at step 0")
        start = _new(plan.start, host)
        # a run that begins again has reported the settings of its config when it first began
        sources = (*start.sources, run_config if plan.by_run_config else None)
        return replace(start, sources=sources, run_config=run_config)
    config = config_to_resume(checkpoint.config, plan.config, run_config, directory)
    if ended := ended_before(directory, checkpoint.progress, config, run_config):
        return ended
    checkpoint = _knowing_its_best(directory, checkpoint, host.warn)
    return Start(config, checkpoint=checkpoint, run_config=run_config)


def _new(plan: NewRun, host: Host) -> Start:
    """Return the start of a run at step 0; for an AutoRun, read the text and choose the config."""
    if isinstance(plan, FineTuning):
        return Start(plan.config, (plan.initial.config, plan.shipped), initial=plan.initial)
    if not isinstance(plan, AutoRun):
        return Start(plan.config, (plan.shipped,))
    choose_device(plan.config.train.device)  # refuses one that does not exist before it reads a long text
    corpus = read_data(plan.config.data, host)
    choice = choose_config(plan.config, corpus, host)
    return Start(choice.config, choice=choice, corpus=corpus)


def _other_run(directory: RunDirectory, config: Config) -> UsageError:
    """Return the error for a new run in a directory that already contains a run."""
    for name in [*source_names(config.data.source), *source_names(config.data.validation_source)]:
        require_there(name)  # a mistyped text is the first mistake to mend
    sentence = "there is a run already; continue it with ‹resume=True› or replace it with ‹overwrite=True›"
    run_config, source = valid_config(directory), config.data.source
    other = run_config is not None and "source" in config.data.model_fields_set and run_config.data.source != source
    hint = f"‹out={_free_directory(directory.path, source_names(source)[0])}› trains another run beside it"
    return UsageError(shown(directory.path), sentence, hint=hint if other else directory.resume_command)


def _free_directory(beside: Path, source: str) -> str:
    """Return an unused path beside the directory `beside`, named after the text `source`."""
    name = Path(source).stem.strip("*?-") or "run"
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    free = next(path for each in names if not os.path.exists(path := beside.parent / each))  # of a long name false
    return visible(free)


def _knowing_its_best(directory: RunDirectory, continued: Checkpoint, warn: Notify) -> Checkpoint:
    """Return `continued`, without its best_loss if best.safetensors does not have the best weights of the run.

    Without best_loss, the next evaluation counts as the best. `warn` receives the reason if the file is unusable.
    """
    best, forgetful = directory.best, replace(continued, progress=replace(continued.progress, best_loss=None))
    if not best.exists():
        return forgetful
    try:
        best_checkpoint = read_checkpoint(best)
    except CheckpointError as error:
        warn(f"{error.where}: {error.sentence}; gpt train goes on without it")
        return forgetful
    if not is_best_of_run(best_checkpoint, continued.config, continued.progress):
        warn(
            f"{shown(best)}: this is not the best checkpoint of this run; gpt train keeps it as "
            f"{directory.foreign_best.name} and goes on without it"
        )
        return forgetful
    # a later one is removed, and the same steps make it again
    return continued if best_checkpoint.progress.step <= continued.progress.step else forgetful
