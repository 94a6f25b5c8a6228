"""Plan `gpt train` before torch is loaded: read the request, and start or join several processes."""

import os
import signal
from collections.abc import Sequence
from dataclasses import replace

from gpt_cli.checkpoints.run_paths import RunFiles
from gpt_cli.cli.console import Console
from gpt_cli.common.host import ignored
from gpt_cli.common.machine.memory import importing_torch
from gpt_cli.common.machine.signals import dropped
from gpt_cli.distributed.environment import LAUNCHER, RankEnvironment, rank_environment, sweep_of
from gpt_cli.distributed.failure_detector import Launcher
from gpt_cli.distributed.launch import launch, require_fitting
from gpt_cli.errors import UsageError
from gpt_cli.text.sources import reads_stdin
from gpt_cli.tools.exchange.request import read_model_directory
from gpt_cli.training.request import Plan, TrainRequest


@dropped(signal.SIGUSR1)  # until there is something to save
def drive(request: TrainRequest, console: Console, *, json: bool, words: Sequence[str]) -> int:
    """Train here or in several processes that run `gpt` with `words`; return the exit code (128 + n after signal n)."""
    processes, rank_env = request.processes, rank_environment(os.environ)
    several = rank_env is not None or processes not in (None, 1)
    # torchrun starts failed processes again with the same words
    if rank_env is not None and rank_env.num_restarts > 0:
        request = request.model_copy(update={"resume": True, "overwrite": False})

    def plan() -> Plan:
        # only the first process prints notices
        speaks = rank_env.rank == 0 if rank_env is not None else not several
        host = replace(console.host(), read_foreign=read_model_directory)
        result = request.find(host if speaks else replace(host, notice=ignored))
        _require_processes(result, rank_env, processes)
        return result

    if request.dry_run and rank_env is not None and rank_env.rank > 0:
        return 0  # the first process prints the config
    sweep = sweep_of(os.environ) if rank_env is None else None
    if sweep is not None:
        del os.environ[LAUNCHER]
        Launcher(sweep).watch()
    if rank_env is not None and not request.dry_run:
        with importing_torch():
            from gpt_cli.cli.train_worker import train_together
        return train_together(rank_env, plan, console, json=json)
    training_plan = replace(plan(), of_sweep=sweep is not None)
    if request.dry_run:
        with importing_torch():
            from gpt_cli.cli.train_output import announce
            from gpt_cli.training.setup import dry_run
        result = dry_run(training_plan, console.host(), several=several)
        if result.prepared is not None:
            announce(result.prepared, console)
        console.show(result, json=json)
        return 0
    if processes is not None and processes > 1:
        return launch(words, processes, training_plan.config, RunFiles(training_plan.directory).intact)
    # after the plan, so that a mistake in it is reported before torch is loaded
    with importing_torch():
        from gpt_cli.cli.train_worker import train_and_show
    return train_and_show(training_plan, console, json=json)


def _require_processes(plan: Plan, rank_env: RankEnvironment | None, processes: int | None) -> None:
    """Raise UsageError if the processes of --processes, or of a launcher (torchrun), cannot share the training."""
    if processes is not None and rank_env is not None and rank_env.launcher != "gpt":
        sentence = f"{rank_env.launcher} has started {rank_env.size} processes already, so leave it out"
        raise UsageError("--processes", sentence)
    size = rank_env.size if rank_env is not None else processes or 1
    if size == 1 or plan.chooses:  # with several processes, only a dry run may choose a config
        return
    where = "--processes" if rank_env is None or rank_env.launcher == "gpt" else f"the processes of {rank_env.launcher}"
    require_fitting(size, plan.config, where)
    if reads_stdin(plan.config.data):
        sentence = "only one process can read stdin, so save the text to a file and name that file"
        raise UsageError("--data", sentence)
    if ":" in plan.config.train.device:
        kind = plan.config.train.device.partition(":")[0]
        sentence = f"{plan.config.train.device} is one GPU, but each process needs its own GPU; use {kind}"
        raise UsageError("train.device", sentence)
