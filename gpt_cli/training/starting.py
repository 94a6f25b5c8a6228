"""A whole training from Python: `gpt_cli.train`, and what it shares with the command line."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from pathlib import Path

from gpt_cli.checkpoints.lock import sole_trainer
from gpt_cli.config import Config
from gpt_cli.machine import reuse_memory
from gpt_cli.training.loop import train as train_run
from gpt_cli.training.preparing import Counting, Say, prepare, uncounted
from gpt_cli.training.reports import Report
from gpt_cli.training.request import Request, read_request
from gpt_cli.training.stopping import Stop


def start(
    request: Request,
    *,
    notice: Say,
    warn: Say,
    counting: Counting = uncounted,
    stop: Stop = lambda: None,
    save_asked: Callable[[], bool] = lambda: False,
) -> Generator[Report, None, None]:
    """Prepare and train; the caller holds the lock of the run directory, which is written after the first report."""
    reuse_memory()
    run, prepared = prepare(request, notice=notice, warn=warn, counting=counting)
    yield prepared
    run.open_directory()
    num_tokens = min(prepared.num_validation_tokens - 1, run.config.data.validation_tokens)
    with counting("closing evaluation", num_tokens, "tokens") as count:
        yield from train_run(run, stop, count, save_asked)


def train(
    config: str | Path | Config | None,
    *,
    data: str | Sequence[str] | None,
    out: str | Path | None,
    settings: Sequence[str],
    resume: bool,
    overwrite: bool,
    notice: Say,
    warn: Say,
) -> Generator[Report, None, None]:
    """See `gpt_cli.train`."""
    flags = {"data.source": ("data", data if data is None or isinstance(data, str) else list(data))}
    request = read_request(config, out, settings, flags, resume=resume, overwrite=overwrite)
    with sole_trainer(request.directory, warn) as require_held:

        def stop() -> None:
            require_held()

        yield from start(request, notice=notice, warn=warn, stop=stop)
