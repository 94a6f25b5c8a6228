"""Write lessons as notebooks: their text, with each command as the function of Python that it names.

python docs/notebooks/make.py
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

from gpt_cli.cli.command_table import TABLE, function_of
from gpt_cli.config.request import flag_of, flags_of
from gpt_cli.config.suggest import FUNCTIONS

DOCS = Path(__file__).parents[1]
NAMES = ("lesson", "circuit")
PAGES = {f"{name}{language}.md": f"{name}{language}.ipynb" for name in NAMES for language in ("", ".zh-CN")}
# what a reader of the page types in a shell, a reader of the notebook has here
BEGINNINGS = {
    "lesson.md": (
        "This notebook is [the lesson](lesson.md) with Python in place of the command line. It needs a kernel in whose "
        "environment `gpt` is [installed](../README.md#install), and no network. You train a model on a text, find "
        "one of its attention heads by looking at a page, and follow that head step by step through its own numbers. "
        "On two cores the cells take a minute and a half, most of it for training.\n\n"
        "Your numbers may differ from those in the text, even in which head does what; another version of Python "
        "comes with a somewhat different text."
    ),
    "lesson.zh-CN.md": (
        "这本笔记就是[这堂课](lesson.zh-CN.md)，只是用 Python 代替了命令行。运行前，请选一个"
        "[装好了 `gpt`](../README.zh-CN.md#安装) 的内核；全程不需要网络。"
        "你将用一段文本训练一个模型，从页面上找到它的一个注意力头，再用这个头自己的数字一步一步把它算出来。"
        "在两个核上，全部单元约需一分半钟，大部分时间花在训练上。\n\n"
        "你的数字可能与正文不同，连哪个头负责什么也可能不同；不同版本的 Python 自带的文本也略有差别。"
    ),
    "circuit.md": (
        "This notebook is [the lesson on a circuit](circuit.md) with Python in place of the command line. It needs a "
        "kernel in whose environment `gpt` is [installed](../README.md#install), and no network. You train a model of "
        "four attention heads, and find out which of them copy, what passes between them, and when that began. "
        "On two cores the cells take a minute.\n\n"
        "Your numbers may differ from those in the text, even in which head does what."
    ),
    "circuit.zh-CN.md": (
        "这本笔记就是[找回路那一课](circuit.zh-CN.md)，只是用 Python 代替了命令行。运行前，请选一个"
        "[装好了 `gpt`](../README.zh-CN.md#安装) 的内核；全程不需要网络。"
        "你将训练一个有四个注意力头的模型，找出照抄的是哪几个头、它们之间传递了什么、从哪一步开始。在两个核上，全部单元约需一分钟。\n\n"
        "你的数字可能与正文不同，连哪个头负责什么也可能不同。"
    ),
}
FENCED = re.compile(r"^```(?:console\n\$ gpt (.*?)\n.*?|python\n(.*?))^```\n", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#)")
TRAINING = "for report in gpt_cli.{call}:\n    pass\nreport"


def python(command: str) -> str:
    """The call of Python that `gpt COMMAND` stands for."""
    words = shlex.split(command)
    name = " ".join(words.pop(0) for _ in range(2 if " ".join(words[:2]) in TABLE else 1))
    request = function_of(name).request
    flags = {flag_of(field, flag): (field, about.annotation) for field, about, flag in flags_of(request)}
    place = [field for field, _, flag in flags_of(request) if flag.position]
    arguments = dict[str, Any]()
    while words:
        word = words.pop(0)
        if word not in flags:
            arguments[place.pop(0)] = word
        else:
            field, kind = flags[word]
            value = True if kind is bool else words.pop(0)
            arguments[field] = [*_listed(arguments[field]), value] if field in arguments else value
    leading = next(field for field, _, _ in flags_of(request))
    written = [
        _literal(value) if field == leading else f"{field}={_literal(value)}"
        for field, value in sorted(arguments.items(), key=lambda item: item[0] != leading)
    ]
    if name == "train":
        return TRAINING.format(call=f"train({', '.join([*written, 'progress=True'])})")
    return f"gpt_cli.{FUNCTIONS.get(name, name.replace(' ', '.'))}({', '.join(written)})"


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _literal(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, bool) or value.isdecimal():
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def notebook(page: str) -> dict[str, Any]:
    """A page of docs/ as a notebook without outputs."""
    title, _, rest = (DOCS / page).read_text().partition("\n")
    chapters = rest[rest.index("\n## ") + 1 :]
    cells = [_text(f"{title}\n\n{BEGINNINGS[page]}"), _code("import gpt_cli")]
    end = 0
    for found in FENCED.finditer(chapters):
        cells += [_text(chapters[end : found.start()]), _code(python(found[1]) if found[1] else found[2].strip())]
        end = found.end()
    cells = [cell for cell in [*cells, _text(chapters[end:])] if cell["source"]]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    about = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return {"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5}


def _text(source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": LINK.sub("](../", source).strip()}


def _code(source: str) -> dict[str, Any]:
    return {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": source}


def written(page: str) -> str:
    """The notebook as the file that stores it."""
    return json.dumps(notebook(page), ensure_ascii=False, indent=1) + "\n"


if __name__ == "__main__":
    for page, name in PAGES.items():
        (DOCS / "notebooks" / name).write_text(written(page))
