"""Build a web page, one file that needs no network and no server. The kinds of pages are at the end of this module."""

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

from gpt_cli.common.language import language

_SHARED = ("words.js", "shell.js")


@dataclass(frozen=True)
class PageParts:
    """Files that a kind of page adds to the frame `shell.html`; all paths are below `pages/`.

    `folder` contains `header.html` and `main.html`, in which a marker such as {{attention_views/map.html}} includes
    that file. `scripts` run in order, and each script's folder adds its `page.css`. Scripts named `words.js` add texts,
    such as `title`, in two languages to the JavaScript constant WORDS. The last script calls `start` with a function
    that shows the page's content. The files in `worker` are joined into one script, whose text is the constant WORKER.
    """

    folder: str
    scripts: tuple[str, ...]
    worker: tuple[str, ...] = ()


def build_page(parts: PageParts, content: Mapping[str, object], data: str = "") -> bytes:
    """Return an HTML page in UTF-8 that contains `content` as JSON, and `data`, such as weights in base64.

    The content security policy lets the page load nothing and run only its script, which shows the content as text. If
    the author uses `gpt` in Chinese, the page opens in Chinese; else in the language of the reader's browser.
    """
    folders = dict.fromkeys(path.partition("/")[0] for path in parts.scripts)
    style = _part("shell.css") + "".join(_part(f"{folder}/page.css") for folder in folders)
    worker = f"const WORKER = {_as_json(_script(parts.worker))};\n" if parts.worker else ""
    script = _script((*_SHARED, *parts.scripts), worker)
    rules = (
        "default-src 'none'",
        f"script-src {hash_of_source(script)}",
        f"style-src {hash_of_source(style)}",
        "base-uri 'none'",
        "form-action 'none'",
        *(["worker-src blob:"] if parts.worker else []),
    )
    page = _part("shell.html")
    for name, value in {
        "language": "zh-CN" if language() == "zh" else "en",
        "policy": "; ".join(rules),
        "header": _part(f"{parts.folder}/header.html"),
        "main": re.sub(r"\{\{(.+?)\}\}", lambda match: _part(match[1]), _part(f"{parts.folder}/main.html")),
        "style": style,
        "script": script,
        "data": f'<script type="text/plain" id="data">{data}</script>\n' if data else "",
        "content": _as_json(content),  # last, since it may hold any text
    }.items():
        page = page.replace("{{" + name + "}}", value)
    return page.encode()


def packed(numbers: bytes) -> str:
    """Compress an array's bytes to base64 text for a page's content; `unpack` in the page's script reverses this."""
    return base64.b64encode(zlib.compress(numbers)).decode()


def hash_of_source(text: str) -> str:
    """Return the SHA-256 of a script or style for a content security policy: 'sha256-...' in base64, with quotes."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _script(names: Sequence[str], first: str = "") -> str:
    """Join the code `first` and the files `names` into one strict-mode JavaScript script with only local names."""
    return "(() => {\n'use strict';\n" + first + "\n".join(map(_part, names)) + "\n})();\n"


def _as_json(content: Mapping[str, object] | str) -> str:
    """Encode `content` as JSON without any character that HTML could take for markup."""
    text = json.dumps(content, ensure_ascii=True, allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _part(name: str) -> str:
    return (resources.files("gpt_cli.tools.pages") / name).read_text("utf-8")


def _scripts(folder: str, names: str) -> tuple[str, ...]:
    """Return the paths of a folder's scripts; `names` are separated by spaces, in the order in which they run."""
    return tuple(f"{folder}/{name}.js" for name in names.split())


# what pages share: the heads with their scores and one head on its text; the steps of a training; grids of layers
_VIEWS = _scripts("attention_views", "words weights maps lines heads scores tokens writes views")
_SCATTER = ("attention_views/scatter.js",)
_FILM = ("film/film.js",)
_GRID_OF_LENS, _GRID_OF_PATCHES = _scripts("grids", "words grid lens"), _scripts("grids", "words grid patch")

_OF_ATTENTION = _scripts("attention", "words packed packed_writes page")
ATTENTION = PageParts("attention", (*_VIEWS, *_SCATTER, *_GRID_OF_LENS, *_FILM, *_OF_ATTENTION))
HANDOUT = PageParts("handout", _scripts("handout", "words page"))
HEADS = PageParts("heads", ("attention_views/words.js", *_SCATTER, *_FILM, *_scripts("heads", "words page")))
LENS = PageParts("lens", (*_GRID_OF_LENS, *_scripts("lens", "words curves page")))
PATCH = PageParts("patch", (*_GRID_OF_PATCHES, *_FILM, *_scripts("patch", "words page")))
_OF_REPORT = _scripts("report", "words numbers runs curves panel samples attention page")
REPORT = PageParts("report", (*_scripts("attention_views", "weights maps"), "attention/packed.js", *_OF_REPORT))
# a trained model runs in this page: its engine computes in a worker
ENGINE = _scripts(
    "model/engine",
    "refusal numbers rows changes layers positions ngrams attention model reading tokenizer byte_pairs imported "
    "labels sampling streams explain heads lens patching worker",
)
_OF_MODEL = (
    "words calling engine/labels engine/rows live settings writing candidates reading changing second head_views "
    "effects explaining page"
)
MODEL = PageParts("model", (*_VIEWS, *_GRID_OF_LENS, "grids/patch.js", *_scripts("model", _OF_MODEL)), worker=ENGINE)
