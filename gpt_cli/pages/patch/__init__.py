"""The page of what patches recover."""

from __future__ import annotations

from gpt_cli.pages import film, grids
from gpt_cli.pages.building import Parts

PARTS = Parts("patch", (*grids.PATCH, *film.SCRIPTS, "patch/words.js", "patch/page.js"))
