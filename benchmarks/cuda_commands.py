"""Every command that reads a model, on a device and on the CPU: how far apart the numbers are that --json prints."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

# of two runs that the CPU has trained
COMMANDS = (
    "sample --run first --prompt The --greedy --max-new-tokens 40",
    "sample --run first --prompt The --prompt If --num-samples 3 --top-k 20 --seed 5 --max-new-tokens 40",
    "sample --run first --prompt The --seed 5 --without 0.1 --max-new-tokens 40",
    "eval --run first --data text.txt --per-token",
    "eval --run first --data text.txt --stride 8",
    "eval --run first --data text.txt --dtype bfloat16",
    "eval --run first --run second --data text.txt",
    "eval --run first --data text.txt --memorised --num-samples 2 --max-new-tokens 8",
    "heads --run first --data text.txt",
    "heads --run first --data text.txt --ablate zero --dtype float32",
    "heads --run first --data text.txt --ablate mean --dtype float32",
    "heads --run first --data text.txt --passages 2",
    "heads --run first --circuits",
    "heads --run first --prompt def_read --query 2",
    "lens --run first --data text.txt",
    "lens --run first --data text.txt --over-training",
    "lens --run first --prompt def_read --tuned",
    "patch --run first --clean def_read --corrupt for_line --answer ( --estimate",
    "patch --run first --clean def_read --corrupt for_line --answer ( --parts head",
    "compare first second --data text.txt",
    "attn-dump --run first --prompt def_read --stage scores --stage heads --out -",
    "attn-dump --run first --prompt def_read --generate 6 --out -",
)
_ELSEWHERE = {"device", "seconds", "tokens_per_second"}  # which another device changes


def prepare(folder: Path) -> None:
    """Train two small runs on the CPU, and write a text to measure."""
    (folder / "text.txt").write_text("def read(path):\n    return open(path).read()\n" * 40)
    train = (
        "train --config smoke --max-steps 40 --dtype float32 --set tokenizer.kind=char --set data.source=python-docs"
    )
    for run in ("--out first --watch def_read", "--out second --set train.seed=2"):
        _answer(f"{train} {run}", "cpu", folder)


def differences(device: str, folder: Path) -> Iterator[tuple[str, float | str]]:
    """Each command with the largest difference that it shows between the device and the CPU, or what went wrong."""
    with ThreadPoolExecutor(min(12, os.cpu_count() or 1)) as several:
        found = [
            (command, *(several.submit(_answer, command, name, folder) for name in ("cpu", device)))
            for command in COMMANDS
        ]
        for command, on_cpu, on_device in found:
            try:
                yield command, largest_difference(on_cpu.result(), on_device.result())
            except (RuntimeError, ValueError) as error:
                yield command, str(error)


def _answer(command: str, device: str, folder: Path) -> Any:
    """What a command prints with --json; raises RuntimeError with its error."""
    words = [*command.split(), "--quiet", "--device", device, *(() if command.endswith("--out -") else ("--json",))]
    done = subprocess.run([sys.executable, "-m", "gpt_cli", *words], capture_output=True, text=True, cwd=folder)
    if done.returncode:
        raise RuntimeError(f"{device}: {' '.join(done.stderr.splitlines()[-2:])}")
    return json.loads(done.stdout if "--json" not in words else done.stdout.splitlines()[-1])


def largest_difference(one: Any, other: Any, where: str = "") -> float:
    """Of the numbers of two answers, as a share of those above 1; raises ValueError where anything else differs."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        pairs = {key: (one[key], other[key]) for key in one if key not in _ELSEWHERE}
        return max((largest_difference(*pair, f"{where}.{key}") for key, pair in pairs.items()), default=0.0)
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        both = enumerate(zip(one, other, strict=True))
        return max((largest_difference(*pair, f"{where}.{number}") for number, pair in both), default=0.0)
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            raise ValueError(f"{where.removeprefix('.')} is {one} and {other}")
        return abs(one - other) / max(1.0, abs(one))
    if one != other:
        raise ValueError(f"{where.removeprefix('.')} differs: {one!r:.40} and {other!r:.40}")
    return 0.0
