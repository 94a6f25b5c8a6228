"""A whole training from Python: `gpt_cli.train`, and what it shares with the command line."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from pathlib import Path

from gpt_cli.callbacks import Counting, Notify, Stop, uncounted
from gpt_cli.checkpoints.lock import sole_trainer
from gpt_cli.checkpoints.run_files import RunFiles
from gpt_cli.config import Config
from gpt_cli.loggers.following import Followers
from gpt_cli.machine.memory import reuse_memory
from gpt_cli.machine.sharing import Sharing, sharing
from gpt_cli.ranks.ranks import ALONE, Ranks
from gpt_cli.training.initial import Initial
from gpt_cli.training.loop import train as train_run
from gpt_cli.training.preparing import prepare
from gpt_cli.training.reports import Finished, Report
from gpt_cli.training.request import Request, read_request


def start(
    request: Request,
    shared: Sharing,
    ranks: Ranks = ALONE,
    *,
    notice: Notify,
    warn: Notify,
    counting: Counting = uncounted,
    stop: Stop = lambda: None,
    save_asked: Callable[[], bool] = lambda: False,
) -> Generator[Report, None, None]:
    """Prepare and train; the caller holds the lock of the run directory, which is written after the first report.

    Of a run with nothing left to train, the only report is Finished.

    `notice` also receives a line as soon as other programs keep the machine busy.
    """
    reuse_memory()
    found = prepare(request, notice=notice, warn=warn, counting=counting, ranks=ranks)
    if isinstance(found, Finished):
        yield found
        return
    run, prepared = found
    loggers = prepared.config.train.log_to if ranks.is_first else []
    # to this process the processes of a compiler and of loggers, and other ranks, are other programs
    own = prepared.config.train.compile == "on" or ranks.size > 1 or bool(loggers)
    remark = shared.remark if not own else lambda _: None
    remark(notice)
    yield prepared
    run.open_directory()
    if request.initial is not None and run.saved is None:
        run.save()  # so that a run that is stopped before its first checkpoint does not continue from random weights
    if loggers:
        notice(f"logging to {', '.join(loggers)} in {RunFiles(request.directory).logs}")
    followers = Followers(loggers, RunFiles(request.directory), notice=notice, warn=warn)
    with followers:
        for report in train_run(run, stop, counting, save_asked):
            remark(notice)
            followers.remark()
            if isinstance(report, Finished):
                followers.close()
            yield report


def train(
    config: str | Path | Config | None,
    *,
    data: str | Sequence[str] | None,
    out: str | Path | None,
    settings: Sequence[str],
    resume: bool,
    overwrite: bool,
    begin: Callable[[], Initial] | None,
    notice: Notify,
    warn: Notify,
) -> Generator[Report, None, None]:
    """See `gpt_cli.train`."""
    flags = {"data.source": ("data", data if data is None or isinstance(data, str) else list(data))}
    request = read_request(config, out, settings, flags, resume=resume, overwrite=overwrite, begin=begin)
    with sharing() as shared, sole_trainer(request.directory, warn) as require_held:
        yield from start(request, shared, notice=notice, warn=warn, stop=require_held)
