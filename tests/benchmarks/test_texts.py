"""The texts of the benchmark of choices: what goes into them, and in which order."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from benchmarks import texts


def test_a_text_has_whole_files_up_to_its_size() -> None:
    assert texts.up_to(6, [b"abc", b"def", b"g"]) == b"abcdef"
    assert texts.up_to(5, [b"abc", b"def", b"g"]) == b"abc"  # what follows the first that is too large is left out


def test_poems_have_blank_lines_between_them_and_no_colours() -> None:
    content = "\x1b[32m《月》\x1b[m\n明月\n%\n\x1b[32m《春》\x1b[m\n花\n%\n".encode()
    assert texts.fortunes(content) == "《月》\n明月\n\n《春》\n花\n\n"
    assert texts.fortunes(content, 11) == "《月》\n"  # 10 bytes, and no part of the next character


def test_the_c_files_of_an_archive_come_in_its_order(here: Path) -> None:
    with tarfile.open("a.tar.xz", "w:xz") as archive:
        for name, content in (("b.c", b"int b;\n"), ("a.h", b"int h;\n"), ("a.c", b"int a;\n")):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    assert list(texts.kernel(here / "a.tar.xz")) == [b"int b;\n", b"int a;\n"]
