"""Prepare a training, or show its config: choose settings, read text and weights, build the state, estimate costs."""

import sys
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.common.host import Host, Notify, ignored
from gpt_cli.common.machine.cpu_contention import sharing
from gpt_cli.common.machine.devices import (
    CPU,
    choose_compile,
    choose_device,
    choose_dtype,
    restored_threads,
    starting,
    use_threads,
)
from gpt_cli.common.machine.memory import available_memory, require_available, reuse_memory
from gpt_cli.common.results import WIDTH, Result
from gpt_cli.config import Config
from gpt_cli.config.load import dotted_keys, write_config
from gpt_cli.distributed.collectives import ALONE, Ranks
from gpt_cli.errors import UsageError
from gpt_cli.text.encode import EncodedText
from gpt_cli.text.load import SourceCorpus
from gpt_cli.text.sft_examples import Examples
from gpt_cli.training.auto_config.auto_config import choose_config
from gpt_cli.training.auto_config.choice import Choice
from gpt_cli.training.events import Finished, Prepared
from gpt_cli.training.init_from import InitialWeights, begin_with, load_initial_weights
from gpt_cli.training.intervals import is_finished
from gpt_cli.training.lr_schedule import warmup_steps
from gpt_cli.training.memory_checks import fitting_device, require_memory, require_space
from gpt_cli.training.prompts import prompt_of_validation, sample_prompt, watched_ids
from gpt_cli.training.request import Plan
from gpt_cli.training.resume import environment_changes
from gpt_cli.training.run import Run
from gpt_cli.training.start import Start, load_text, start_of
from gpt_cli.training.state import TrainingState
from gpt_cli.training.step_time import COMPILE_FROM_SECONDS, time_steps
from gpt_cli.training.taught_targets import teaching_bytes
from gpt_cli.training.teachers import teach


def setup(plan: Plan, host: Host, ranks: Ranks = ALONE) -> tuple[Run, Prepared] | Finished:
    """Prepare a training without writing to its directory; return the run, ready to train, and its Prepared event.

    Returns Finished instead if the run has nothing left to train. Raises every kind of GptError.
    """
    directory = RunDirectory(plan.directory)
    free = available_memory()  # measured before the checkpoint is read, whose memory the training reuses
    start = start_of(plan, directory, host)
    if isinstance(start, Finished):
        return start
    is_new = start.checkpoint is None
    # the configs that it was made from; for a run that begins again, the first start reported the unused settings
    sources = (plan.initial and plan.initial.config, plan.shipped, start.run_config if plan.by_run_config else None)
    config = resolve(start.config, host.notice if is_new else ignored, *sources)
    use_threads(config.train.threads)
    if start.checkpoint is not None and (changes := environment_changes(start.checkpoint, config)):
        host.warn(f"not bit-exact from here on: {', '.join(changes)}")
    require_memory(config, free, ranks, may_change=is_new and start.initial is None)
    initial_weights = tokenizer = None
    if start.initial:
        if config.train.teacher_share is not None:
            sentence = "a model with a teacher must begin with random weights, not with those of another model"
            raise UsageError("train.teacher_share", sentence, hint="‹train.teacher_share=null›")
        initial_weights = load_initial_weights(start.initial)
        tokenizer = None if start.initial.new_tokenizer else initial_weights.tokenizer
    # each of several processes has its own device, which another thread would not select
    with starting(torch.device(config.train.device) if ranks.size == 1 else CPU):
        corpus, text, scale = load_text(plan, start, config, tokenizer, host, ranks)
        state = _state(start, config, text, initial_weights, host, ranks)
    if config.train.teacher_share is not None and not is_finished(state.progress, config):
        need = ranks.local_size * teaching_bytes(text.tokenizer.vocab_size, state.progress.num_training_tokens)
        hint = "‹train.teacher_share=null›" if is_new else "continue on a machine with more memory"
        require_available("train.teacher_share", "the targets of teachers", need, free, hint=hint)
        if teachers := state.progress.teachers:
            teach(state, teachers, directory, host)
    # ranks that compile and ranks that do not would wait for each other at different points
    must_compile = ranks.size > 1 or (is_new and start.config.train.compile == "on")
    with fitting_device(config, ranks.size):
        step_seconds = time_steps(state, host, may_compile=is_new, must_compile=must_compile)
    # only now, so that a run without a further step keeps its checkpoint and record of kernels, even if one failed
    saved = None if is_new else state.progress
    run = Run(state, directory, text.tokenizer, text.validation_ids, saved, start.foreign_best, scale)
    ranks.on_rank_zero(lambda: require_space(run))
    return run, _prepared(run, corpus, start.choice, step_seconds)


@dataclass(frozen=True)
class Chosen(Result):
    """The result of a dry run: the config, the reasons for settings that gpt chose, and estimated costs (`prepared`).

    `prepared` is None if the run has nothing left to train, or if several processes would train it.
    """

    config: Config
    reasons: tuple[str, ...] = ()
    prepared: Prepared | None = field(default=None, repr=False)

    def as_dict(self) -> dict[str, Any]:
        return {"config": self.config.model_dump(mode="json"), "reasons": list(self.reasons)}

    def as_text(self, width: int = WIDTH) -> str:
        return write_config(self.config).rstrip()


def dry_run(plan: Plan, host: Host, *, several: bool = False) -> Chosen:
    """Prepare a training but take no step; return its config and costs. Raises the errors of `setup`.

    `device`, `dtype` and `compile` stay as requested, because the training may run on another machine. With `several`
    processes, only the config is chosen, because one process cannot know the memory of each. An old run in the
    directory of a new run is no error.
    """
    reuse_memory()
    with restored_threads(), sharing():
        if several and plan.chooses:
            choice, _ = choose_config(plan.config, host)
            return Chosen(choice.config, choice.reasons)
        if several:
            return Chosen(plan.config)
        outcome = setup(replace(plan, overwrite=True), host)
    if isinstance(outcome, Finished):
        host.notice(outcome.before or "")
        return Chosen(plan.config)
    settings, (_, prepared) = plan.config.train, outcome
    unresolved = {key: getattr(settings, key) for key in ("device", "dtype", "compile")}
    return Chosen(prepared.config.changed(train=unresolved), prepared.reasons, prepared)


def resolve(config: Config, notice: Notify, *sources: Config | None) -> Config:
    """Return the config with `device`, `dtype` and `compile` chosen; `compile` may stay auto until a step is timed.

    `notice` receives a line on each setting without effect, unless its value is the default or comes from one of the
    configs `sources`, from which `config` was made. Raises EnvironmentFailure if the device does not exist.
    """
    device = choose_device(config.train.device)
    if (shortened := warmup_steps(config.train)) < config.train.warmup_steps:
        notice(f"warm-up of {config.train.warmup_steps} steps shortened to {shortened}, half of the run")
    for line in config.unused(*sources):
        notice(line)
    requested, seconds = config.train.compile, config.train.max_time
    compiled = choose_compile(requested, device, long=seconds is None or seconds >= COMPILE_FROM_SECONDS)
    undecided = requested == "auto" and compiled == "on" and config.train.max_steps is not None
    compiled = "auto" if undecided else compiled
    dtype = choose_dtype(config.train.dtype, device, config.model.d_model, notice)
    return config.changed(train={"device": str(device), "dtype": dtype, "compile": compiled})


def _state(
    start: Start, config: Config, text: EncodedText, initial_weights: InitialWeights | None, host: Host, ranks: Ranks
) -> TrainingState:
    """Return the state to train from, after all ranks have agreed on config, step, text and tokenizer."""
    if isinstance(text.ids, Examples):  # what the settings meant for this text is stored with the run
        config = config.changed(data={"loss": config.data.loss or "answers", "template": text.ids.template.name})
    watched_ids(config, text.tokenizer)  # refuses a text that cannot be watched
    sample_prompt(config, text.tokenizer, text.validation_ids)  # refuses one that cannot be continued
    step = start.checkpoint.progress.step if start.checkpoint else 0
    settings = {key: str(value) for key, value in dotted_keys(config.model_dump(mode="json")).items()}
    others = {"step": str(step), "text": text.digest, "tokenizer": text.tokenizer.digest}
    ranks.meet(settings | others, choose_device(config.train.device))
    with host.working("building the model"), fitting_device(config, ranks.size):
        if start.checkpoint is not None:
            return TrainingState.continued(config, text.ids, start.checkpoint, ranks)
        began_from, vocab_size = start.initial and start.initial.name, text.tokenizer.vocab_size
        state = TrainingState.at_the_start(config, text.ids, vocab_size, text.digest, ranks, began_from)
        if initial_weights is not None:
            begin_with(state.model, initial_weights, text.tokenizer, host.notice)
        return state


def _prepared(run: Run, corpus: SourceCorpus, choice: Choice | None, step_seconds: float) -> Prepared:
    config, settings, state = run.config, run.config.train, run.state
    num_closing = sum(end - start for start, end in run.closing_windows)
    # a forward pass is about a third of a step
    closing_seconds = step_seconds / 3 * num_closing / config.tokens_per_step
    seconds = settings.max_time and max(0.0, settings.max_time - run.progress.elapsed)
    steps = sys.maxsize if settings.max_steps is None else settings.max_steps - run.progress.step
    steps = max(0, steps if seconds is None else min(steps, round(seconds / step_seconds)))
    return Prepared(
        directory=run.directory.path,
        config=config,
        step=run.progress.step,
        elapsed=run.progress.elapsed,
        costs=state.costs,
        num_processes=run.ranks.size,
        num_documents=corpus.num_documents,
        num_characters=corpus.num_characters,
        num_training_tokens=len(state.batches.ids),
        num_validation_tokens=len(run.validation_ids),
        vocab_size=run.tokenizer.vocab_size,
        steps_left=steps,
        epochs_left=steps * settings.batch_size / state.batches.windows_per_epoch,
        seconds_left=(seconds or 0.0 if settings.max_steps is None else steps * step_seconds) + closing_seconds,
        closing_seconds=closing_seconds,
        prompt=prompt_of_validation(run.tokenizer, run.validation_ids),
        began_from=run.progress.began_from,
        ends_early=choice is not None and choice.seconds is not None and steps == settings.max_steps,
        reasons=choice.reasons if choice else (),
    )
