"""The names that `gpt explain` knows. Needs no torch."""

from __future__ import annotations

from typing import Literal

Example = Literal["journey"]
Study = Literal["scaling", "mask", "dropout", "padding"]
Form = Literal["terminal", "markdown", "html"]
# the steps of one head, in order, with those of every form of model
HEAD_STEPS = (
    "token_embedding",
    "ngram_embedding",
    "ngram_normalised",
    "position_embedding",
    "stream",
    "normalised",
    "latent",
    "query_latent",
    "queries",
    "keys",
    "rotary_queries",
    "rotary_keys",
    "rotated_queries",
    "rotated_keys",
    "values",
    "scores",
    "divided",
    "masked",
    "weights",
    "weighted_values",
    "head_output",
    "concatenated",
    "projected",
    "residual",
    "normalised_after",
)
