"""An explanation as data: steps of numbers, which any writer can show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpt_cli.inspecting.pieces import gathered, json_pieces


@dataclass(frozen=True)
class Note:
    """A sentence or a name: a key of the words, and the values of its gaps."""

    key: str
    gaps: Mapping[str, Any] = field(default_factory=dict)


Label = str | Note  # a plain text is the same in every language


@dataclass(frozen=True)
class Step:
    """One computation and its result.

    `numbers` is [rows, columns] in float64. A step that is `beside` others has one row, with a number for each of the
    same columns as theirs (the tokens looked at), so that a writer can show these steps side by side.
    """

    name: str  # also the key of its title in the words, where `title` is None
    formula: str
    numbers: np.ndarray
    rows: Sequence[Label]
    columns: Sequence[Label] = ()  # empty: they are numbered
    part: str = ""
    notes: Sequence[Note] = ()
    beside: bool = False
    title: Note | None = None

    def __post_init__(self) -> None:
        assert self.numbers.shape == (len(self.rows), len(self.columns) or self.numbers.shape[1])


@dataclass(frozen=True)
class Explanation:
    """A title, steps in order, and the parameters that the steps use, by name."""

    title: Note
    steps: Sequence[Step]
    facts: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, np.ndarray] = field(default_factory=dict)
    source: str = ""  # the model and the text that it is about

    def to_json(self) -> Iterator[str]:
        """Every digit of every number, as JSON in pieces; minus infinity is null."""
        steps = [
            {
                "part": step.part,
                "name": step.name,
                "formula": step.formula,
                "shape": list(step.numbers.shape),
                "rows": _names(step.rows),
                "columns": _names(step.columns),
                "numbers": step.numbers,
                "notes": [{"note": note.key, **note.gaps} for note in step.notes],
            }
            for step in self.steps
        ]
        parameters = {"parameters": self.parameters} if self.parameters else {}
        return gathered(json_pieces({**self.facts, "steps": steps, **parameters}))


def _names(labels: Sequence[Label]) -> list[str]:
    return [
        label if isinstance(label, str) else " ".join(map(str, [label.key, *label.gaps.values()])) for label in labels
    ]
