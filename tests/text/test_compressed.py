"""Archives are read as the files inside, in their order, and no damage or bomb takes more than an error."""

import errno
import gzip
import resource
import subprocess
import tarfile
import tempfile
import zipfile
from pathlib import Path

import pytest
import zstandard
from support.archives import tarred, zipped
from support.corpora import documents_of
from support.texts import lay, read, read_with_notices, refused

from gpt_cli.common.machine.failures import as_gpt_error
from gpt_cli.errors import EnvironmentFailure
from gpt_cli.text import compressed

FILES = {
    "poems/春.txt": "春眠不觉晓".encode(),
    "poems/b.jsonl.gz": gzip.compress(b'{"text": "one"}\n{"text": "two"}\n'),
    "c.csv": b"text\nthree\n",
    ".hidden": b"never",
    "d/~$tter.docx": b"never",
    "c.csv:Zone.Identifier": b"never",
    "__MACOSX/c.csv": b"never",
    "photo.jpg": b"\xff\xd8\xff\xe0",
}
DOCUMENTS = ("春眠不觉晓", "one", "two", "three")


def archive_of(ending: str, files: dict[str, bytes]) -> bytes:
    if ending == "zip":
        return zipped(files)
    pack = {"tar": bytes, "tar.gz": gzip.compress, "tgz": gzip.compress, "tar.zst": zstandard.compress}[ending]
    return pack(tarred(files, link="/etc/passwd"))


@pytest.mark.parametrize("ending", ["zip", "tar", "tar.gz", "tgz", "tar.zst"])
def test_an_archive_is_the_files_inside(here: Path, ending: str) -> None:
    content = archive_of(ending, FILES)
    lay({f"a.{ending}": content, f"folder/a.{ending}": content})
    corpus = read(f"a.{ending}")
    assert documents_of(corpus) == DOCUMENTS
    assert list(corpus.notices()) == [f"left out 1 file without text: a.{ending}/photo.jpg (a JPEG picture)"]
    assert read("folder").digest == corpus.digest


@pytest.mark.parametrize("size", [2_000, 200_000])
def test_a_full_folder_of_temporary_files_is_an_error_of_the_machine(here: Path, size: int) -> None:
    """It counted as damage of the archive, which data.skip_bad leaves out."""
    lay({"folder/a.zip": zipped({"a.txt": b"text" * (size // 4)})})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, before[1]))
    try:
        with pytest.raises(EnvironmentFailure, match=r"a\.zip") as raised:
            read("folder", skip_bad=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert raised.value.hint == "set TMPDIR to a folder with more space"


@pytest.mark.parametrize("name", ["a.zip", "a.html", "a.docx"])
@pytest.mark.parametrize("fault", ["gone", "none", "no process"])
def test_a_machine_that_gives_no_temporary_file_or_process_makes_no_file_bad(
    here: Path, name: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    content = b"<p>text</p>" if name == "a.html" else zipped({"a.html": b"<p>text</p>"})
    lay({"folder/a.txt": "good", f"folder/{name}": content})
    monkeypatch.setattr(tempfile, "tempdir", str(here / "none") if fault == "gone" else None)
    if fault == "none":
        monkeypatch.setattr(tempfile, "_candidate_tempdir_list", list)
    if fault == "no process":
        monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises((EnvironmentFailure, OSError)) as raised:
        read("folder", skip_bad=True)
    hint = as_gpt_error(raised.value, "gpt train").hint or ""
    assert hint.startswith("ulimit -u" if fault == "no process" else "set TMPDIR")


@pytest.mark.parametrize("ending", ["zip", "tar.gz"])
def test_bad_files_of_an_archive_are_left_out_as_a_whole_where_the_config_says_so(here: Path, ending: str) -> None:
    bad = b"fine at first\n" * 9000 + "静夜思".encode("gb18030") * 9
    (here / f"a.{ending}").write_bytes(archive_of(ending, {"bad.txt": bad, "good.txt": b"good"}))
    hint = refused(f"a.{ending}", r"bad\.txt: line 9,001").hint or ""
    assert hint.startswith("unpack the archive first; if it is ")
    assert hint.endswith("; or ‹data.skip_bad=true› leaves such files out")
    left_out = f"left out 1 bad file: a.{ending}/bad.txt"
    assert read_with_notices(f"a.{ending}", skip_bad=True) == (("good",), [left_out])


def test_an_archive_inside_another_is_left_out_with_its_name(here: Path) -> None:
    inner = archive_of("zip", {"b.txt": b"inner"})
    (here / "a.zip").write_bytes(archive_of("zip", {"a.txt": b"outer", "b.zip": inner}))
    left_out = "left out 1 file without text: a.zip/b.zip (an archive inside another)"
    assert read_with_notices("a.zip") == (("outer",), [left_out])


def test_a_bomb_and_too_many_files_are_refused(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "EXPANSION_FROM", 0)
    (here / "bomb.zip").write_bytes(zipped({"a.txt": b"a" * 2**24}))
    refused("bomb.zip", "it expands to more than 200 times its size")
    monkeypatch.setattr(compressed, "ARCHIVE_FILES", 2)
    (here / "many.zip").write_bytes(zipped({f"{number}.txt": b"a" for number in range(3)}))
    refused("many.zip", "it contains more than 2 files")


def test_paths_that_lead_out_of_an_archive_lead_nowhere(here: Path) -> None:
    (here / "a.zip").write_bytes(zipped({"../../up.txt": b"up", "/etc/abs.txt": b"abs"}))
    assert documents_of(read("a.zip")) == ("abs",)
    assert sorted(path.name for path in here.iterdir()) == ["a.zip"]


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_archive_is_named_or_left_out(here: Path, method: int) -> None:
    with zipfile.ZipFile(here / "a.zip", "w", method) as archive:
        archive.writestr("a.txt", bytes(range(256)) * 99)
    content = bytearray((here / "a.zip").read_bytes())
    content[45:65] = bytes(20)
    (here / "a.zip").write_bytes(content)
    refused("a.zip", "the archive is damaged: ")
    (here / "b.txt").write_text("whole")
    assert documents_of(read(".", skip_bad=True)) == ("whole",)


def test_an_archive_whose_names_or_sizes_cannot_be_read_is_damaged(here: Path) -> None:
    name = zipped({"é.txt": b"a"}).replace("é".encode(), b"\xff\xff")
    (here / "a.zip").write_bytes(name)
    refused("a.zip", "the archive is damaged: ")
    header = tarfile.TarInfo("a.txt")
    header.pax_headers = {"GNU.sparse.size": "x"}
    with tarfile.open(here / "a.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(header)
    refused("a.tar", "the archive is damaged: ")


def test_encrypted_files_are_named(here: Path) -> None:
    content = bytearray(zipped({"a.txt": b"secret"}))
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(mark) + offset] |= 1
    (here / "a.zip").write_bytes(content)
    refused("a.zip", "its files are encrypted")


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
