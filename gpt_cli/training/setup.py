"""What comes before the first step: every check, the text, the model, and an estimate of what training will take."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path

from gpt_cli.checkpoints.checkpoint import Checkpoint, read_checkpoint
from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.checkpoints.run_list import find_runs
from gpt_cli.checkpoints.training_text import located, valid_config
from gpt_cli.common.host import Host, Notify, ignored
from gpt_cli.common.machine.devices import choose_device, use_threads
from gpt_cli.common.machine.memory import available_memory
from gpt_cli.common.units import duration
from gpt_cli.config import Config
from gpt_cli.distributed.collectives import ALONE, Ranks
from gpt_cli.errors import (
    CheckpointError,
    DataError,
    UsageError,
    counted,
    shown,
    visible,
)
from gpt_cli.model import GPT
from gpt_cli.model.costs import estimate
from gpt_cli.text.encode import EncodedText, encode_corpus
from gpt_cli.text.load import SourceCorpus, read_data
from gpt_cli.text.missing_source import require_there
from gpt_cli.text.sft_examples import Examples
from gpt_cli.text.sources import STDIN, names_of
from gpt_cli.text.tokenizers import Tokenizer
from gpt_cli.training.advice.rates import name_of
from gpt_cli.training.attention_snapshots import watched_ids
from gpt_cli.training.auto_config.auto_config import chosen
from gpt_cli.training.auto_config.rules import PATIENCE
from gpt_cli.training.events import Finished, Prepared
from gpt_cli.training.init_from import begin_with, given_by
from gpt_cli.training.memory_checks import (
    fitting_device,
    must_shard,
    require_memory,
    require_space,
    resolve,
)
from gpt_cli.training.request import Plan, require_run
from gpt_cli.training.resume import (
    config_to_resume,
    ended_before,
    environment_changes,
    is_missing,
    is_own_best,
    require_same_text,
    text_problem,
)
from gpt_cli.training.run import Run
from gpt_cli.training.sample_prompts import first_prompt, sample_prompt
from gpt_cli.training.state import TrainingState
from gpt_cli.training.step_time import time_steps

_FEWEST_NAMES, _LONGEST_NAME = 20, 40  # lines of a list, and characters of a line
_WHOLE_STEP = 1.2  # the time of a step with its optimizer's, and a share of evaluations and saves, by its gradient's


def prepare(plan: Plan, host: Host, ranks: Ranks = ALONE) -> tuple[Run, Prepared] | Finished:
    """Do everything that comes before the first write: returns a run that is ready to train, and what it will take.

    Of a run that has nothing left to train, it returns how that has ended. On each machine one rank prepares the text
    for all. Raises every kind of GptError.
    """
    directory = RunDirectory(plan.directory)
    _require_no_other_run(directory, plan)
    free = available_memory()  # measured before the checkpoint is read, whose memory the training reuses
    continued = directory.newest(host.warn) if plan.resume else None
    if plan.resume and continued is None:
        host.notice(f"no checkpoint in {directory.path} yet; starting at step 0")
    if continued is not None:
        own = valid_config(directory)
        plan = replace(plan, config=config_to_resume(continued.config, plan.config, own, directory))
        if ended := ended_before(directory, continued.progress, plan.config, own):
            return ended
        continued = _knowing_its_best(directory, continued, host.warn)
    corpus, seconds, reasons = None, None, ()
    if plan.to_choose and continued is None:
        choose_device(plan.config.train.device)  # refuses one that does not exist before it reads a long text
        corpus = _read(plan, plan.config, None, host)
        choice = chosen(plan.config, corpus, host)
        plan, seconds, reasons = replace(plan, config=choice.config), choice.seconds, choice.reasons
    config = _config_to_train(plan, continued, host)
    reading = _where_the_text_is(plan, config, directory, host.notice)
    require_memory(config, free, ranks, may_change=continued is None and plan.initial is None)
    given = None if plan.initial is None or continued is not None else given_by(plan.initial)
    own_tokenizer = plan.initial is not None and plan.initial.own_tokenizer
    tokenizer = None if given is None or own_tokenizer else given.tokenizer
    with ranks.leaders_first():
        corpus = corpus or _read(plan, reading, continued, host)
        if not (plan.of_sweep and len(find_runs(plan.directory.parent)) > 1):  # the first run of a sweep has said it
            _remark_on(corpus, config, host.notice, continued=continued is not None)
        text = _encode(corpus, reading, continued, tokenizer, directory, host)
    if isinstance(text.ids, Examples):  # what the settings meant for this text is stored with the run
        config = config.changed(data={"loss": config.data.loss or "answers", "template": text.ids.template.name})
    watched_ids(config, text.tokenizer)  # refuses a text that cannot be watched
    sample_prompt(config, text.tokenizer, text.validation_ids)  # refuses one that cannot be continued
    ranks.meet(
        {
            "config": config.model_dump_json(),
            "step": str(continued.progress.step if continued else 0),
            "text": text.digest,
            "tokenizer": text.tokenizer.digest,
        },
        choose_device(config.train.device),
    )
    vocab_size = text.tokenizer.vocab_size
    sharded = must_shard(config, vocab_size, free, ranks)
    if sharded and config.train.compile == "on":
        host.notice("training without torch's compiler, because the processes share the weights")
        config = config.changed(train={"compile": "off"})

    def begin(model: GPT) -> None:
        if given is not None:
            begin_with(model, given, text.tokenizer, host.notice)

    with host.working("building the model"), fitting_device(config, ranks.size):
        if continued is None:
            began_from = None if plan.initial is None else plan.initial.name
            state = TrainingState.at_the_start(
                config,
                text.ids,
                vocab_size,
                text.digest,
                ranks,
                begin=begin,
                began_from=began_from,
                sharded=sharded,
            )
        else:
            state = TrainingState.continued(config, text.ids, continued, ranks, sharded=sharded)
    run = Run(state, directory, text.tokenizer, text.validation_ids, saved=state.progress if continued else None)
    # ranks that compile and ranks that do not would wait for each other in different places
    must_compile = ranks.size > 1 or (continued is None and plan.config.train.compile == "on")
    with fitting_device(config, ranks.size):
        step_seconds = time_steps(state, host, may_compile=continued is None and not sharded, must_compile=must_compile)
    if seconds is not None:
        _keep_to(seconds, step_seconds, state, host.notice)
    ranks.on_first(lambda: require_space(run))
    ends_early = seconds is not None and state.config.train.max_time is None
    return run, replace(_prepared(run, corpus, step_seconds), ends_early=ends_early, reasons=reasons)


def _keep_to(seconds: float, step_seconds: float, state: TrainingState, notice: Notify) -> None:
    """Shorten a training whose chosen number of steps may take longer than was asked for, or let the clock end it."""
    steps, needed = state.config.train.max_steps, state.config.train.max_steps * step_seconds * _WHOLE_STEP
    if state.config.train.max_time is not None or needed <= seconds:
        return
    if steps * step_seconds <= seconds:
        fewer = max(1, int(seconds / (step_seconds * _WHOLE_STEP)))
        notice(f"length    {counted(fewer, 'step')}, as {counted(steps, 'step')} may take {duration(needed)} here")
        state.config = state.config.changed(train={"max_steps": fewer})
    else:
        given = "patience" in state.config.train.model_fields_set
        notice(
            f"length    by the clock, as {counted(steps, 'step')} may take {duration(needed)} here instead of "
            + duration(seconds)
            + ("" if given else f", or shorter: {PATIENCE} evaluations in a row without a better loss end it")
        )
        state.config = state.config.changed(train={"max_time": seconds, **({} if given else {"patience": PATIENCE})})


def _require_no_other_run(directory: RunDirectory, plan: Plan) -> None:
    if plan.by_own_config:  # it may have been removed since that was read
        require_run(directory)
    if directory.exists() and not (plan.resume or plan.overwrite):
        for name in [*names_of(plan.config.data.source), *names_of(plan.config.data.validation_source)]:
            require_there(name)  # a mistyped text is the first mistake to mend
        sentence = "there is a run already; continue it with --resume or replace it with --overwrite"
        own, asked = valid_config(directory), plan.config.data.source
        other = own is not None and "source" in plan.config.data.model_fields_set and own.data.source != asked
        hint = f"--out {_free_directory(directory.path, names_of(asked)[0])} trains another run beside it"
        raise UsageError(shown(directory.path), sentence, hint=hint if other else directory.resume_command)
    directory.require_own()


def _free_directory(beside: Path, source: str) -> str:
    """A directory beside a run that does not exist yet, named after a text, quoted for a shell."""
    name = Path(source).stem.strip("*?-") or "run"
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    free = next(path for each in names if not os.path.exists(path := beside.parent / each))  # of a long name false
    return shlex.quote(visible(free))


def _config_to_train(plan: Plan, continued: Checkpoint | None, host: Host) -> Config:
    """The config with everything chosen for this machine, once it is clear that a run may continue with it."""
    # a run that begins again has told of its own settings when it first began
    own = valid_config(RunDirectory(plan.directory)) if plan.by_own_config else None
    sources = (plan.initial and plan.initial.config, plan.shipped, own)
    config = resolve(plan.config, host.notice if continued is None else ignored, *sources)
    use_threads(config.train.threads)
    if continued is not None and (changes := environment_changes(continued, config)):
        host.warn(f"not bit-exact from here on: {', '.join(changes)}")
    return config


def _where_the_text_is(plan: Plan, config: Config, directory: RunDirectory, notice: Notify) -> Config:
    """The config to read the text by: of a run that continues with its own text, with paths that lead there.

    No run keeps these paths, which name folders of this machine.
    """
    own = valid_config(directory) if plan.resume else None
    texts = [(one.data.source, one.data.validation_source) for one in (own, config) if one is not None]
    if own is None or texts[0] != texts[1]:
        return config
    found = located(config.data, directory.path, notice)
    return config.changed(data={"source": found.source, "validation_source": found.validation_source})


def _knowing_its_best(directory: RunDirectory, continued: Checkpoint, warn: Notify) -> Checkpoint:
    """The checkpoint, which forgets the best loss where best.safetensors has other weights; `warn` receives why.

    The next evaluation is then the best, of those whose weights are still there.
    """
    best, forgetful = directory.best, replace(continued, progress=replace(continued.progress, best_loss=None))
    if not best.exists():
        return forgetful
    try:
        found = read_checkpoint(best)
    except CheckpointError as error:
        warn(f"{error.where}: {error.sentence}; gpt train goes on without it")
        return forgetful
    if not is_own_best(found, continued.config, continued.progress):
        warn(
            f"{shown(best)}: this is not the best checkpoint of this run; gpt train keeps it as "
            f"{directory.foreign_best.name} and goes on without it"
        )
        return forgetful
    # a later one is removed, and the same steps make it again
    return continued if found.progress.step <= continued.progress.step else forgetful


def _read(plan: Plan, config: Config, continued: Checkpoint | None, host: Host) -> SourceCorpus:
    """The text of a training; the hint of a DataError says what to do where a run's own text is not there."""
    try:
        return read_data(config.data, host)
    except DataError as error:
        if continued is not None and (is_missing(error) or STDIN in names_of(config.data.source)):
            raise text_problem(error, continued, config, RunDirectory(plan.directory)) from error
        if plan.text_of_initial and plan.initial is not None and is_missing(error):
            where = plan.initial.where
            error.hint = f"{where} was trained on it; name it where it is now, or another text, with --data NEW/PATH"
        raise


def _remark_on(corpus: SourceCorpus, config: Config, notice: Notify, *, continued: bool) -> None:
    for line in corpus.notices():
        notice(line)
    if not continued and (line := corpus.line_ends()):
        notice(line)
    if corpus.num_documents == 1 and not continued and not corpus.how.conversations:  # it would be another text now
        one = f"{name_of(config.data)} counts as one document"
        if (given := config.data.separator) is not None:
            notice(f"{one}; data.separator {given!r} occurs nowhere between two")
        elif separator := _separator_in(next(corpus.blocks()).text):
            several = "if it holds several (poems, letters, names), say what separates them"
            notice(f"{one}; {several}: --set data.separator={separator!r}")


def _separator_in(text: str) -> str | None:
    """What may separate the documents of a text that begins so: blank lines, or the ends of lines like names."""
    end = "\r\n" if "\r\n" in text else "\n" if "\n" in text else "\r"
    if 2 * end in text.strip():
        return 2 * end
    lines = text.split(end)[:1000]
    of_names = len(lines) >= _FEWEST_NAMES and all(len(line) <= _LONGEST_NAME for line in lines)
    return end if of_names and not re.search(r"[][{}<>,;|=\t]", "".join(lines)) else None


def _encode(
    corpus: SourceCorpus,
    config: Config,
    continued: Checkpoint | None,
    tokenizer: Tokenizer | None,
    directory: RunDirectory,
    host: Host,
) -> EncodedText:
    """The ids of the text; raises CheckpointError when they are not those that a run was trained on."""
    if continued is None:
        return encode_corpus(corpus, config, tokenizer, host)
    try:
        text = encode_corpus(corpus, config, continued.tokenizer, host)
    except DataError as error:
        raise text_problem(error, continued, config, directory) from error
    require_same_text(continued, text.digest, config, directory)
    return text


def _prepared(run: Run, corpus: SourceCorpus, step_seconds: float) -> Prepared:
    config, settings, state = run.config, run.config.train, run.state
    vocab_size = run.tokenizer.vocab_size
    num_closing = sum(end - start for start, end in run.closing_windows)
    # a forward pass is about a third of a step
    closing_seconds = step_seconds / 3 * num_closing / config.tokens_per_step
    seconds = settings.max_time and max(0.0, settings.max_time - run.progress.elapsed)
    steps = settings.max_steps - run.progress.step if settings.counts_steps else sys.maxsize
    steps = max(0, steps if seconds is None else min(steps, round(seconds / step_seconds)))
    return Prepared(
        directory=run.directory.path,
        config=config,
        step=run.progress.step,
        elapsed=run.progress.elapsed,
        costs=estimate(
            config.model,
            run.tokenizer.vocab_size,
            micro_batch_size=settings.sequences_at_once,
            dtype=settings.dtype,
            num_lanes=settings.num_lanes,
            device=settings.device,
            num_trained=state.num_trained,
        ),
        num_trained=state.num_trained,
        num_processes=run.ranks.size,
        num_documents=corpus.num_documents,
        num_characters=corpus.num_characters,
        num_training_tokens=len(state.batches.ids),
        num_validation_tokens=len(run.validation_ids),
        vocab_size=vocab_size,
        steps_left=steps,
        epochs_left=steps * settings.batch_size / state.batches.windows_per_epoch,
        seconds_left=(steps * step_seconds if settings.counts_steps else seconds or 0.0) + closing_seconds,
        closing_seconds=closing_seconds,
        prompt=first_prompt(run.tokenizer, run.validation_ids),
        began_from=run.progress.began_from,
    )
