"""Grids of layers that pages share: what each layer would predict, and what patches recover."""

from __future__ import annotations

LENS = ("grids/words.js", "grids/grid.js", "grids/lens.js")
PATCH = ("grids/words.js", "grids/grid.js", "grids/patch.js")
BOTH = (*LENS, "grids/patch.js")
