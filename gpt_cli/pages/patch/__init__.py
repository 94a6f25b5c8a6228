"""The page of what patches recover."""

from __future__ import annotations

from gpt_cli.pages import grids
from gpt_cli.pages.building import Parts

PARTS = Parts("patch", (*grids.PATCH, "patch/words.js", "patch/page.js"))
