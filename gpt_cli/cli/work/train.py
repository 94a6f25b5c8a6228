"""What `gpt train` does before torch is loaded: it reads what the user asks for, and where the processes come from."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import typer

from gpt_cli.checkpoints.run_files import RunFiles
from gpt_cli.cli.importing import importing_torch
from gpt_cli.cli.terminal import Console
from gpt_cli.errors import UsageError
from gpt_cli.exchange.gpt2 import read_initial
from gpt_cli.machine.sharing import sharing
from gpt_cli.ranks.launch import launch, require_fitting
from gpt_cli.ranks.place import LAUNCHER, Place, place_of, sweep_of
from gpt_cli.ranks.watching import Launcher
from gpt_cli.training.request import Request, read_request


def train(
    *,
    context: typer.Context,
    config: str | None,
    data: list[str] | None,
    out: Path | None,
    settings: list[str] | None,
    device: str | None,
    dtype: str | None,
    compile: str | None,  # noqa: A002
    threads: int | None,
    seed: str | None,
    max_steps: str | None,
    max_time: str | None,
    watch: str | None,
    processes: int | None,
    resume: bool,
    overwrite: bool,
    init_from: Path | None,
    json: bool,
    quiet: bool,
) -> int:
    """Train as the flags ask; returns the exit code, which for a stop by a signal is 128 and its number."""
    settings = settings or []
    flags: dict[str, tuple[str, Any]] = {
        "data.source": ("--data", None if data is None else data[0] if len(data) == 1 else data),
        "train.device": ("--device", device),
        "train.dtype": ("--dtype", dtype),
        "train.compile": ("--compile", compile),
        "train.threads": ("--threads", threads),
        "train.seed": ("--seed", seed),
        "train.max_steps": ("--max-steps", max_steps),
        "train.max_time": ("--max-time", max_time),
        "inspect.prompt": ("--watch", watch),
    }

    def read(place: Place | None) -> Request:
        if max_steps is not None and max_time is not None:
            raise UsageError("--max-time", "--max-time and --max-steps cannot be combined; leave one of them out")
        # a config or the run may have a time
        given = settings if max_steps is None else [*settings, "train.max_time=null"]
        # torchrun, which starts failed processes again, cannot change their words
        again = place is not None and place.num_restarts > 0
        # the first process speaks for all
        speaks = place.rank == 0 if place is not None else processes in (None, 1)
        begin = None if init_from is None else partial(read_initial, init_from, Console(quiet or not speaks).notice)
        request = read_request(
            config, out, given, flags, resume=resume or again, overwrite=overwrite and not again, begin=begin
        )
        _require_processes(request, place, processes)
        return request

    place = place_of(os.environ)
    if place is None and (sweep := sweep_of(os.environ)) is not None:
        del os.environ[LAUNCHER]
        Launcher(sweep).watch()
    if place is not None:
        with importing_torch():
            from gpt_cli.cli.work.together import train_together
        return train_together(place, read, json=json, quiet=quiet)
    request = read(None)
    if processes is not None and processes > 1:
        words = context.find_root().obj["words"]
        return launch(words, processes, request.config, RunFiles(request.directory).intact)
    with sharing() as shared:
        # after the request, so that a mistake in it is reported before torch is loaded
        with importing_torch():
            from gpt_cli.cli.work.training import train_and_show
        return train_and_show(request, shared, json=json, quiet=quiet)


def _require_processes(request: Request, place: Place | None, processes: int | None) -> None:
    """Raise UsageError where so many processes cannot train together what is asked for."""
    if processes is not None and place is not None and place.launcher != "gpt":
        sentence = f"{place.launcher} has started {place.size} processes already, so leave it out"
        raise UsageError("--processes", sentence)
    size = place.size if place is not None else processes or 1
    if size == 1:
        return
    where = "--processes" if place is None or place.launcher == "gpt" else f"the processes of {place.launcher}"
    require_fitting(size, request.config, where)
    sources = request.config.data.source
    if "-" in ([sources] if isinstance(sources, str) else sources):
        sentence = "only one process can read stdin, so save the text to a file and name that"
        raise UsageError("--data", sentence)
    if ":" in request.config.train.device:
        sentence = f"{request.config.train.device} is one GPU, but each process takes one of its own; use cuda"
        raise UsageError("train.device", sentence)
