"""An explanation as data: steps of numbers, which any writer can show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpt_cli.common.chunks import gathered, json_pieces
from gpt_cli.common.language import chinese

# the steps of one head, in order, with those of every form of model
HEAD_STEPS = (
    "token_embedding", "ngram_embedding", "ngram_normalised", "position_embedding", "stream", "normalised",
    "latent", "query_latent", "queries", "keys", "normalised_queries", "normalised_keys", "rotary_queries",
    "rotary_keys", "rotated_queries", "rotated_keys", "values", "scores", "divided", "masked", "weights",
    "weighted_values", "head_output", "concatenated", "projected", "residual", "normalised_after",
)  # fmt: skip
# the English of the keys of notes; any other key is in words what it says
_ENGLISH = {
    # a head of a trained model
    "head_title": "layer {layer}, head {head}: T = {T} tokens of D = {D} numbers, H = {H} heads of K = {K}",
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
    "most_weight": "{query} looks most at: {list}",
    "largest_parts": "longest terms for {query}: {list}",
    "ids_said": "ids: {ids}",
    "norm_said": "g: the weights of the norm",
    "norm_bias_said": "g and b: the weights and the bias of the norm",
    "rotation_said": "{key}₁ and {key}₂ are the halves of {turned}; pair n of them rotates by t θₙ, θₙ = "
    "{base}^(-2n / {size})",
    "scaling_said": "Slow pairs are slower here, as in Llama 3: θₙ is divided by {factor} where a pair turns fewer "
    "than {low} times in {original_length} tokens, not where it turns more than {high} times, and partly between.",
    "parallel_said": "The feed-forward part of this block reads x, not y.",
    "places_said": "i: the position of the token that looks; j: of the token it looks at",
    "rounded": "Rounded to 4 decimals; … stands for omitted columns. --json prints every number in full.",
    # the journey of six tokens
    "journey_title": "six tokens of three numbers: attention from scratch",
    "inputs": "the embeddings",
    "simple": "a. without trainable parameters",
    "trainable": "b. with trainable matrices (seed 123, uniform random numbers)",
    "linear": "c. with linear layers (seed 789, torch's initialisation)",
    "causal": "d. causal: no token sees a later one (same layers as c)",
    "dropout": "e. dropout on the weights of d (p = 0.5, seed 123)",
    "multi_head": "f. two causal heads, side by side (seed 123)",
    "split": "g. one projection split into two heads, and an output layer (seed 123)",
    "shares": "scores divided by their sum",
    "masked_weights": "masked, not renormalised",
    "masked_before_softmax": "the same result by masking before softmax",
    "dropped": "after dropout: the remaining weights are doubled",
    "head_step": "head {number}: {what}",
    # studies
    "scaling_title": "why scores are divided by √K",
    "random_scores": "softmax of random queries and keys: mean of {rows} rows of {keys} scores",
    "random_said": "Undivided scores grow with √K: softmax picks one key, and its entropy (in nats) falls to "
    "0. The gradient, the norm of the derivative of softmax with respect to its scores, first grows and then "
    "vanishes too.",
    "model_scores": "the heads of {run}, on {tokens} tokens that the model wrote",
    "normal_numbers": "softmax of {count} normal numbers with standard deviation 100",
    "normal_said": "Undivided, the largest number takes all the weight; divided by 100, every number keeps a share.",
    "mask_title": "masking before softmax, or renormalising after it",
    "leak_change": "largest change of a weight in each row when the last token changes",
    "mask_same": "Masking before softmax and renormalising after it differ by at most {difference:.1e}.",
    "mask_leak": "Rows that are masked but not renormalised sum to less than 1. The missing share depends on "
    "tokens still to come: they leak.",
    "row_sums": "sums of the rows",
    "dropout_title": "what dropout does to a row of weights",
    "dropout_draws": "a row of weights, and five draws of dropout with p = {p}",
    "dropout_mean": "mean of {count}",
    "dropout_said": "Dropout multiplies the remaining weights by 1 / (1 - p), so the mean of many draws is the "
    "row itself. A single draw no longer sums to 1.",
    "padding_title": "two sentences in one batch, where id 0 is padding",
    "sentence": "sentence {ids}, head {head}",
    "padding_said": "Padding gets a weight of exactly 0, because its scores are -∞ before softmax. Rows of "
    "padding look at the words too, but nothing uses them. There is no causal mask here; embeddings and heads are "
    "random (seed 0). A label is position: id.",
    # columns of studies; three pairs must fit into 80 cells
    "entropy_divided": "(÷√K)",
    "largest_divided": "(÷√K)",
    "gradient_divided": "(÷√K)",
    "before": "undivided",
    "scaled": "divided",
    "after": "divided by 100",
    "layer": "layer {number}",
    "draw": "draw {number}",
    "row": "the row",
    "before_softmax": "masked before softmax",
    "not_renormalised": "masked after, not renormalised",
}


@dataclass(frozen=True)
class Note:
    """A sentence or a name: a key of the words, and the values of its gaps."""

    key: str
    gaps: Mapping[str, Any] = field(default_factory=dict)


Label = str | Note  # a plain text is the same in every language


def say(label: Label, language: str) -> str:
    """A note in one of LANGUAGES; a plain text, such as that of a token, unchanged."""
    if isinstance(label, str):
        return label
    text = _ENGLISH.get(label.key, label.key.replace("_", " "))
    if language == "zh":  # the catalogue has a text that means several things once for each key
        text = chinese().pairs.get(f"{label.key}: {text}") or chinese().pairs[text]
    return text.format(
        **{name: say(gap, language) if isinstance(gap, Note) else gap for name, gap in label.gaps.items()}
    )


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
