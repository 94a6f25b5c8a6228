"""Run one process of `gpt train`: handle signals, connect to the other processes, and print events."""

import contextlib
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from threading import Thread

import torch

from gpt_cli.checkpoints.run_paths import RunFiles
from gpt_cli.cli.console import Console, hurried_stdout
from gpt_cli.cli.signals import Signals, listening
from gpt_cli.cli.train_output import announce, conclude, show_progress, show_result
from gpt_cli.common.files import write_durably
from gpt_cli.common.machine.devices import accelerator
from gpt_cli.common.machine.failures import exit_code_of
from gpt_cli.distributed.collectives import ALONE, ProcessGroup, Ranks
from gpt_cli.distributed.environment import RankEnvironment
from gpt_cli.distributed.failure_detector import LeftToAnother, LostProcess
from gpt_cli.distributed.rendezvous import Rendezvous
from gpt_cli.errors import DivergedError, EnvironmentFailure, GptError, counted
from gpt_cli.tools.loggers.processes import Followers
from gpt_cli.training.events import Finished
from gpt_cli.training.loop import train, training_environment
from gpt_cli.training.request import Plan
from gpt_cli.training.setup import setup


def train_together(rank_env: RankEnvironment, read: Callable[[], Plan], console: Console, *, json: bool) -> int:
    """Train the plan that `read` returns, as one rank (process) of several; return the exit code.

    Prints the result as JSON if `json`. Raises an error only if this rank must report the error to the user; if another
    process reports it, returns the exit code.
    """
    plan, failure = None, None
    try:
        plan = read()
    except GptError as error:  # which the other ranks must learn of
        failure = error
    directory = None if plan is None else plan.directory
    intact = RunFiles(directory).intact if directory else lambda: ("nothing was saved", None)
    try:
        meeting = Rendezvous(rank_env, directory, intact)
    except EnvironmentFailure as error:
        if rank_env.rank == 0 and not isinstance(error, LostProcess):  # which the launcher reports
            raise failure or error from None
        return error.exit_code
    claim = meeting.heartbeats.claim
    with meeting:
        try:
            if failure is not None:
                raise failure
            assert plan is not None
            _choose_gpu(plan, rank_env)
            group = ProcessGroup(meeting)
            return train_and_show(plan, console, json=json, ranks=group, may_speak=claim, part=meeting.part)
        except LeftToAnother as left:
            return left.exit_code
        except Exception as error:
            exit_code = exit_code_of(error)
            launcher_names_it = isinstance(error, LostProcess) and rank_env.launcher == "gpt"
            if launcher_names_it or not claim(exit_code):
                return exit_code
            raise


def _choose_gpu(plan: Plan, rank_env: RankEnvironment) -> None:
    """Select the GPU of this rank, unless it trains on a CPU; raise EnvironmentFailure if there are too few GPUs."""
    if plan.config.train.device == "cpu" or accelerator() is None:
        return  # a missing device is refused with the rest
    count, needed = torch.accelerator.device_count(), rank_env.local_size
    if count < needed and (count > 1 or rank_env.launcher == "gpt"):
        sentence = f"{needed} processes of this machine need a GPU each, but torch finds {counted(count, 'GPU')}"
        flag = "--processes" if rank_env.launcher == "gpt" else "--nproc-per-node"
        raise EnvironmentFailure("device", sentence, hint=f"{flag} {1 << count.bit_length() - 1}, or --device cpu")
    # a launcher may show each process only its own GPU; whether they are different is found when all meet
    torch.accelerator.set_device_index(rank_env.local_rank if count > 1 else 0)


def train_and_show(
    plan: Plan,
    console: Console,
    *,
    json: bool,
    ranks: Ranks = ALONE,
    may_speak: Callable[[int], bool] = lambda _: True,
    part: Callable[[], object] = lambda: None,
) -> int:
    """Train a plan; the first rank prints its events, and its result (as JSON if `json`). Return the exit code.

    `may_speak` takes an exit code, and returns whether this process may print a line when a signal ends it at once;
    `part` is called when this process no longer needs the other ranks.
    """
    console = console if ranks.is_first else Console(quiet=True, mute=True)
    with contextlib.ExitStack() as stack:
        stack.callback(part)
        advice = f"; resume: {RunFiles(plan.directory).resume_command}"
        signals = Signals(before_leaving=stack.close, advice=advice, may_speak=may_speak)
        # signals stay caught until everything is printed, because they may arrive again
        with listening(signals):
            host = replace(
                console.host(), stop=lambda: signals.received, save_requested=signals.save_requested, loggers=Followers
            )
            host = stack.enter_context(training_environment(plan.directory, host, ranks))
            outcome = setup(plan, host, ranks)
            if isinstance(outcome, Finished):
                stack.close()
                show_result(outcome, console, as_json=json)
                return 0
            run, prepared = outcome
            announce(prepared, console, of_sweep=plan.of_sweep)
            if ranks.is_first and run.state.device.type != "cpu":  # which computes meanwhile
                Thread(target=import_module, args=["gpt_cli.tools.reports.curves_picture"], daemon=True).start()
            signals.saving = True
            run.open_directory()
            events = train(run, host)
            try:
                finished, curve = show_progress(events, prepared, console)
            except DivergedError:
                stack.close()
                if ranks.is_first:
                    leave_picture(plan.directory, console.warn)
                raise
            signals.saved = True
            try:
                with nullcontext() if finished.signal is None else hurried_stdout():
                    conclude(finished, prepared, curve, console, as_json=json)
            finally:  # also if stdout is full or its reader is gone
                events.close()  # waits for the loggers
                stack.close()
                if ranks.is_first:
                    leave_picture(plan.directory, console.warn)
    return 0 if finished.signal is None else 128 + finished.signal


def leave_picture(directory: Path, warn: Callable[[str], object]) -> None:
    """Draw the losses of a run as a picture in its `directory`; `warn` receives a line if that fails."""
    try:
        from gpt_cli.tools.reports.curves_picture import draw_losses

        if picture := draw_losses(directory):
            write_durably(RunFiles(directory).loss_picture, [picture])
    except Exception as error:  # everything is saved, so a missing picture does not change the exit code
        warn(f"the picture of the losses could not be made: {error}")
