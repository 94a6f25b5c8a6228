"""What the pages for contributors name exists: files in code spans, and names of what a file has."""

import re
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest
from support.documents import DOCS, ROOT

PAGES = [DOCS / "architecture.md", ROOT / "CONTRIBUTING.md"]
_ENDINGS = r"\.(?:py|c|js|md|toml|yaml|json|txt)"
_FILE = re.compile(rf"`((?:[\w.*-]+/)*[\w.*-]+{_ENDINGS}|(?:[\w.-]+/)+)`")
# `NAME` of `file`, or of [file](path)
_NAME_OF = re.compile(rf"`(?:\w+\.)?(\w+)` of (?:`([\w/.]+{_ENDINGS})`|\[[^\]]+\]\(([^)\s]+{_ENDINGS})\))")


def text_of(page: Path) -> str:
    """The page without its blocks of code, and without the names that a table of styles calls those before."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    table = re.compile(r"^\| before \| after \|\n(?:\|.*\n)+", re.MULTILINE)
    return table.sub(lambda match: re.sub(r"^\|.*?\|", "|", match[0], flags=re.MULTILINE), text)


@cache
def files() -> tuple[str, ...]:
    """The files and folders that pages name, each from the root of the repository; a folder ends with a slash."""
    folders = [ROOT / name for name in ("gpt_cli", "tests", "docs", "configs")]
    paths = [*ROOT.glob("*.*"), *folders, *(path for folder in folders for path in folder.rglob("*"))]
    return tuple(f"/{path.relative_to(ROOT).as_posix()}{'/' if path.is_dir() else ''}" for path in paths)


def called(name: str) -> list[str]:
    """The files that a page may mean, which writes the end of a path, with a star for what several have."""
    return [file for file in files() if fnmatch(file, f"*/{name}")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_in_code_spans_exist(page: Path) -> None:
    names = set(_FILE.findall(text_of(page)))
    assert len(names) > 15
    assert not sorted(name for name in names if not called(name))


def test_a_name_of_a_file_is_in_that_file() -> None:
    named = _NAME_OF.findall(PAGES[0].read_text("utf-8"))
    assert len(named) > 15
    for name, file, link in named:
        paths = [DOCS / link] if link else [ROOT / path[1:] for path in called(file)]
        assert any(re.search(rf"\b{name}\b", path.read_text("utf-8")) for path in paths), f"`{name}` of {file or link}"


def test_a_file_that_is_gone_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "`TAKEN` of `tests/config/test_untrusted.py`, `tools/gone/`\n\n| before | after |\n| `a.py` | `b.py` |\n"
    )
    names = _FILE.findall(text_of(page))
    assert names == ["tests/config/test_untrusted.py", "tools/gone/", "b.py"]
    assert not [name for name in names if called(name)]
