"""What `gpt` says to people, in the language of the user."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources

from gpt_cli.language.catalogue import Catalogue

LANGUAGES = ("en", "zh")
VARIABLE = "GPT_LANGUAGE"


def language(environment: Mapping[str, str] = os.environ) -> str:
    """The language of the user: what GPT_LANGUAGE names, else that of the locale, else English.

    A language that `gpt` does not know is English; `gpt` refuses one that GPT_LANGUAGE names.
    """
    locales = (environment.get(name) for name in (VARIABLE, "LC_ALL", "LC_MESSAGES", "LANG"))
    first = next((locale for locale in locales if locale), "")
    return "zh" if code_of(first) == "zh" else "en"


def code_of(locale: str) -> str:
    """The language of a locale: zh of zh_CN.UTF-8 and of zh-CN."""
    return locale.partition(".")[0].replace("-", "_").partition("_")[0].lower()


def say(text: str) -> str:
    """A text of `gpt` in the language of the user; one that the catalogue lacks stays English."""
    return chinese().say(text) if language() == "zh" else text


def labelled(text: str) -> str:
    """A text that names what follows it, with the colon of the language in which it is said."""
    said = say(text)
    return f"{text}: " if said == text else f"{said}："


@lru_cache(maxsize=1)
def chinese() -> Catalogue:
    """The Chinese texts: all files of `zh/`, each named for the layer whose texts it has."""
    import tomllib  # English needs none

    folder = resources.files("gpt_cli.language") / "zh"
    pairs: dict[str, str] = {}
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        pairs |= tomllib.loads(file.read_text("utf-8"))
    return Catalogue(pairs)
