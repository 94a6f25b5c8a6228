"""The page of a report: curves of runs, their samples, settings and attention."""

from __future__ import annotations

from gpt_cli.pages.building import Parts

_SHARED = ("attention_views/weights.js", "attention_views/maps.js", "attention/packed.js")
_OWN = ("words", "numbers", "runs", "curves", "panel", "samples", "attention", "page")
PARTS = Parts("report", (*_SHARED, *(f"report/{name}.js" for name in _OWN)))
