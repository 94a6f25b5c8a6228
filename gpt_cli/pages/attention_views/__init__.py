"""The views of attention that pages share: the grid of heads, and one head with its text, its lines and its map."""

from __future__ import annotations

_NAMES = ("words", "weights", "maps", "lines", "heads", "tokens", "views")
SCRIPTS = tuple(f"attention_views/{name}.js" for name in _NAMES)
