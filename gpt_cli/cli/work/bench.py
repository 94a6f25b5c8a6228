"""What `gpt bench` does before it loads torch: it reads the config."""

from __future__ import annotations

import contextlib

from gpt_cli.cli.importing import importing_torch
from gpt_cli.cli.terminal import Console
from gpt_cli.config.reading import read_config
from gpt_cli.errors import EnvironmentFailure, UsageError
from gpt_cli.machine.sharing import chosen_by_user, read_usage, sharing


def bench(
    *,
    config: str | None,
    attention: bool,
    busy: int | None,
    settings: list[str] | None,
    rounds: int,
    tokens: int,
    device: str | None,
    threads: int | None,
    json: bool,
    quiet: bool,
) -> None:
    """Print timings as they are ready, or with `json` all of them at the end."""
    if attention and busy is not None:
        raise UsageError("--busy", "it contradicts --attention, so use one of them")
    console = Console(quiet)
    config = config or ("multi-head" if attention else "small")
    asked = read_config(config, settings or (), {"train.threads": ("--threads", threads)})
    if busy is not None:
        if (variable := chosen_by_user()) is not None:
            sentence = "it fixes how threads wait, and --busy compares two ways; unset it"
            raise UsageError(variable, sentence, hint=f"env -u {variable} gpt bench --busy {busy}")
        if read_usage() is None:
            raise EnvironmentFailure("--busy", "this system does not report what other programs use, as Linux does")
    # beside busy programs the comparison itself says how threads wait
    with sharing(console.notice) if busy is None else contextlib.nullcontext():
        with importing_torch():
            from gpt_cli.cli.work.benching import bench_and_show  # only now torch
        bench_and_show(
            asked,
            config,
            console,
            attention=attention,
            busy=busy,
            rounds=rounds,
            tokens=tokens,
            device=device,
            json=json,
        )
