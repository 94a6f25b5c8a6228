"""What `gpt train` does: a training that listens to signals and reports on the terminal."""

from __future__ import annotations

import contextlib

from gpt_cli.checkpoints.lock import sole_trainer
from gpt_cli.checkpoints.run_files import RunFiles
from gpt_cli.cli.signals import Signals, listening
from gpt_cli.cli.terminal import Console, abandon_stdout
from gpt_cli.cli.work.showing import announce, conclude, show_progress
from gpt_cli.machine.sharing import Sharing
from gpt_cli.training.reports import Prepared
from gpt_cli.training.request import Request
from gpt_cli.training.starting import start


def train_and_show(request: Request, shared: Sharing, *, json: bool, quiet: bool) -> int:
    """Train, and print what happens; returns the exit code."""
    console = Console(quiet)
    with contextlib.ExitStack() as stack:
        advice = f"; resume: {RunFiles(request.directory).resume_command}"
        signals = Signals(before_leaving=stack.close, advice=advice)
        # signals stay caught until everything is printed, because they may arrive again
        with listening(signals):
            require_held = stack.enter_context(sole_trainer(request.directory, console.warn))

            def stop() -> int | None:
                require_held()
                return signals.stop()

            reports = start(
                request,
                shared,
                notice=console.notice,
                warn=console.warn,
                counting=console.counting,
                stop=stop,
                save_asked=signals.save_asked,
            )
            prepared = next(reports)
            assert isinstance(prepared, Prepared)
            announce(prepared, console)
            signals.saving = True
            finished = show_progress(reports, prepared, console)
            stack.close()
            try:
                conclude(finished, prepared, console, as_json=json)
            except OSError:
                # the sender of the signal may have closed stdout as well, as a closing terminal does
                if finished.signal is None:
                    raise
                abandon_stdout()
    return 0 if finished.signal is None else 128 + finished.signal
