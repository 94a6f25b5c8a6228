"""The page on which one looks at attention: all heads, one head, one token."""

from __future__ import annotations

from gpt_cli.pages import attention_views, grids
from gpt_cli.pages.building import Parts

_OWN = ("words", "packed", "packed_writes", "film", "page")
PARTS = Parts("attention", (*attention_views.SCRIPTS, *grids.LENS, *(f"attention/{name}.js" for name in _OWN)))
