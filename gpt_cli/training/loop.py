"""The training loop: generators that train, evaluate and save, yield events, and never print."""

import contextlib
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path

from gpt_cli.checkpoints.lock import sole_trainer
from gpt_cli.common.host import NOBODY, Host, both, drawn
from gpt_cli.common.machine.cpu_contention import sharing
from gpt_cli.common.machine.devices import restored_threads
from gpt_cli.common.machine.memory import returned_memory, reuse_memory
from gpt_cli.config import Config
from gpt_cli.distributed.collectives import ALONE, Ranks
from gpt_cli.errors import DivergedError, EnvironmentFailure
from gpt_cli.evaluation.nll import Observations, Score
from gpt_cli.training.advice.rates import one_digit, rate_of
from gpt_cli.training.cuda_graphs import record_step
from gpt_cli.training.evaluate_and_log import observe
from gpt_cli.training.events import Finished, TrainingEvent, drawing
from gpt_cli.training.interrupts import StopRequested, Watch
from gpt_cli.training.intervals import is_finished, limit_reached, model_ends, step_actions
from gpt_cli.training.memory_checks import fitting_device
from gpt_cli.training.request import Plan
from gpt_cli.training.run import Run
from gpt_cli.training.setup import setup
from gpt_cli.training.step import Diverged, take_step
from gpt_cli.training.teachers import teach
from gpt_cli.training.validation import evaluation_batch_size, validation_score

BAR_SECONDS = 2.0  # work that takes less shows no bar beside that of the steps


@contextlib.contextmanager
def training_environment(directory: Path, host: Host, ranks: Ranks = ALONE) -> Iterator[Host]:
    """Lock the run directory on the first rank; yield a Host that checks the lock and reports other busy programs."""
    lock = sole_trainer(directory, host.warn) if ranks.is_first else nullcontext(lambda: None)
    with restored_threads(), sharing() as shared, lock as require_held:
        reuse_memory()

        def stop() -> int | None:
            require_held()
            return host.stop()

        yield replace(host, stop=stop, remark=lambda: shared.remark(host.notice))


def train_whole(plan: Plan, host: Host, *, progress: bool = False) -> Generator[TrainingEvent, None, None]:
    """Prepare and run a training, with a progress bar if `progress`; yield events; unlock the run before Finished."""
    if progress:
        host = drawn(host, BAR_SECONDS)  # or every evaluation and save would have one beside that of the steps
    with returned_memory(), training_environment(plan.directory, host) as inner:
        outcome = setup(plan, inner)
        if not isinstance(outcome, Finished):
            run, prepared = outcome
            with drawing(prepared) if progress else nullcontext(lambda _: None) as draw:
                yield prepared
                run.open_directory()
                with closing(train(run, inner)) as events:
                    for event in events:
                        draw(event)
                        if isinstance(event, Finished):
                            outcome = event
                        else:
                            yield event
    assert isinstance(outcome, Finished), "a training ends with Finished"
    yield outcome


def train(run: Run, host: Host = NOBODY) -> Generator[TrainingEvent, None, None]:
    """Train a run until max_steps, max_time, patience or a signal ends it; the run directory must be open.

    Nothing runs until the caller iterates over the events. Between micro-batches, batches of an evaluation and sampled
    tokens, the loop calls `host.stop`, which returns the number of a received signal or None. After a signal the loop
    drops unfinished work, saves the state and ends; a resumed run repeats the dropped work. After each step the loop
    calls `host.save_requested` to ask whether to save. `host.counting` opens a progress bar. Raises DivergedError
    before a non-finite loss or gradient reaches a checkpoint, EnvironmentFailure if a file cannot be written.
    """
    state, watch = run.state, Watch(host.stop, run.ranks)
    signal, closing_evaluation = None, None
    with _followed(run, host) as remark, _failures_explained(run):
        state.start_clock()
        while signal is None and not is_finished(run.progress, run.config):
            try:
                watch()
                if run.progress.observed:
                    if model_ends(run.progress, run.config.train):
                        _begin_next_model(run, watch, host)
                    take_step(state, watch)
                yield from observe(run, watch, host)
                if run.progress.evaluated_step != run.progress.step:  # an evaluation decides by its own time
                    state.progress = replace(run.progress, elapsed=state.elapsed())
            except StopRequested as stopped:
                signal = stopped.signal
            requested = bool(run.ranks.all_reduce_max(host.save_requested())[0])
            due = requested or signal is not None or step_actions(run.progress, run.config).save
            # right after a second model has begun, the checkpoint of its teacher has this step
            if due and run.progress.step > run.progress.model_step:
                with host.working("saving"):
                    run.finish_writing()
                yield from run.new_events()  # before the next checkpoint removes the oldest
                if run.progress != run.saved:
                    with host.working("saving"):
                        run.save(requested=requested)
            yield from run.new_events()
            remark()
        if signal is None:
            try:
                closing_evaluation = _closing_evaluation(run, watch, host)
            except StopRequested as stopped:  # everything is saved or being written: only this figure is lost
                signal = stopped.signal
        run.finish_writing()
        yield from run.new_events()
        yield _finished(run, closing_evaluation, signal)  # before the loggers end, which may take half a minute


def _begin_next_model(run: Run, watch: Watch, host: Host) -> None:
    """Save the current model and make it the teacher of a new model; if `watch` raises, the state is unchanged."""
    with host.working("saving"):
        run.finish_writing()
        if run.progress != run.saved:
            run.save()
        run.finish_writing()
    teach(run.state, (*run.progress.teachers, run.progress.step), run.directory, host, watch)
    run.state.begin_next_model()
    if run.state.whole_step is not None:
        record_step(run.state, host.warn)


@contextlib.contextmanager
def _followed(run: Run, host: Host) -> Iterator[Callable[[], None]]:
    """Start the run's loggers; yield a function that, called after a step, reports failed loggers or a busy machine."""
    loggers = run.config.train.log_to if run.ranks.is_first else []
    if not loggers or host.loggers is None:
        # this process would count a compiler's processes, other ranks and loggers as other programs
        yield host.remark if run.config.train.compile != "on" and run.ranks.size == 1 else lambda: None
        return
    host.notice(f"logging to {', '.join(loggers)} in {run.directory.logs}")
    with host.loggers(loggers, run.directory, notice=host.notice, warn=host.warn) as followers:
        yield followers.remark


@contextlib.contextmanager
def _failures_explained(run: Run) -> Iterator[None]:
    """Convert errors raised in this context into errors that name the intact checkpoint and flags to try."""
    recorded = run.state.whole_step is not None and run.config.train.graph != "off"
    try:
        with fitting_device(run.config, run.ranks.size, recorded=recorded):
            try:
                yield
            except BaseException:
                with contextlib.suppress(Exception):
                    run.finish_writing()  # the file that a thread is writing
                raise
    except Diverged as diverged:
        hint = f"start again with ‹overwrite=True› and {lower_rates(run.config)}"
        hint += ", or with ‹dtype=float32›" if run.config.train.dtype == "bfloat16" else ""
        if run.ranks.is_first:  # others may diverge elsewhere, so they do not wait for this one
            with contextlib.suppress(EnvironmentFailure):  # the divergence is the error to report
                run.directory.end("diverged", diverged.step)
        sentence = f"{diverged.sentence}; {_what_is_intact(run)}"
        raise DivergedError(f"step {diverged.step:,}", sentence, hint=hint) from diverged
    except EnvironmentFailure as error:
        error.sentence += f"; {_what_is_intact(run)}"
        first = error.hint if run.directory.checkpoints.is_dir() else "put the directory back"
        error.hint = "; then ".join(filter(None, [first, f"continue with {run.directory.resume_command}"]))
        raise


def lower_rates(config: Config) -> str:
    """Return flags that lower the learning rates of a diverged run: to the usual rate or a third of the current one."""
    rate, flags = rate_of(config), list[str]()
    if rate.key != "learning_rate":  # AdamW updates the parameters that Muon does not
        flags.append(f"‹train.learning_rate={one_digit(config.train.learning_rate / 3):g}›")
    return " ".join([*flags, rate.lower])


def _what_is_intact(run: Run) -> str:
    """Return the part of an error message that names the remaining checkpoint of a failed training."""
    if run.saved is None:
        return run.directory.without_checkpoints
    if not run.directory.step_file(run.saved.step).exists():
        return f"the checkpoint of step {run.saved.step:,} is gone with its directory"
    return f"the checkpoint of step {run.saved.step:,} is intact"


def _closing_evaluation(run: Run, watch: Watch, host: Host) -> tuple[Score, float | None, int]:
    """Evaluate the best weights; return the score, the loss's standard error (None: one window), and the best step."""
    with host.working("reading the best weights"):
        model, best_step = run.best_model()
    watch()
    by_window, num_tokens = Observations(), sum(end - start for start, end in run.closing_windows)
    with host.started("closing evaluation", num_tokens, "tokens") as count:
        score = validation_score(
            model,
            run.tokenizer,
            run.validation_ids,
            run.closing_windows,
            batch_size=evaluation_batch_size(model.config.context_length, model.vocab_size, run.state.device),
            dtype=run.config.train.dtype,
            count=both(count, watch),
            by_window=by_window,
            byte_scale=run.byte_scale,
            ranks=run.ranks,
        )
    return score, by_window.standard_error(), best_step


def _finished(run: Run, closing: tuple[Score, float | None, int] | None, signal: int | None) -> Finished:
    """Write the outcome of the run into its directory, and return the Finished event.

    If `closing` is None (after a signal), results of the closing evaluation are None.
    """
    score, loss_error, best_step = closing or (None, None, None)
    settings, progress = run.config.train, run.progress
    num_tokens, seconds = progress.step * run.config.tokens_per_step, progress.seconds
    stopped_by = (limit_reached(progress, settings) or "patience") if signal is None else "signal"
    figures = {
        "tokens": num_tokens,
        "seconds": round(seconds, 3),
        "loss": progress.loss,
        "smoothed_loss": progress.smoothed_loss,
        "validation_loss": score and score.loss,
        "validation_loss_error": loss_error,
        "validation_tokens": score and score.num_tokens,
        "bits_per_byte": score and score.bits_per_byte,
        "tokens_per_second": round(num_tokens / seconds, 1) if seconds else None,
        "parameters": run.state.costs.parameters,
        "device": settings.device,
        "dtype": settings.dtype,
    }
    # without the path of the directory, which may move
    run.ranks.on_rank_zero(lambda: run.directory.end(stopped_by, progress.step, **figures, best_step=best_step))
    summary = {"run": str(run.directory.path), "steps": progress.step, **figures, "stopped_by": stopped_by}
    return Finished(summary, signal, best_step)
