"""The flags that several commands share, and the readers of flag values."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from gpt_cli.checkpoints.run_files import named_run
from gpt_cli.cli import completing
from gpt_cli.errors import shown


def whole_number(low: int, high: int | None = None) -> Callable[[object], int]:
    """A reader of whole numbers from low to high, whose docstring says so; None allows what 64 bits hold."""

    limit = f"from {low}" if high is None else f"from {low} to {high:,}"

    def read(value: object) -> int:
        text = str(value)  # typer hands over the default as it is
        most = 2**63 - 1 if high is None else high
        if not text.removeprefix("-").isdecimal() or len(text) > 20 or not low <= int(text) <= most:
            raise typer.BadParameter(f"{shown(text)} is not allowed; use a whole number {limit}")
        return int(text)

    return read


def number(low: float) -> Callable[[object], float]:
    """A reader of finite numbers from low on, whose docstring says so."""

    limit = f"from {low:g}"

    def read(value: object) -> float:
        try:
            found = float(str(value))
        except ValueError:
            found = float("nan")
        if not low <= found < float("inf"):
            raise typer.BadParameter(f"{shown(value)} is not allowed; use a number {limit}")
        return found

    return read


def one_of(*words: str) -> dict[str, Any]:
    """What typer needs of a flag that takes one of these words: its reader, and what a shell offers for it."""

    def read(text: str) -> str:
        if text not in words:
            raise typer.BadParameter(f"{shown(text)} is not allowed; use {' | '.join(words)}")
        return text

    return {"parser": read, "autocompletion": completing.words(*words)}


def path(text: object) -> Path:
    """A reader of paths: `~` is the home directory also where the shell leaves it alone, as in quotes."""
    return Path(source(str(text)))


def run_path(text: object) -> Path:
    """A reader of what names a run."""
    return named_run(source(str(text)))


def source(text: str) -> str:
    """A reader of what may be a path, such as a SOURCE of text; `~` as in `path`."""
    if not text.strip():
        raise typer.BadParameter("the name is empty; name a file or a directory")
    return os.path.expanduser(text)


def device_name(value: object) -> str:
    """A reader of device names; only the command finds out whether this machine has the device."""
    if not re.fullmatch(DEVICE_PATTERN, str(value)):
        raise typer.BadParameter(f"{shown(value)} is not allowed; use auto | cpu | cuda | cuda:N")
    return str(value)


def _set_debug(context: typer.Context, value: bool) -> bool:
    context.find_root().obj["debug"] |= value
    return value


DEVICE_PATTERN = r"auto|cpu|cuda(:\d{1,3})?"  # that of train.device
MAX_SEED = 2**63 - 1
DTYPES = ("auto", "float32", "bfloat16")
TEMPERATURE = number(0)
WhichRun = Annotated[
    Path | None,
    typer.Option(
        "--run",
        metavar="PATH",
        parser=run_path,
        autocompletion=completing.runs,
        help="A run, by its path or by its name under runs/, or one checkpoint file. Default: the newest run under "
        "runs/.",
    ),
]
WhichCheckpoint = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        metavar="WHICH",
        autocompletion=completing.words("best", "last"),
        help="best, last or a step of a run. Default: the best intact checkpoint.",
    ),
]
Prompt = Annotated[str | None, typer.Option("--prompt", metavar="TEXT", help="The prompt; - reads it from stdin.")]
PromptFile = Annotated[
    Path | None,
    typer.Option("--prompt-file", metavar="FILE", parser=path, help="Read the prompt from a UTF-8 file."),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NAME",
        parser=device_name,
        autocompletion=completing.words("auto", "cpu", "cuda"),
        help="auto, cpu, cuda or cuda:N. Default: auto; in gpt train, that of the config.",
    ),
]
Dtype = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        metavar="NAME",
        **one_of(*DTYPES),
        help="auto, float32 or bfloat16. Default: float32; in gpt train, that of the config.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        parser=whole_number(1, 1024),
        help="Processor threads to compute with. Default: as many as torch chooses.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object, the last line of stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print no progress and no notices.")]
Debug = Annotated[
    bool,
    typer.Option(
        "--debug", callback=_set_debug, expose_value=False, help="Print a traceback when something goes wrong."
    ),
]
