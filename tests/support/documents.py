"""Pages of docs/ and what their commands print."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

DOCS = Path(__file__).parents[2] / "docs"


def shown(page: str) -> list[tuple[str, list[str]]]:
    """The commands of a page in order, and all lines of output that follow each."""
    found: list[tuple[str, list[str]]] = []
    for kind, block in re.findall(
        r"^```(console|text)\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE
    ):
        lines = block.splitlines()
        if kind == "console":
            found.append((lines.pop(0).removeprefix("$ "), []))
        found[-1][1].extend(lines)
    return found


def form(line: str) -> str:
    """A line without what another training would change: numbers, shades, and tokens listed by what was trained."""
    line = re.sub(r"((?:looks most at|最关注|largest parts.*|加权和中最长的部分)\s*[:：]).*", r"\1", line)
    line = re.sub(r"[░▒▓█]+", " ", line)
    line = re.sub(r"-?\d[\d.,]*( min \d+)?", "#", line).replace("-∞", "#").replace("…", " ")
    return re.sub(r"#( #)+", "#", " ".join(line.split()))  # as many as fit


def is_in_order(lines: list[str], all_lines: list[str]) -> bool:
    """Whether the lines stand among all lines in the same order, others between them."""
    rest = iter(all_lines)
    return all(line in rest for line in lines)


def looking(lines: list[str], num_rows: int, size: int) -> np.ndarray:
    """The table of a head's steps from scores to weights, each of which follows from those left of it to four decimals."""
    rows = [re.findall(r"-?\d+\.\d{4}", line) for line in lines]
    numbers = np.array([row for row in rows if len(row) == 4], dtype=float)
    assert numbers.shape == (num_rows, 4)
    scores, divided, masked, weights = numbers.T
    np.testing.assert_allclose(scores / size**0.5, divided, atol=1e-4)
    np.testing.assert_array_equal(divided, masked)
    powers = np.exp(masked)
    np.testing.assert_allclose(powers / powers.sum(), weights, atol=1e-4)
    return numbers
