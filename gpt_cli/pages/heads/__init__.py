"""The page of a report on heads: their table, a scatter of them, and the passages and circuits of one."""

from __future__ import annotations

from gpt_cli.pages import film
from gpt_cli.pages.building import Parts

_SHARED = ("attention_views/words.js", "attention_views/scatter.js")
PARTS = Parts("heads", (*_SHARED, *film.SCRIPTS, "heads/words.js", "heads/page.js"))
