"""The page in which a trained model runs: its engine computes in a worker."""

from __future__ import annotations

from gpt_cli.pages import attention_views, grids
from gpt_cli.pages.building import Parts

ENGINE = tuple(
    f"model/engine/{name}.js"
    for name in (
        "refusal",
        "numbers",
        "rows",
        "changes",
        "layers",
        "positions",
        "ngrams",
        "attention",
        "model",
        "reading",
        "tokenizer",
        "byte_pairs",
        "kept",
        "streaming",
        "labels",
        "sampling",
        "streams",
        "explain",
        "heads",
        "lens",
        "patching",
        "worker",
    )
)
_OWN = (
    "words",
    "calling",
    "engine/labels",
    "engine/rows",
    "live",
    "settings",
    "writing",
    "candidates",
    "reading",
    "changing",
    "second",
    "head_views",
    "effects",
    "explaining",
    "page",
)
_VIEWS = (*attention_views.SCRIPTS, *grids.BOTH)
PARTS = Parts("model", (*_VIEWS, *(f"model/{name}.js" for name in _OWN)), worker=ENGINE)
