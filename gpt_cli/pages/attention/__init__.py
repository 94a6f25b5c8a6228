"""The page on which one looks at attention: all heads, one head, one token."""

from __future__ import annotations

from gpt_cli.pages.building import Parts

_SCRIPTS = ("words", "weights", "scores", "maps", "lines", "writes", "heads", "tokens", "film", "page")
PARTS = Parts("attention", tuple(f"{name}.js" for name in _SCRIPTS))
