"""What `gpt bench` does before it loads torch: it reads the config."""

from __future__ import annotations

import contextlib

from gpt_cli.cli.importing import importing_torch
from gpt_cli.cli.terminal import Console
from gpt_cli.config import Config
from gpt_cli.config.reading import read_config
from gpt_cli.errors import EnvironmentFailure, UsageError
from gpt_cli.machine.sharing import chosen_by_user, read_usage, sharing
from gpt_cli.ranks.launch import require_fitting


def bench(
    *,
    config: str | None,
    attention: bool,
    busy: int | None,
    processes: int | None,
    settings: list[str] | None,
    rounds: int,
    tokens: int,
    device: str | None,
    threads: int | None,
    json: bool,
    quiet: bool,
) -> None:
    """Print timings as they are ready, or with `json` all of them at the end."""
    given = [("--attention", attention), ("--busy", busy is not None), ("--processes", processes is not None)]
    first, *more = [flag for flag, is_given in given if is_given] or [""]
    if more:
        raise UsageError(more[0], f"{more[0]} and {first} cannot be combined; leave one of them out")
    console = Console(quiet)
    config = config or ("multi-head" if attention else "small")
    asked = read_config(config, settings or (), {"train.threads": ("--threads", threads)})
    if processes is not None:
        asked = _shared_among(processes, asked, device)
    if busy is not None:
        if (variable := chosen_by_user()) is not None:
            sentence = "it fixes how threads wait, and --busy compares two ways; unset it"
            raise UsageError(variable, sentence, hint=f"env -u {variable} gpt bench --busy {busy}")
        if read_usage() is None:
            raise EnvironmentFailure("--busy", "this system does not report what other programs use, as Linux does")
    # beside busy programs the comparison itself says how threads wait, and processes each watch the machine
    with sharing(console.notice) if busy is None and processes is None else contextlib.nullcontext():
        with importing_torch():
            from gpt_cli.cli.work.benching import bench_and_show  # only now torch
        bench_and_show(
            asked,
            config,
            console,
            attention=attention,
            busy=busy,
            processes=processes,
            rounds=rounds,
            tokens=tokens,
            device=device,
            json=json,
        )


def _shared_among(num_processes: int, asked: Config, device: str | None) -> Config:
    """The config, with a micro-batch for each process where it has none; raises UsageError where they cannot share."""
    wanted = device or asked.train.device
    if wanted not in ("auto", "cpu"):
        raise UsageError("--processes", f"it measures processes on the processor, not on {wanted}")
    if asked.train.micro_batch_size is None and asked.train.batch_size % num_processes == 0:
        asked = asked.changed(train={"micro_batch_size": asked.train.batch_size // num_processes})
    require_fitting(num_processes, asked)
    return asked
