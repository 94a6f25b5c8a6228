"""The names that `gpt explain` knows. Needs no torch."""

from __future__ import annotations

EXAMPLES = ("journey",)
STUDIES = ("scaling", "mask", "dropout", "padding")
FORMATS = ("terminal", "markdown", "html")
LANGUAGES = ("en", "zh")
