"""Everything that docs/notes would report on a GPU, in one command and seven minutes: `make bench-cuda`.

Each part has a process and a time limit of its own; those that measure no time run side by side. The figures of a part
are in the file `--out` when it ends, so the same command goes on after a stop, and a part that fails leaves the others
alone. On a CPU the scale is that of a test, and a part may take all of `--budget`.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from benchmarks.cuda_parts import PARTS, Figure, Scale
from benchmarks.laboratory import show
from gpt_cli.common import __version__
from gpt_cli.common.files import write_durably
from gpt_cli.common.machine.devices import choose_device, device_name
from gpt_cli.common.units import duration
from gpt_cli.errors import GptError

BUDGET = 420.0  # seconds for all parts
# of the first H100, torch 2.11.0+cu130, on 2026-11-25
EARLIER = Path(__file__).parents[1] / "docs" / "notes" / "data" / "0004-cuda.csv"
COMMAND = sys.executable, "-m", "benchmarks.cuda"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="default: cuda")
    parser.add_argument("--data", default="tinyshakespeare", help="tinyshakespeare, or the path of that file")
    parser.add_argument("--out", type=Path, default=Path("bench-cuda.json"), help="default: bench-cuda.json")
    parser.add_argument("--only", action="append", choices=list(PARTS), help="a part; may be repeated")
    parser.add_argument("--budget", type=float, default=BUDGET, help=f"seconds for all parts: {BUDGET:.0f}")
    parser.add_argument("--part", choices=list(PARTS), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    try:
        device = choose_device(asked.device)
    except GptError as error:
        print("\n".join(error.lines()), file=sys.stderr)
        return error.exit_code
    if asked.part:
        for figure in PARTS[asked.part].measure(Scale(device, asked.data, small=device.type == "cpu")):
            print(json.dumps(vars(figure)), flush=True)
        return 0
    return _all_parts(asked, device)


def _all_parts(asked: argparse.Namespace, device: torch.device) -> int:
    machine = {"gpt": __version__, "torch": torch.__version__, "device": device_name(device), "data": asked.data}
    found: dict[str, Any] = {}
    if asked.out.exists() and (before := json.loads(asked.out.read_text()))["machine"] == machine:
        found = before["parts"]
    print(", ".join(f"{what} {value}" for what, value in machine.items()) + f"; figures in {asked.out}\n")
    with EARLIER.open(encoding="utf-8", newline="") as file:
        earlier = {(row["part"], row["what"]): row["figure"] for row in csv.DictReader(file)}
    started, names, writing = time.perf_counter(), list(dict.fromkeys(asked.only or PARTS)), threading.Lock()

    def measure(name: str) -> None:
        if name not in found or found[name]["error"]:
            left = asked.budget - (time.perf_counter() - started)
            result = _run(name, asked, left if device.type == "cpu" else min(left, PARTS[name].seconds))
            with writing:
                found[name] = result
                write_durably(asked.out, [json.dumps({"machine": machine, "parts": found}, indent=1).encode()])

    together = [name for name in names if not PARTS[name].by_time]
    for group in dict.fromkeys((name,) if PARTS[name].by_time else tuple(together) for name in names):
        with ThreadPoolExecutor(len(group)) as several:
            list(several.map(measure, group))
        for name in group:
            figures = [Figure(**figure) for figure in found[name]["figures"]]
            title = f"{name}: {PARTS[name].what}; took {duration(found[name]['seconds'])}"
            rows = [(figure.what, figure.shown(), earlier.get((name, figure.what), "")) for figure in figures]
            show(title, ("what", "figure", "first H100"), rows)
            if found[name]["error"]:
                print(f"{name} failed: {found[name]['error']}\n", flush=True)
    failed = [name for name in names if found[name]["error"]]
    print(f"failed: {', '.join(failed)}; the same command tries them again" if failed else "all parts are done")
    return 1 if failed else 0


def _run(name: str, asked: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """The figures of a part, those before a failure too, the seconds it took, and why it failed."""
    if seconds <= 0:
        return {"figures": [], "seconds": 0.0, "error": "no time was left for it"}
    started, error = time.perf_counter(), None
    command = [*COMMAND, "--part", name, "--device", asked.device, "--data", asked.data]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # with the commands that it has started
        out, err = process.communicate()
        error = f"its {seconds:.0f} s were over"
    if process.returncode and error is None:
        error = (err.strip().splitlines() or [f"it ended with {process.returncode}"])[-1]
    figures = list(_figures(out))
    return {"figures": figures, "seconds": time.perf_counter() - started, "error": error}


def _figures(out: str) -> Iterator[dict[str, Any]]:
    """The figures among the lines that a part has printed."""
    for line in out.splitlines():
        try:
            yield vars(Figure(**json.loads(line)))
        except (ValueError, TypeError):
            continue


if __name__ == "__main__":
    sys.exit(main())
