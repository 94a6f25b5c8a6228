"""Translate messages to the language of the user."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources

from gpt_cli.common.language.catalogue import Catalogue

LANGUAGES = ("en", "zh")
VARIABLE = "GPT_LANGUAGE"
# what people call a language beside its code
_NAMES = {"english": "en", "cn": "zh", "chinese": "zh", "中文": "zh", "简体中文": "zh", "汉语": "zh"}


def language(environment: Mapping[str, str] = os.environ) -> str:
    """Return the code of the user's language, en or zh: from GPT_LANGUAGE, else from LANGUAGE or the locale, else en.

    As for GNU programs, LANGUAGE lists languages by preference and is ignored in the C locale. Languages that gpt does
    not know are skipped; the command `gpt` refuses an unknown GPT_LANGUAGE.
    """
    if (chosen := code_of(environment.get(VARIABLE, ""))) in LANGUAGES:
        return chosen
    locales = (environment.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
    locale = next((locale for locale in locales if locale), "")
    preferred = [] if locale in ("C", "POSIX") else environment.get("LANGUAGE", "").split(":")
    return next(
        (code for code in map(code_of, preferred) if code in LANGUAGES), "zh" if code_of(locale) == "zh" else "en"
    )


def code_of(locale: str) -> str:
    """Return the language code of a locale or of a language's name: zh for zh_CN.UTF-8, zh-CN and 中文."""
    code = locale.partition(".")[0].replace("-", "_").partition("_")[0].strip().lower()
    return _NAMES.get(code, code)


def say(text: str, spoken: str | None = None) -> str:
    """Translate a text to the language of the user, or to `spoken`; a text that the catalogue lacks stays English."""
    return chinese().say(text) if (spoken or language()) == "zh" else text


def labelled(text: str) -> str:
    """Translate a label, or a comma-separated list of names, and add a colon in the form of the user's language."""
    if language() != "zh":
        return f"{text}: "
    names = text.split(", ")
    said = "、".join(map(say, names))
    return f"{said}：" if len(names) > 1 or said != text else f"{text}: "


@lru_cache(maxsize=1)
def chinese() -> Catalogue:
    """Return the Chinese catalogue, read from all files of `zh/`; each translates the texts of one part of the code."""
    import tomllib  # English needs none

    folder = resources.files("gpt_cli.common.language") / "zh"
    pairs: dict[str, str] = {}
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        pairs |= tomllib.loads(file.read_text("utf-8"))
    return Catalogue(pairs)
