"""What `gpt train` does before torch is loaded: it reads what the user asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpt_cli.cli.importing import importing_torch
from gpt_cli.errors import UsageError
from gpt_cli.machine.sharing import sharing
from gpt_cli.training.request import read_request


def train(
    *,
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
    resume: bool,
    overwrite: bool,
    json: bool,
    quiet: bool,
) -> int:
    """Train as the flags ask; returns the exit code, which for a stop by a signal is 128 and its number."""
    settings = settings or []
    if max_steps is not None:
        if max_time is not None:
            raise UsageError("--max-time", "it contradicts --max-steps, so use one of them")
        settings = [*settings, "train.max_time=null"]  # which a config or the run may have
    flags: dict[str, tuple[str, Any]] = {
        "data.source": ("--data", None if data is None else data[0] if len(data) == 1 else data),
        "train.device": ("--device", device),
        "train.dtype": ("--dtype", dtype),
        "train.compile": ("--compile", compile),
        "train.threads": ("--threads", threads),
        "train.seed": ("--seed", seed),
        "train.max_steps": ("--max-steps", max_steps),
        "train.max_time": ("--max-time", max_time),
    }
    request = read_request(config, out, settings, flags, resume=resume, overwrite=overwrite)

    with sharing() as shared:
        # after the request, so that a mistake in it is reported before torch is loaded
        with importing_torch():
            from gpt_cli.cli.work.training import train_and_show
        return train_and_show(request, shared, json=json, quiet=quiet)
