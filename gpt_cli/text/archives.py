"""Read the files of an archive in their order: .zip, .tar, .tar.gz and .tar.zst."""

from __future__ import annotations

import contextlib
import io
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO

from gpt_cli.common.limits import ARCHIVE_FILES
from gpt_cli.errors import DataError, shown, visible
from gpt_cli.text.compressed import Growth, unpacked

ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.zst")


def is_archive(path: Path) -> bool:
    """Return whether a file name ends as archives do."""
    return path.name.endswith(ARCHIVES)


def files_of(path: Path, file: BinaryIO) -> Iterator[tuple[Path, BinaryIO]]:
    """Yield each regular file that is not hidden: its path below the archive, and its content.

    Raises DataError for a damaged archive, one that expands further than text does, and one of too many files.
    """
    growth, number = Growth(path, file), 0
    members = _zip_members if path.suffix == ".zip" else _tar_members
    try:
        for name, content in members(path, file):
            parts = Path(name.replace("\\", "/")).parts
            if any(part.startswith(".") or part == "__MACOSX" for part in parts):
                continue
            if (number := number + 1) > ARCHIVE_FILES:
                raise DataError(shown(path), f"it contains more than {ARCHIVE_FILES:,} files")
            with tempfile.TemporaryFile() as held:
                while block := content.read(2**16):
                    growth.add(len(block))
                    held.write(block)
                held.seek(0)
                yield path.joinpath(*(visible(part).strip('"') for part in parts if part != "/")), held
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, NotImplementedError) as error:
        raise DataError(shown(path), f"the archive is damaged: {visible(str(error))}") from error
    except RuntimeError as error:  # of zipfile, where a password is missing
        raise DataError(shown(path), "its files are encrypted", hint="unpack it with its password") from error


def _zip_members(path: Path, file: BinaryIO) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            if not member.is_dir():
                with archive.open(member) as content:
                    yield _name_of(member), content


def _name_of(member: zipfile.ZipInfo) -> str:
    """Decode the name of a file in an archive, which old programs of China write in unmarked GBK."""
    if not member.flag_bits & 0x800:  # else it is UTF-8
        for encoding in ("utf-8", "gb18030"):
            with contextlib.suppress(UnicodeError):
                return member.filename.encode("cp437").decode(encoding)
    return member.filename


def _tar_members(path: Path, file: BinaryIO) -> Iterator[tuple[str, IO[bytes]]]:
    blocks = io.BufferedReader(_Blocks(unpacked(path, file)))
    with tarfile.open(fileobj=blocks, mode="r|") as archive:
        for member in archive:
            if member.isreg() and (content := archive.extractfile(member)):
                yield member.name, content


class _Blocks(io.RawIOBase):
    """A file over blocks of bytes, to be read once."""

    def __init__(self, blocks: Iterator[bytes]):
        self._blocks, self._rest = blocks, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._rest = self._rest or next(self._blocks, b"")
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count
