"""What `gpt train` does where its process is one of many: it meets the others, and one of all speaks to the user."""

from __future__ import annotations

from collections.abc import Callable

import torch

from gpt_cli.checkpoints.run_files import RunFiles
from gpt_cli.cli.work.training import train_and_show
from gpt_cli.errors import EnvironmentFailure, GptError, counted, exit_code_of
from gpt_cli.machine.sharing import sharing
from gpt_cli.ranks.board import LeftToAnother
from gpt_cli.ranks.group import Group, LostProcess
from gpt_cli.ranks.meeting import Meeting
from gpt_cli.ranks.place import Place
from gpt_cli.training.request import Request


def train_together(place: Place, read: Callable[[Place], Request], *, json: bool, quiet: bool) -> int:
    """Train what `read` returns as one of many processes; returns the exit code.

    What it raises is for the user; where another process has told the user why all end, this one returns its code.
    """
    request, failure = None, None
    try:
        request = read(place)
    except GptError as error:  # which the others must hear of
        failure = error
    directory = None if request is None else request.directory
    try:
        meeting = Meeting(place, directory, RunFiles(directory).intact if directory else _nothing)
    except EnvironmentFailure as error:
        if place.rank == 0 and not isinstance(error, LostProcess):  # of which the launcher knows
            raise failure or error from None
        return error.exit_code
    with meeting, sharing() as shared:
        try:
            if failure is not None:
                raise failure
            assert request is not None
            _choose_gpu(request, place)
            group = Group(place.rank, place.size, place.local_rank, meeting, place.local_size)
            return train_and_show(
                request, shared, json=json, quiet=quiet, ranks=group, may_speak=meeting.board.claim, part=meeting.part
            )
        except LeftToAnother as left:
            return left.exit_code
        except Exception as error:
            exit_code = exit_code_of(error)
            if isinstance(error, LostProcess) and place.launcher == "gpt":
                return exit_code  # the launcher knows which one it was
            if not meeting.board.claim(exit_code):
                return exit_code
            raise


def _nothing() -> tuple[str, None]:
    return "nothing was saved", None


def _choose_gpu(request: Request, place: Place) -> None:
    """Take this process's own GPU, where GPUs are asked for or found; raises EnvironmentFailure for too few."""
    wanted = request.config.train.device
    if wanted == "cpu" or not torch.cuda.is_available():
        return  # a missing device is refused with the rest
    count = torch.cuda.device_count()
    if count < place.local_size and (count > 1 or place.launcher == "gpt"):
        sentence = (
            f"{place.local_size} processes of this machine need a GPU each, but torch finds {counted(count, 'GPU')}"
        )
        raise EnvironmentFailure("device", sentence, hint=f"--processes {count}, or --device cpu")
    # srun may show each process only its own GPU; whether they are different is found when all meet
    torch.cuda.set_device(place.local_rank if count > 1 else 0)
    torch.cuda.init()
