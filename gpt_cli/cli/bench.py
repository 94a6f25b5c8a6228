"""`gpt bench`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpt_cli import api
from gpt_cli.cli.commands import Command
from gpt_cli.cli.terminal import Console, table
from gpt_cli.errors import counted

if TYPE_CHECKING:
    from gpt_cli.measuring.bench import Bench, Timing


def show(found: Bench, console: Console) -> None:
    """Print the limits of the machine, and a table each for training and sampling."""
    machine = f"{found.processor}, {found.device}, {counted(found.threads, 'thread')}, torch {found.torch}"
    rates = ", ".join(f"{dtype} {flops / 1e9:,.0f} GFLOP/s" for dtype, flops in found.roof.flops.items())
    tokens = f"{found.tokens_per_step:,} tokens a step"
    console.result(
        f"{machine}, {counted(found.rounds, 'round')}\n"
        f"roof: {rates}, reading {found.roof.bytes_read / 1e9:,.1f} GB/s\n\n"
        f"training {found.config}, {tokens}; the roof is products\n{_timings(found.training)}\n\n"
        f"sampling {found.config}, {found.tokens} tokens after 8; the roof is reading the weights\n"
        f"{_timings(found.sampling)}"
    )


def _timings(timings: Sequence[Timing]) -> str:
    rows = [("implementation", "dtype", "seconds", "tokens/s", "ratio", "of roof")]
    for found in timings:
        figures = f"{found.seconds:.3f}", f"{found.tokens_per_second:,.1f}", f"{found.ratio:.2f}"
        rows.append((found.form, found.dtype, *figures, f"{found.share_of_roof:.0%}"))
    return table(rows)


command = Command(api.bench, show, "gpt bench --config tiny --json")
