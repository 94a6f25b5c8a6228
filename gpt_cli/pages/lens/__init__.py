"""The page of what each layer would predict: a grid of a prompt, or the curves of a text."""

from __future__ import annotations

from gpt_cli.pages import grids
from gpt_cli.pages.building import Parts

PARTS = Parts("lens", (*grids.LENS, *(f"lens/{name}.js" for name in ("words", "curves", "page"))))
