"""An explanation as data: computation steps with their numbers, which render.py and plots.py show."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpt_cli.common.chunks import gathered, json_pieces
from gpt_cli.common.language import say

HEAD_STEPS = (  # all steps in the explanation of a head, in order; a form of model has some of them
    "token_embedding", "ngram_embedding", "ngram_normalised", "position_embedding", "stream", "normalised",
    "latent", "query_latent", "queries", "keys", "normalised_queries", "normalised_keys", "rotary_queries",
    "rotary_keys", "rotated_queries", "rotated_keys", "values", "scores", "divided", "masked", "weights",
    "weighted_values", "head_output", "concatenated", "projected", "residual", "normalised_after",
)  # fmt: skip
_TITLES = {  # of steps, where the name alone would be unclear
    "ngram_embedding": "n-gram embedding of the preceding tokens",
    "ngram_normalised": "normalised sum",
    "stream": "residual stream into the block",
    "latent": "latent vectors, the source of keys and values",
    "query_latent": "latent vectors of the queries",
    "rotary_queries": "rotary part of the queries",
    "rotary_keys": "rotary part of the keys, shared by all heads",
    "rotated_queries": "queries rotated by position t",
    "rotated_keys": "keys rotated by position t",
    "weighted_values": "weight times value",
    "head_output": "output of the head",
    "concatenated": "outputs of all heads, side by side",
    "projected": "projection layer",
    "residual": "residual stream after attention",
    "normalised_after": "normalised after the sum",
    "shares": "scores divided by their sum",
    "masked_weights": "masked, not renormalised",
    "masked_before_softmax": "the same result by masking before softmax",
    "dropped": "after dropout: the remaining weights are doubled",
    "row_sums": "sums of the rows",
    "leak_change": "largest change of a weight in each row when the last token changes",
}


@dataclass(frozen=True)
class Note:
    """A sentence or label: `text` is English, and is translated for display.

    In JSON, `key` names the kind of sentence, and `values` has the words and numbers that the sentence contains.
    """

    key: str
    text: str
    values: Mapping[str, Any] = field(default_factory=dict)


Label = str | Note  # a plain text, such as that of a token, is the same in every language


def label_text(label: Label, language: str) -> str:
    """Return the text of a label in `language`, "en" or "zh"."""
    return label if isinstance(label, str) else say(label.text, language)


def title_of(step: str) -> str:
    """Return the English title of a step of an explanation: "projection layer" for the step named `projected`."""
    return _TITLES.get(step, step.replace("_", " "))


@dataclass(frozen=True, eq=False)
class Step:
    """One computation: its formula, and its result `numbers`, [rows, columns] in float64.

    If `beside` is true, `numbers` is one row, with a column per key token; adjacent steps with `beside` share a table.
    """

    name: str
    formula: str
    numbers: np.ndarray
    rows: Sequence[Label]
    columns: Sequence[Label] = ()  # empty: columns are numbered
    part: str = ""  # a key of `Explanation.parts`
    notes: Sequence[Note] = ()
    beside: bool = False
    title: str = ""  # empty: `title_of(name)` is the title

    def __post_init__(self) -> None:
        assert self.numbers.shape == (len(self.rows), len(self.columns) or self.numbers.shape[1])

    def title_in(self, language: str) -> str:
        """Return the title in `language`, "en" or "zh"."""
        return say(self.title or title_of(self.name), language)


@dataclass(frozen=True, eq=False)
class Explanation:
    """A title, ordered steps, and the parameters that steps use, by name; `parts` maps `Step.part` to a heading."""

    title: str
    steps: Sequence[Step]
    facts: Mapping[str, Any] = field(default_factory=dict)  # further entries of the JSON, such as tokens
    parameters: Mapping[str, np.ndarray] = field(default_factory=dict)
    parts: Mapping[str, str] = field(default_factory=dict)
    source: str = ""  # of a head: the checkpoint and the prompt

    def to_json(self) -> Iterator[str]:
        """Yield the explanation as JSON, in pieces, with unrounded numbers; minus infinity is null."""
        steps = [
            {
                "part": step.part,
                "name": step.name,
                "formula": step.formula,
                "shape": list(step.numbers.shape),
                "rows": _names(step.rows),
                "columns": _names(step.columns),
                "numbers": step.numbers,
                "notes": [{"note": note.key, **note.values} for note in step.notes],
            }
            for step in self.steps
        ]
        parameters = {"parameters": self.parameters} if self.parameters else {}
        return gathered(json_pieces({**self.facts, "steps": steps, **parameters}))


def _names(labels: Sequence[Label]) -> list[str]:
    return [
        label if isinstance(label, str) else " ".join(map(str, [label.key, *label.values.values()])) for label in labels
    ]
