"""What `gpt train` does: a training that listens to signals and reports on the terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import nullcontext

import torch

from gpt_cli.checkpoints.lock import sole_trainer
from gpt_cli.checkpoints.run_files import RunFiles
from gpt_cli.cli.signals import Signals, listening
from gpt_cli.cli.terminal import Console, Mute, hurried_stdout
from gpt_cli.cli.work.showing import announce, conclude, conclude_before, show_progress
from gpt_cli.errors import DivergedError
from gpt_cli.machine.sharing import Sharing
from gpt_cli.ranks.ranks import ALONE, Ranks
from gpt_cli.reporting.leaving import leave_picture
from gpt_cli.training.reports import Finished, Prepared
from gpt_cli.training.request import Request
from gpt_cli.training.starting import start


def train_and_show(
    request: Request,
    shared: Sharing,
    *,
    json: bool,
    quiet: bool,
    ranks: Ranks = ALONE,
    may_speak: Callable[[int], bool] = lambda _: True,
    part: Callable[[], object] = lambda: None,
) -> int:
    """Train, and print what happens, if this is the first rank; returns the exit code.

    `may_speak` says whether this process may tell the user why it leaves at once, with an exit code; `part` is called
    when it needs the other ranks no more.
    """
    console = Console(quiet) if ranks.is_first else Mute()
    with contextlib.ExitStack() as stack:
        stack.callback(part)
        advice = f"; resume: {RunFiles(request.directory).resume_command}"
        signals = Signals(before_leaving=stack.close, advice=advice, may_speak=may_speak)
        # signals stay caught until everything is printed, because they may arrive again
        with listening(signals):
            alone = sole_trainer(request.directory, console.warn) if ranks.is_first else nullcontext(lambda: None)
            require_held = stack.enter_context(alone)

            def stop() -> int | None:
                require_held()
                return signals.stop()

            reports = start(
                request,
                shared,
                ranks,
                notice=console.notice,
                warn=console.warn,
                counting=console.counting,
                stop=stop,
                save_asked=signals.save_asked,
            )
            prepared = next(reports)
            if isinstance(prepared, Finished):
                stack.close()
                conclude_before(prepared, console, as_json=json)
                return 0
            assert isinstance(prepared, Prepared)
            announce(prepared, console)
            if ranks.size == 1 and prepared.config.train.device.startswith("cuda"):
                _remark_on_gpus(console)
            signals.saving = True
            try:
                finished = show_progress(reports, prepared, console)
            except DivergedError:
                stack.close()
                if ranks.is_first:
                    leave_picture(request.directory, console.warn)
                raise
            stack.close()
            signals.saved = True
            with nullcontext() if finished.signal is None else hurried_stdout():
                conclude(finished, prepared, console, as_json=json)
            if ranks.is_first:
                leave_picture(request.directory, console.warn)
    return 0 if finished.signal is None else 128 + finished.signal


def _remark_on_gpus(console: Console) -> None:
    """Say how to use the GPUs that a training by one process leaves idle."""
    if (count := torch.cuda.device_count()) > 1:
        together = 1 << count.bit_length() - 1  # the largest power of two
        console.notice(f"this machine has {count} GPUs, of which this uses one; --processes {together} uses {together}")
