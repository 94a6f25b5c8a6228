"""The first page of a hand-out, from which the others are opened."""

from __future__ import annotations

from gpt_cli.pages.building import Parts

PARTS = Parts("handout", ("handout/words.js", "handout/page.js"))
