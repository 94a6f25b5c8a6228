"""The views of attention that pages share: the heads with their scores, and one head on its text."""

from __future__ import annotations

_NAMES = ("words", "weights", "maps", "lines", "heads", "scores", "scored", "tokens", "writes", "views")
SCRIPTS = tuple(f"attention_views/{name}.js" for name in _NAMES)
