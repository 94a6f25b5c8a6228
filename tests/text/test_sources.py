import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.texts import lay

from gpt_cli.errors import DataError, EnvironmentFailure
from gpt_cli.text.sources import SourceWalk, require_there


def names(*sources: str) -> list[str]:
    return [found.name for found in SourceWalk(sources)]


part = st.text("aB-. é今", min_size=1, max_size=3).filter(lambda name: not name.startswith("."))


@given(st.lists(st.lists(part, min_size=1, max_size=3), min_size=1, max_size=8))
def test_files_come_in_the_order_of_their_paths_part_by_part(paths: list[list[str]]) -> None:
    """So `a/z.txt` comes before `a.txt`, in a directory, below a glob, and in every subfolder."""
    with tempfile.TemporaryDirectory() as folder:
        for parts in paths:
            path = Path(folder, *parts)
            if not any(above.is_file() for above in path.parents) and not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("text")
        expected = [str(path) for path in sorted(Path(folder).rglob("*")) if path.is_file()]
        assert names(folder) == expected
        assert names(f"{folder}/**") == expected
        assert names(f"{folder}/", folder) == expected


def test_links_pipes_runs_and_hidden_files(here: Path) -> None:
    config = "model: {context_length: 8, d_model: 8, num_heads: 1, num_blocks: 1}\n"
    lay({name: name for name in ("d/a.txt", "d/.hidden", "d/.git/b.txt", "d/run/checkpoints/c.txt", "other/x.txt")})
    lay({"d/run/config.yaml": config})
    os.link("d/a.txt", "d/hard.txt")
    (here / "d" / "again").symlink_to("a.txt")
    (here / "d" / "broken").symlink_to("nothere")
    (here / "d" / "loop").symlink_to("loop")
    (here / "d" / "folder").symlink_to("../other")
    (here / "d" / "outside").symlink_to("../other/x.txt")
    os.mkfifo(here / "d" / "pipe")
    walk = SourceWalk(["d", "other"])
    assert [found.name for found in walk] == ["d/a.txt", "d/hard.txt", "d/outside"]
    assert (len(walk.special), walk.num_repeated) == (3, 2)
    assert walk.num_bytes == 2 * len("d/a.txt") + len("other/x.txt")
    assert walk.only_files
    with pytest.raises(DataError, match="this is a run directory"):
        list(SourceWalk(["other", "d/run"]))
    os.chdir("d")
    assert names(".") == ["a.txt", "hard.txt", "outside"]


def test_files_that_word_and_wsl_put_beside_documents_are_hidden(here: Path) -> None:
    """In names that Windows wrote, WSL may show the colon as U+F03A."""
    marks = "d/letter.docx:Zone.Identifier", "d/letter.docx\uf03aZone.Identifier"
    lay(dict.fromkeys(("d/~$tter.docx", "d/~notes.docx", "d/letter.docx", "d/.a", *marks), ""))
    assert names("d") == names("d/*.docx*") == names("d/**") == ["d/letter.docx", "d/~notes.docx"]
    assert names("d/.*") == ["d/.a"]
    assert names("d/~$tter.docx") == ["d/~$tter.docx"]


def test_a_glob_over_links_in_circles_ends(here: Path) -> None:
    """Two links of a directory to itself make 2^40 paths before the system refuses."""
    lay(dict.fromkeys(("d/a.txt", "d/e/b.txt", "d/e/c.md", "d/.hidden/x.txt", "[.txt"), ""))
    for name in ("again", "and-again"):
        (here / "d" / name).symlink_to(".")
    assert names("d/**") == names("**/d/**") == ["d/a.txt", "d/e/b.txt", "d/e/c.md"]
    assert names("**/*.txt") == ["[.txt", "d/a.txt", "d/e/b.txt"]
    assert names("**/e/**/*.txt", f"{here}/**/**/c.md") == ["d/e/b.txt", f"{here}/d/e/c.md"]
    assert names("d/again/*.txt") == ["d/again/a.txt"]


@pytest.mark.parametrize("source", ["d", "d/**", "**/**/a.txt"])
def test_directories_have_a_bounded_number_of_levels(source: str, here: Path) -> None:
    """A thousand of them ended in a traceback."""
    lay({"d/" * 260 + "a.txt": ""})
    with pytest.raises(DataError, match="directories of at most 250 levels"):
        names(source)


@pytest.mark.parametrize("look", [names, require_there])
def test_a_glob_has_a_bounded_number_of_levels(look: Callable[[str], object]) -> None:
    """A thousand of them ended in a traceback."""
    with pytest.raises(DataError, match="directories of at most 250 levels"):
        look("/".join(["*"] * 1_000))


def test_a_glob_walks_each_directory_once_for_each_double_star(here: Path) -> None:
    """Five stars over 200 levels would be 10^9 walks."""
    lay({"d/" * 200 + "a.txt": ""})
    assert names("**/d/**/**/d/**/*.txt") == ["d/" * 200 + "a.txt"]


@pytest.mark.parametrize("name", ["broken", "loop"])
def test_a_named_link_that_leads_nowhere_is_missing(name: str, here: Path) -> None:
    (here / name).symlink_to("nothere" if name == "broken" else name)
    assert [(found.name, found.named, found.status) for found in SourceWalk([name])] == [(name, True, None)]


@pytest.mark.parametrize("source", ["d", "d/*.txt"])
def test_a_file_removed_while_its_directory_is_read_is_not_there(here: Path, source: str) -> None:
    lay(dict.fromkeys(("d/a.txt", "d/b.txt", "d/c.txt"), ""))
    walk = iter(SourceWalk([source]))
    assert next(walk).name == "d/a.txt"
    (here / "d" / "b.txt").unlink()
    assert [found.name for found in walk] == ["d/c.txt"]


@pytest.mark.parametrize(("call", "refused"), [("listdir", "d/e"), ("lstat", "d/e/a.txt")])
def test_a_directory_that_may_not_be_listed_or_entered_is_an_error(
    here: Path, monkeypatch: pytest.MonkeyPatch, call: str, refused: str
) -> None:
    lay({"d/e/a.txt": "A"})
    real = getattr(os, call)

    def refuse(path: Any, *others: Any, **named: Any) -> Any:  # root, who may run the tests, may do both
        if str(path) == refused:
            raise PermissionError(13, "Permission denied", path)
        return real(path, *others, **named)

    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(EnvironmentFailure, match=f'reading "{refused}": permission is denied'):
        names("d")


def test_a_glob_looks_once_whether_a_directory_is_closed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay({"d/1/2/3/4/a.txt": "A"})
    looked, access = [], os.access
    monkeypatch.setattr(os, "access", lambda path, mode: looked.append(str(path)) or access(path, mode))
    assert names("d/**/*.txt") == ["d/1/2/3/4/a.txt"]
    assert sorted(map(os.path.normpath, looked[1:])) == ["d", "d/1", "d/1/2", "d/1/2/3", "d/1/2/3/4"]


def test_the_fingerprint_of_a_walk_names_every_file(here: Path) -> None:
    lay({"a.txt": "A", "b.txt": "B"})

    def fingerprint(*sources: str) -> str:
        walk = SourceWalk(sources)
        assert list(walk)
        return walk.fingerprint()

    found = [fingerprint(*sources) for sources in (["a.txt"], ["b.txt"], ["a.txt", "b.txt"], ["b.txt", "a.txt"], ["-"])]
    assert len(set(found)) == len(found)
    assert fingerprint("a.txt", "a.txt") == found[0]


def test_the_log_to_which_gpt_itself_writes_is_no_part_of_the_text(here: Path) -> None:
    (here / "a.txt").write_text("A")
    script = "from gpt_cli.text.sources import SourceWalk; print([f.name for f in SourceWalk(['.'])])"
    with open("train.log", "w") as log:
        subprocess.run([sys.executable, "-c", script], stdout=log, check=True)
    assert (here / "train.log").read_text() == "['a.txt']\n"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("novl.txt", "novel.txt"),
        ("novel.tx", "novel.txt"),
        ("text/poems.txt", "texts/poems.txt"),
        ("texts/poem.txt", "texts/poems.txt"),
        ("poems.txt", "texts/poems.txt"),
        ("pyton-docs", "python-docs"),
        ("nothing-like-it", None),
        ("nowhere/novel.txt", "novel.txt"),
        ("nowhere/" * 2000 + "novel.txt", None),
        ("novel", "novel.txt"),
    ],
)
def test_a_text_that_is_missing_is_told_the_nearest_one(here: Path, name: str, meant: str | None) -> None:
    lay(dict.fromkeys(("novel.txt", "novel.log", "texts/poems.txt", ".hidden"), ""))
    with pytest.raises(DataError, match="there is no such file") as raised:
        require_there(name)
    begin, _, rest = str(raised.value.hint).partition("?")
    assert (begin.removeprefix("did you mean ") if rest else None) == meant


@pytest.mark.parametrize("name", ["the first line\nthe second", "今天天气很好。" * 40])
def test_a_text_in_the_place_of_a_name_is_to_be_saved(name: str) -> None:
    with pytest.raises(DataError, match="this is a text, but gpt reads files") as raised:
        require_there(name)
    assert raised.value.hint == "save the text to a file, and name that file"


@pytest.mark.parametrize("name", ["-", "python-docs", "*.txt", "a.txt"])
def test_what_is_there_or_refused_by_who_reads_it_is_not_missing(here: Path, name: str) -> None:
    (here / "a.txt").touch()
    require_there(name)
