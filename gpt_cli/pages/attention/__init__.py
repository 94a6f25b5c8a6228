"""The page on which one looks at attention: all heads, one head, one token."""

from __future__ import annotations

from gpt_cli.pages import attention_views, film, grids
from gpt_cli.pages.building import Parts

_OWN = ("words", "packed", "packed_writes", "page")
_SHARED = (*attention_views.SCRIPTS, "attention_views/scatter.js", *grids.LENS, *film.SCRIPTS)
PARTS = Parts("attention", (*_SHARED, *(f"attention/{name}.js" for name in _OWN)))
