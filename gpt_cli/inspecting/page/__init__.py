"""Attention as one page for a browser: a single file that needs no network and no server."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from dataclasses import asdict
from importlib import resources

import numpy as np

from gpt_cli.inspecting.colours import STEPS
from gpt_cli.inspecting.dump import AttentionDump
from gpt_cli.inspecting.labels import label_of

_SCRIPTS = ("words.js", "weights.js", "maps.js", "lines.js", "page.js")
_FEW = 2**18  # so many numbers of two bytes still make a file below a megabyte
_MAX_PROMPT = 80  # characters; the whole text is on the page below


def build_page(dump: AttentionDump) -> bytes:
    """The page as HTML in UTF-8, with the weights of all chosen heads in it.

    It may load nothing and run nothing but its own script, whose hash its content security policy names; the text of
    tokens and of the prompt is data, which the script shows as text.
    """
    style = _part("page.css")
    script = "(() => {\n'use strict';\n" + "\n".join(map(_part, _SCRIPTS)) + "\n})();\n"
    rules = (
        "default-src 'none'",
        f"script-src {hash_of_source(script)}",
        f"style-src {hash_of_source(style)}",
        "base-uri 'none'",
        "form-action 'none'",
    )
    page = _part("page.html")
    for name, value in {
        "policy": "; ".join(rules),
        "style": style,
        "script": script,
        "content": _content(dump),
    }.items():
        page = page.replace("{{" + name + "}}", value)
    return page.encode()


def quantise(weights: np.ndarray, levels: int) -> np.ndarray:
    """Square roots of weights, 0 to 1, as whole numbers up to `levels`.

    The square of number / levels differs from the weight w by at most sqrt(w) / levels + 1 / (4 levels^2): small
    weights, of which long texts have many, keep more digits than large ones.
    """
    return np.rint(np.sqrt(weights, dtype=np.float64) * levels).astype("<u2" if levels > 255 else "u1")


def _content(dump: AttentionDump) -> str:
    """The JSON that the script reads, with nothing in it that HTML could take for markup."""
    num_tokens = len(dump.tokens)
    triangles = dump.weights[..., *np.tril_indices(num_tokens)]  # [layers, heads, T (T + 1) / 2]
    levels = 65535 if triangles.size <= _FEW else 255
    content = {
        "tokens": dump.tokens,
        "labels": [{"text": label_of(token, limit=None), "short": label_of(token)} for token in dump.tokens],
        "layers": dump.layers,
        "heads": dump.heads,
        "generated": [{"probability": chance.probability, "rank": chance.rank} for chance in dump.chances],
        "colours": STEPS,
        "origin": dump.origin and asdict(dump.origin) | {"prompt": label_of(dump.origin.prompt, limit=_MAX_PROMPT)},
        "levels": levels,
        "weights": base64.b64encode(zlib.compress(quantise(triangles, levels).tobytes(), 9)).decode(),
    }
    text = json.dumps(content, ensure_ascii=True, allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _part(name: str) -> str:
    return (resources.files(__name__) / name).read_text("utf-8")


def hash_of_source(text: str) -> str:
    """As a content security policy names a script or a style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
