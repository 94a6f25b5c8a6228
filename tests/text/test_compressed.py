"""Archives are read as the files inside, in their order, and no damage or bomb takes more than an error."""

from __future__ import annotations

import gzip
import random
import zipfile
from pathlib import Path

import pytest
import zstandard
from support.archives import tarred, zipped

from gpt_cli.config import DataConfig
from gpt_cli.errors import DataError
from gpt_cli.text import compressed
from gpt_cli.text.load import SourceCorpus, read_data

FILES = {
    "poems/春.txt": "春眠不觉晓".encode(),
    "poems/b.jsonl.gz": gzip.compress(b'{"text": "one"}\n{"text": "two"}\n'),
    "c.csv": b"text\nthree\n",
    ".hidden": b"never",
    "d/~$tter.docx": b"never",
    "__MACOSX/c.csv": b"never",
    "photo.jpg": b"\xff\xd8\xff\xe0",
}
DOCUMENTS = ("春眠不觉晓", "one", "two", "three")


def archive_of(ending: str, files: dict[str, bytes]) -> bytes:
    if ending == "zip":
        return zipped(files)
    pack = {"tar": bytes, "tar.gz": gzip.compress, "tgz": gzip.compress, "tar.zst": zstandard.compress}[ending]
    return pack(tarred(files, link="/etc/passwd"))


ENDINGS = ["zip", "tar", "tar.gz", "tgz", "tar.zst"]


def read(name: str) -> SourceCorpus:
    return read_data(DataConfig(source=name))


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_archive_is_the_files_inside(here: Path, ending: str) -> None:
    (here / f"a.{ending}").write_bytes(archive_of(ending, FILES))
    corpus = read(f"a.{ending}")
    assert corpus.documents == DOCUMENTS
    assert list(corpus.notices()) == [f"left out 1 file without text: a.{ending}/photo.jpg (a JPEG picture)"]
    (here / "folder").mkdir()
    (here / "folder" / f"a.{ending}").write_bytes(archive_of(ending, FILES))
    assert read("folder").digest == corpus.digest


@pytest.mark.parametrize("ending", ["zip", "tar.gz"])
def test_bad_files_of_an_archive_are_left_out_as_a_whole_where_the_config_says_so(here: Path, ending: str) -> None:
    bad = b"fine at first\n" * 9000 + "静夜思".encode("gb18030") * 9
    (here / f"a.{ending}").write_bytes(archive_of(ending, {"bad.txt": bad, "good.txt": b"good"}))
    with pytest.raises(DataError, match=r"bad\.txt: line 9,001") as raised:
        read(f"a.{ending}")
    hint = raised.value.hint or ""
    assert hint.startswith("unpack the archive first; if it is ")
    assert hint.endswith("; or ‹data.skip_bad=true› leaves such files out")
    corpus = read_data(DataConfig(source=f"a.{ending}", skip_bad=True))
    assert corpus.documents == ("good",)
    assert list(corpus.notices()) == [f"left out 1 bad file: a.{ending}/bad.txt"]


def test_an_archive_inside_another_is_left_out_with_its_name(here: Path) -> None:
    inner = archive_of("zip", {"b.txt": b"inner"})
    (here / "a.zip").write_bytes(archive_of("zip", {"a.txt": b"outer", "b.zip": inner}))
    corpus = read_data(DataConfig(source="a.zip"))
    assert corpus.documents == ("outer",)
    assert list(corpus.notices()) == ["left out 1 file without text: a.zip/b.zip (an archive inside another)"]


def test_an_archive_of_questions_is_a_list_of_questions(here: Path) -> None:
    (here / "a.zip").write_bytes(zipped({"q.json": b'[{"question": "a", "answer": "b"}]'}))
    assert read("a.zip").how.conversations


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_cut_or_changed_archive_is_an_error_or_has_another_text(here: Path, ending: str) -> None:
    content, draw = archive_of(ending, FILES), random.Random(0)
    for number in range(100):
        damaged = bytearray(content)
        damaged[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        (here / f"a.{ending}").write_bytes(damaged if number % 2 else content[: draw.randrange(len(content))])
        lines = list[str]()
        try:
            read(f"a.{ending}")
        except DataError as error:
            lines = error.lines()
        assert all(len(line) < 400 for line in lines)


def test_a_bomb_and_too_many_files_are_refused(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "EXPANSION_FROM", 0)
    (here / "bomb.zip").write_bytes(zipped({"a.txt": b"a" * 2**24}))
    with pytest.raises(DataError, match="it expands to more than 200 times its size"):
        read("bomb.zip")
    monkeypatch.setattr(compressed, "ARCHIVE_FILES", 2)
    (here / "many.zip").write_bytes(zipped({f"{number}.txt": b"a" for number in range(3)}))
    with pytest.raises(DataError, match="it contains more than 2 files"):
        read("many.zip")


def test_paths_that_lead_out_of_an_archive_lead_nowhere(here: Path) -> None:
    (here / "a.zip").write_bytes(zipped({"../../up.txt": b"up", "/etc/abs.txt": b"abs"}))
    assert read("a.zip").documents == ("abs",)
    assert sorted(path.name for path in here.iterdir()) == ["a.zip"]


def test_encrypted_files_are_named(here: Path) -> None:
    content = bytearray(zipped({"a.txt": b"secret"}))
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(mark) + offset] |= 1
    (here / "a.zip").write_bytes(content)
    with pytest.raises(DataError, match="its files are encrypted"):
        read("a.zip")


@pytest.mark.parametrize("encoding", ["gb18030", "utf-8", "cp437"])
def test_names_of_old_programs_are_shown_right(here: Path, encoding: str) -> None:
    class Unmarked(zipfile.ZipInfo):
        """A name in bytes that no flag calls UTF-8."""

        def _encodeFilenameFlags(self) -> tuple[bytes, int]:
            return self.filename.encode(encoding), self.flag_bits

    picture = "café.png" if encoding == "cp437" else "照片.png"
    with zipfile.ZipFile(here / "a.zip", "w") as archive:
        archive.writestr(Unmarked("a.txt"), "text")
        archive.writestr(Unmarked(picture), b"\x89PNG\r\n\x1a\n")
    assert list(read("a.zip").notices()) == [f"left out 1 file without text: a.zip/{picture} (a PNG picture)"]
