"""A page for a browser: one file that needs no network and no server."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

_SHARED = ("words.js", "shell.js")


@dataclass(frozen=True)
class Parts:
    """What a kind of page adds to the shell: `header.html`, `main.html`, `page.css` and scripts, in order, of a folder.

    Its first script adds words to WORDS, `title` among them; its last one hands `start` a function of the content.
    """

    folder: str
    scripts: tuple[str, ...]


def build_page(parts: Parts, content: Mapping[str, object]) -> bytes:
    """The page as HTML in UTF-8, with the content in it as JSON.

    It may load nothing and run nothing but its own script, whose hash its content security policy names; the content
    is data, which the script shows as text.
    """
    style = _part("shell.css") + _part(f"{parts.folder}/page.css")
    scripts = (*_SHARED, *(f"{parts.folder}/{name}" for name in parts.scripts))
    script = "(() => {\n'use strict';\n" + "\n".join(map(_part, scripts)) + "\n})();\n"
    rules = (
        "default-src 'none'",
        f"script-src {hash_of_source(script)}",
        f"style-src {hash_of_source(style)}",
        "base-uri 'none'",
        "form-action 'none'",
    )
    page = _part("shell.html")
    for name, value in {
        "policy": "; ".join(rules),
        "header": _part(f"{parts.folder}/header.html"),
        "main": _part(f"{parts.folder}/main.html"),
        "style": style,
        "script": script,
        "content": _as_json(content),  # last, since it may hold any text
    }.items():
        page = page.replace("{{" + name + "}}", value)
    return page.encode()


def packed(numbers: bytes) -> str:
    """Binary numbers as a string of the content; the script's `unpack` gives them back."""
    return base64.b64encode(zlib.compress(numbers)).decode()


def hash_of_source(text: str) -> str:
    """As a content security policy names a script or a style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _as_json(content: Mapping[str, object]) -> str:
    """JSON with nothing in it that HTML could take for markup."""
    text = json.dumps(content, ensure_ascii=True, allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _part(name: str) -> str:
    return (resources.files("gpt_cli.pages") / name).read_text("utf-8")
