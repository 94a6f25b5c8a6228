"""How far other orders of sums on one CPU part: what the bounds of `gpt bench --check-device` rest on."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from gpt_cli.measuring.device_checks import checks
from gpt_cli.measuring.side import Side, Skipped
from gpt_cli.model import GPT

_FIRST_OF_RUN = 5  # the group from which on a trained model is read
# of torch, of MKL and of oneDNN
_INSTRUCTIONS = ("ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA")
ORDERS: dict[str, dict[str, str]] = {
    "as it is": {},
    "1 thread": {"OMP_NUM_THREADS": "1"},
    "heads one by one": {"GPT_ONE_BY_ONE": "1"},
    "AVX2": dict(zip(_INSTRUCTIONS, ("avx2", "AVX2", "AVX2"), strict=True)),
    "no vectors": dict(zip(_INSTRUCTIONS, ("default", "SSE4_2", "SSE41"), strict=True)),
}


class Reader(Side):
    """The CPU with a run that another process has trained."""

    def trained(self, settings: Sequence[str] = (), *, again: bool = False) -> Path:
        return self.folder


def compute(run: Path, out: Path) -> None:
    """Write all figures of the CPU, as `group/check/array`; a model that is only read is that of the run."""
    if "GPT_ONE_BY_ONE" in os.environ:
        made = GPT.__init__
        GPT.__init__ = lambda self, *args: (made(self, *args), self.use_fused(False))[0]  # type: ignore[method-assign]
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        cpu, reader = Side("cpu", Path(folder)), Reader("cpu", run)
        groups = zip(checks(cpu, cpu), checks(reader, reader), strict=True)
        for number, ((_, _, pairs), (_, _, of_run)) in enumerate(groups):
            for name, (expected, _) in (of_run if number >= _FIRST_OF_RUN else pairs).items():
                with suppress(Skipped):
                    found |= {f"{number}/{name}/{key}": figures for key, figures in expected().items()}
    np.savez(out, **found)  # type: ignore[arg-type]


def main() -> None:
    """Print, for each group of checks, the largest difference between each order and the first."""
    with tempfile.TemporaryDirectory() as folder:
        run = Side("cpu", Path(folder)).trained()
        files = {name: Path(folder) / f"{name}.npz" for name in ORDERS}
        for name, environment in ORDERS.items():
            command = [sys.executable, "-m", "benchmarks.orders", str(run), str(files[name])]
            subprocess.run(command, env={**os.environ, **environment}, check=True)
        first, *others = (dict(np.load(file)) for file in files.values())
    nobody = Side("cpu", Path())
    for number, (title, bound, _) in enumerate(checks(nobody, nobody)):
        print(f"{title}: bound {bound.most:g} {bound.unit}")
        for name, other in zip([*ORDERS][1:], others, strict=True):
            keys = (key for key in first if key.startswith(f"{number}/"))
            apart = {key: bound.difference({"": first[key]}, {"": other[key]}) for key in keys}
            if worst := max(apart, key=apart.__getitem__, default=""):
                print(f"  {name:<18}{apart[worst]:9.2g}  {worst.partition('/')[2]}")


if __name__ == "__main__":
    compute(*map(Path, sys.argv[1:])) if sys.argv[1:] else main()
