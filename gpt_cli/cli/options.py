"""Flags that several commands share, and how their values are read."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from gpt_cli.errors import shown


def whole_number(low: int, high: int = 2**63 - 1) -> Callable[[object], int]:
    """A reader of whole numbers from low to high."""

    def read(value: object) -> int:
        text = str(value)  # typer hands over the default as it is
        if not text.removeprefix("-").isdecimal() or len(text) > 20 or not low <= int(text) <= high:
            limit = f"from {low}" if high == 2**63 - 1 else f"from {low} to {high}"
            raise typer.BadParameter(f"{shown(text)} is not allowed; use a whole number {limit}")
        return int(text)

    read.__name__ = "N"
    return read


def number(low: float, high: float = float("inf"), *, above: bool = False) -> Callable[[object], float]:
    """A reader of finite numbers from low (or above it) to high."""

    def read(value: object) -> float:
        try:
            found = float(str(value))
        except ValueError:
            found = float("nan")
        if not low <= found <= high or abs(found) == float("inf") or (above and found == low):
            limit = f"{'above' if above else 'from'} {low:g}" + (f" to {high:g}" if high < float("inf") else "")
            raise typer.BadParameter(f"{shown(value)} is not allowed; use a number {limit}")
        return found

    read.__name__ = "X"
    return read


def one_of(*words: str) -> Callable[[str], str]:
    """A reader of one of some words."""

    def read(text: str) -> str:
        if text not in words:
            raise typer.BadParameter(f"{shown(text)} is not allowed; use {' | '.join(words)}")
        return text

    read.__name__ = "WORD"
    return read


def device_name(value: object) -> str:
    """A reader of device names; whether the device is there is found later."""
    if not re.fullmatch(DEVICE_PATTERN, str(value)):
        raise typer.BadParameter(f"{shown(value)} is not allowed; use auto | cpu | cuda | cuda:N")
    return str(value)


device_name.__name__ = "NAME"


def _set_debug(context: typer.Context, value: bool) -> bool:
    context.find_root().obj["debug"] |= value
    return value


DEVICE_PATTERN = r"auto|cpu|cuda(:\d{1,3})?"  # that of train.device
Config = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="A YAML file, or the name of a shipped config: small, tiny, multi-head, grouped-query, latent, "
        "shakespeare, shakespeare-cpu, smoke.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one setting, e.g. model.d_model=256. Repeatable."),
]
Run = Annotated[
    Path | None,
    typer.Option(
        "--run",
        metavar="PATH",
        help="A run directory or one checkpoint file. Default: the newest run under runs/.",
    ),
]
Checkpoint = Annotated[
    str | None,
    typer.Option(
        "--checkpoint", metavar="WHICH", help="best, last or a step of a run directory. Default: the best intact one."
    ),
]
Prompt = Annotated[str | None, typer.Option("--prompt", metavar="TEXT", help="The prompt; - reads it from stdin.")]
PromptFile = Annotated[
    Path | None, typer.Option("--prompt-file", metavar="FILE", help="Read the prompt from a UTF-8 file.")
]
Device = Annotated[
    str | None, typer.Option("--device", metavar="NAME", parser=device_name, help="auto, cpu, cuda or cuda:N.")
]
Dtype = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        metavar="NAME",
        parser=one_of("auto", "float32", "bfloat16"),
        help="auto, float32 or bfloat16.",
    ),
]
Quantize = Annotated[
    str | None,
    typer.Option(
        "--quantize", metavar="NAME", parser=one_of("int8"), help="int8: weights of 8 bits, products in bfloat16."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object, the last line of stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress and no notices.")]
Debug = Annotated[
    bool, typer.Option("--debug", callback=_set_debug, help="Show a traceback when something goes wrong.")
]
