"""How long `gpt` takes, and how much memory, until it refuses files and flags that were made to be costly.

Each case is a command in a process. Beside its exit code stand the seconds and the processor seconds beyond a clean
command with the same imports (`gpt config check` without torch, `gpt sample` with it), its peak memory beyond that of
the clean one, and the size of the input. What takes a second of processor time is tried twice more, and the least
counts. On a busy machine, look at the processor seconds. Part of `make bench`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.hostile import Case, cases, checkpoint

ALLOWED = 2.0  # seconds
# Linux knows the peak of the process alone: wait4 would begin with the peak of the process that starts it
_RUN = """
import sys
from gpt_cli.__main__ import run
code = run(sys.argv[2:])
status = open("/proc/self/status").read()
open(sys.argv[1], "w").write(f"{'torch' in sys.modules:d} " + status.split("VmHWM:")[1].split()[0])
sys.exit(code)
"""


@dataclass(frozen=True)
class Cost:
    """How a command ended and what it took: seconds, bytes; `torch` says whether it imported torch."""

    code: int
    torch: bool
    seconds: float
    processor_seconds: float
    memory: int


@dataclass(frozen=True)
class Row:
    """A refusal, and what it cost beyond a clean command."""

    name: str
    code: int
    seconds: float
    processor_seconds: float
    memory: int
    size: int
    said: str


def run(folder: Path, words: Sequence[str]) -> tuple[Cost, str]:
    """Return what a command of `gpt` costs in that folder, and what it says on stderr."""
    noted = folder.parent / "noted"
    noted.write_text("0 0")
    command = [sys.executable, "-c", _RUN, str(noted), *words]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "GPT_LANGUAGE": "en"}
    with (folder.parent / "said").open("w+b") as said:
        began = time.monotonic()
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said, env=environment
        )
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.monotonic() - began
        said.seek(0)
        text = said.read().decode("utf-8", "replace")
    process.returncode = os.waitstatus_to_exitcode(status)
    torch, kilobytes = noted.read_text().split()
    return Cost(process.returncode, torch == "1", seconds, used.ru_utime + used.ru_stime, 1024 * int(kilobytes)), text


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of the files of a directory."""
    if path.is_symlink() or not path.exists():
        return 0
    return sum(file.stat().st_size for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file())


def measured(folder: Path, case: Case, clean: dict[bool, Cost]) -> Row:
    """Return what a case costs beyond the clean command with the same imports."""
    name, file, content, words = case
    path = folder / file
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content) if isinstance(content, bytes) else content(path)
    words = [file if word == "FILE" else word for word in words]
    costs: list[Cost] = []
    said = ""
    while len(costs) < 3:
        cost, said = run(folder, words)
        costs.append(cost)
        if cost.processor_seconds < clean[cost.torch].processor_seconds + 1:
            break
    beside = clean[costs[0].torch]
    return Row(
        name,
        costs[0].code,
        min(cost.seconds for cost in costs) - beside.seconds,
        min(cost.processor_seconds for cost in costs) - beside.processor_seconds,
        costs[0].memory - beside.memory,
        size_of(path) + sum(len(word) for word in words),
        next((line for line in said.splitlines() if line.startswith("error: ")), said[-300:])[:160],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="measure only the cases whose name contains this")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as outer:
        clean = clean_commands(Path(outer, "clean").absolute())
        for number, case in enumerate(case for case in cases() if arguments.only in case[0]):
            folder = Path(outer, str(number)).absolute()
            prepare(folder)
            rows.append(measured(folder, case, clean))
            row = rows[-1]
            if not arguments.json:
                print(
                    f"{row.code:>4} {row.seconds:7.2f} s {row.processor_seconds:7.2f} s {row.memory / 1e6:7.0f} MB "
                    f"{row.size / 1e6:9.2f} MB  {row.name}: {row.said}",
                    flush=True,
                )
            shutil.rmtree(folder)
    in_time = sum(row.seconds < ALLOWED for row in rows)
    refused = sum(row.code in (2, 3, 4, 5) for row in rows)
    print(f"{in_time} of {len(rows)} within {ALLOWED:g} s, {refused} refused with a sentence", file=sys.stderr)
    if arguments.json:
        print(json.dumps({"rows": [asdict(row) for row in rows], "clean": [asdict(cost) for cost in clean.values()]}))


def clean_commands(folder: Path) -> dict[bool, Cost]:
    """Return the cost of a command that nothing is wrong with, without and with torch."""
    prepare(folder)
    sample = ["sample", "--run", "good.safetensors", "--prompt", "ab", "--max-new-tokens", "1"]
    runs = [[run(folder, words)[0] for _ in range(3)] for words in (["config", "check", "smoke"], sample)]
    return {costs[0].torch: min(costs, key=lambda cost: cost.seconds) for costs in runs}


def prepare(folder: Path) -> None:
    """Make a folder with an intact checkpoint and sweep."""
    folder.mkdir()
    (folder / "good.safetensors").write_bytes(checkpoint())
    (folder / "good.sweep").write_text("base: smoke\ngrid:\n  train.learning_rate: [0.1, 0.2]\n")


if __name__ == "__main__":
    main()
