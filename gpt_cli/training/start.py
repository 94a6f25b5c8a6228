"""Read what a training starts from: a config, a text, and weights (random, of another model, or of a checkpoint)."""

import itertools
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from gpt_cli.checkpoints.checkpoint import Checkpoint, read_checkpoint
from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.checkpoints.run_list import require_nothing_lost, runs_below
from gpt_cli.checkpoints.training_text import is_imported, located, valid_config
from gpt_cli.common.host import Host, Notify
from gpt_cli.config import Config
from gpt_cli.distributed.collectives import Ranks
from gpt_cli.errors import CheckpointError, DataError, UsageError, shown, visible
from gpt_cli.evaluation.nll import byte_scale
from gpt_cli.text.encode import EncodedText, encode_parts
from gpt_cli.text.load import SourceCorpus, read_data, split_of
from gpt_cli.text.sources import STDIN, require_there, source_names
from gpt_cli.text.tokenizers import Tokenizer
from gpt_cli.training.advice.rates import text_name
from gpt_cli.training.auto_config.auto_config import choose_config
from gpt_cli.training.auto_config.choice import Choice
from gpt_cli.training.events import Finished
from gpt_cli.training.init_from import Initial
from gpt_cli.training.request import Plan, require_run
from gpt_cli.training.resume import config_to_resume, ended_before, is_best_of_run, is_missing, other_text, text_problem

_FEWEST_NAMES, _LONGEST_NAME = 20, 40  # lines of a list, and characters of a line


@dataclass(frozen=True)
class Start:
    """The start of a training: a config, and a checkpoint of the run, another model, or neither (random weights)."""

    config: Config
    checkpoint: Checkpoint | None = None  # of the run that continues
    initial: Initial | None = None
    run_config: Config | None = None  # the config.yaml of a run that is to continue
    choice: Choice | None = None  # of a config that gpt chose
    corpus: SourceCorpus | None = None  # which was read for the choice
    foreign_best: bool = False  # whether best.safetensors of a run that continues belongs to another run


def start_of(plan: Plan, directory: RunDirectory, host: Host) -> Start | Finished:
    """Return the config and weights from which a plan's training starts, or Finished if nothing is left to train.

    Raises UsageError if the directory has another run, CheckpointError if the run cannot continue.
    """
    if directory.exists() and not (plan.resume or plan.overwrite):
        raise _other_run(directory, plan.config)
    if plan.by_run_config:  # the run may have been removed since its config was read
        require_run(directory)
    require_nothing_lost(directory)
    if not plan.resume:
        return _new(plan, host)
    run_config = valid_config(directory)
    checkpoint = directory.newest(host.warn)
    if checkpoint is None:
        host.notice(f"no checkpoint in {directory.path} yet; starting at step 0")
        return replace(_new(plan, host), run_config=run_config)
    config = config_to_resume(checkpoint.config, plan.config, run_config, directory)
    if ended := ended_before(directory, checkpoint.progress, config, run_config):
        return ended
    progress = checkpoint.progress
    if progress.step == config.train.max_steps and progress.observed and progress.evaluated_step != progress.step:
        # this has become the last step, which is always logged, evaluated and saved
        checkpoint = replace(checkpoint, progress=replace(progress, observed_step=progress.step - 1))
    checkpoint, foreign_best = _knowing_its_best(directory, checkpoint, host.warn)
    return Start(config, checkpoint=checkpoint, run_config=run_config, foreign_best=foreign_best)


def _new(plan: Plan, host: Host) -> Start:
    """Return the start of a run at step 0; read the text and choose the config if the plan asks for it."""
    if not plan.chooses:
        return Start(plan.config, initial=plan.initial)
    choice, corpus = choose_config(plan.config, host)
    return Start(choice.config, choice=choice, corpus=corpus)


def _other_run(directory: RunDirectory, config: Config) -> UsageError:
    """Return the error for a new run in a directory that already contains a run."""
    for name in source_names(config.data.source, config.data.validation_source):
        require_there(name)  # a mistyped text is the first mistake to mend
    if is_imported(directory):  # which has nothing to continue
        sentence = "there is a run already; replace it with ‹overwrite=True›, or name another ‹out›"
        return UsageError(shown(directory.path), sentence)
    sentence = "there is a run already; continue it with ‹resume=True› or replace it with ‹overwrite=True›"
    run_config, source, hint = valid_config(directory), config.data.source, directory.resume_command
    if run_config is not None and "source" in config.data.model_fields_set and run_config.data.source != source:
        name = Path(source_names(source)[0]).stem.strip("*?-") or "run"
        names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
        paths = (directory.path.parent / each for each in names)
        free = next(path for path in paths if not os.path.exists(path))  # False for too long a name
        hint = f"‹out={visible(free)}› trains another run beside it"
    return UsageError(shown(directory.path), sentence, hint=hint)


def _knowing_its_best(directory: RunDirectory, continued: Checkpoint, warn: Notify) -> tuple[Checkpoint, bool]:
    """Return `continued`, without its best_loss if best.safetensors does not have the best weights of the run.

    Without best_loss, the next evaluation counts as the best. `warn` receives the reason if the file is unusable. Also
    returns whether the file is of another run.
    """
    best, forgetful = directory.best, replace(continued, progress=replace(continued.progress, best_loss=None))
    if not best.exists():
        return forgetful, False
    try:
        best_checkpoint = read_checkpoint(best)
    except CheckpointError as error:
        warn(f"{error.where}: {error.sentence}; gpt train continues without it")
        return forgetful, False
    if not is_best_of_run(best_checkpoint, continued.config, continued.progress):
        renamed = f"gpt train keeps it as {directory.foreign_best.name} and continues without it"
        warn(f"{shown(best)}: this is not the best checkpoint of this run; {renamed}")
        return forgetful, True
    # a best checkpoint of a later step is removed, and the resumed steps write it again
    return (continued if best_checkpoint.progress.step <= continued.progress.step else forgetful), False


def load_text(
    plan: Plan, start: Start, config: Config, tokenizer: Tokenizer | None, host: Host, ranks: Ranks
) -> tuple[SourceCorpus, EncodedText, float]:
    """Read and encode the text; the tokenizer is the resumed run's, else `tokenizer`, else a new one as configured.

    The third result is the `byte_scale` of the validation text. On each machine, the first rank reads first. Of a
    sweep, only the first run reports notices about the text. Raises CheckpointError if the ids of a resumed run differ
    from the ids that the run was trained on.
    """
    directory = RunDirectory(plan.directory)
    checkpoint, run_data, data = start.checkpoint, start.run_config and start.run_config.data, config.data
    tokenizer = tokenizer if checkpoint is None else checkpoint.tokenizer
    if run_data and (run_data.source, run_data.validation_source) == (data.source, data.validation_source):
        # no run stores the paths that this finds, because they name folders of this machine
        config = config.model_copy(update={"data": located(data, directory.path, host.notice)})
    with ranks.local_rank_zero_first():
        corpus = start.corpus or _read(start, config, directory, host)
        if not (plan.of_sweep and len(runs_below(directory.path.parent)) > 1):  # the first run of a sweep has said it
            _remark_on(corpus, config, host, continued=checkpoint is not None)
        try:
            training, validation = split_of(corpus, config.data, host)
            text = encode_parts(training, validation, config, tokenizer, host)
        except DataError as error:
            if checkpoint is None:
                raise
            raise text_problem(error, checkpoint, config, directory) from error
        if checkpoint is not None and text.digest != checkpoint.progress.data_digest:
            raise other_text(checkpoint, config, directory)
        return corpus, text, byte_scale(validation, text.validation_ids, text.tokenizer)


def _read(start: Start, config: Config, directory: RunDirectory, host: Host) -> SourceCorpus:
    """Read the text of a training; if the text of an earlier run is missing, the error's hint says how to name it."""
    try:
        return read_data(config.data, host)
    except DataError as error:
        if start.checkpoint is not None and (is_missing(error) or STDIN in source_names(config.data.source)):
            raise text_problem(error, start.checkpoint, config, directory) from error
        if start.initial is not None and start.initial.names_text and is_missing(error):
            where = start.initial.where
            error.hint = f"{where} was trained on this text; name its new path, or another text, with ‹data=NEW/PATH›"
        raise


def _remark_on(corpus: SourceCorpus, config: Config, host: Host, *, continued: bool) -> None:
    host.notices(corpus.notices())
    if corpus.num_documents == 1 and not continued and not corpus.how.conversations:  # it would be another text now
        one = f"{text_name(config.data)} counts as one document"
        if (separator := config.data.separator) is not None:
            host.notice(f"{one}; data.separator {separator!r} separates nothing in it")
        elif guess := _separator_in(next(corpus.blocks()).text):
            several = "if it holds several (poems, letters, names), say what separates them"
            host.notice(f"{one}; {several}: ‹data.separator={repr(guess)[1:-1]}›")


def _separator_in(text: str) -> str | None:
    """Guess the separator of documents: a blank line, or a line end if all lines are as short as names; else None."""
    end = "\r\n" if "\r\n" in text else "\n" if "\n" in text else "\r"
    if 2 * end in text.strip():
        return 2 * end
    lines = text.split(end)[:1000]
    of_names = len(lines) >= _FEWEST_NAMES and all(len(line) <= _LONGEST_NAME for line in lines)
    return end if of_names and not re.search(r"[][{}<>,;|=\t]", "".join(lines)) else None
