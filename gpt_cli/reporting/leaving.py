"""The picture of its losses that `gpt train` leaves in a run. Whatever happens to it, the training has ended well."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gpt_cli.checkpoints.run_files import RunFiles
from gpt_cli.files import write_durably


def leave_picture(directory: Path, warn: Callable[[str], object]) -> None:
    """Draw the losses of a run that has ended; `warn` receives a line where that fails.

    Of a run that has logged nothing there is no picture, nor of one that another process trains again already.
    """
    try:
        from gpt_cli.reporting.picture import draw_losses
        from gpt_cli.reporting.record import read_record

        record = read_record(directory)
        if record.state != "training" and len(record.metrics["step"]):
            write_durably(RunFiles(directory).loss_picture, [draw_losses(record)])
    except Exception as error:  # all is saved, and no picture is worth an exit code
        warn(f"the picture of the losses could not be made: {error}")
