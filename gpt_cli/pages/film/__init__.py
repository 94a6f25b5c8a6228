"""The steps of a training on a page: a slider, a button that plays them, and curves."""

from __future__ import annotations

SCRIPTS = ("film/words.js", "film/film.js")
