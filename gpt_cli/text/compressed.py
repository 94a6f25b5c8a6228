"""Decompress gzip and Zstandard data as streams, and read the files of archives in order, up to a size limit."""

import contextlib
import gzip
import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, BinaryIO

from gpt_cli.common.extras import optional_library
from gpt_cli.common.files import spooled
from gpt_cli.common.limits import ARCHIVE_FILES, EXPANSION, EXPANSION_FROM, ZSTD_WINDOW
from gpt_cli.errors import DataError, GptError, shown, visible
from gpt_cli.text.sources import is_hidden

# bytes; for twice as many, malloc would map new memory each time, and decoding would take twice as long (note 0049)
BLOCK = 2**16
# a Zstandard decoder returns at most 128 kB for each 4 bytes of input
_ZSTD_INPUT = 512


def unpacked(path: Path, file: BinaryIO) -> Iterator[bytes]:
    """Yield a file in blocks of about 64 KB; decompress .gz, .tgz and .zst, and raise DataError for damaged data."""
    unpack = {".gz": _gzip, ".tgz": _gzip, ".zst": _zstandard}.get(path.suffix.lower())
    if unpack is None:
        # read returns None if it would block, as for /proc/kmsg
        yield from iter(lambda: file.read(BLOCK) or b"", b"")
        return
    yield from Growth(path, file).bounded(unpack(path, file))


def _gzip(path: Path, file: BinaryIO) -> Iterator[bytes]:
    if not b"\x1f\x8b".startswith(file.read(2) or b""):
        ending = path.suffix.lower()
        inner = ".tar" if ending == ".tgz" else path.with_suffix("").suffix or ".txt"
        hint = f"if it is not packed, give the file a name that ends in {inner}"
        raise DataError(shown(path), f"this is not a gzip file, though its name ends in {ending}", hint=hint)
    file.seek(0)
    try:
        with gzip.GzipFile(fileobj=file) as content:
            yield from iter(lambda: content.read(BLOCK), b"")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(shown(path), f"the gzip data is damaged: {error}") from error


def _zstandard(path: Path, file: BinaryIO) -> Iterator[bytes]:
    zstandard = optional_library("zstandard", "zst", path)
    frame, chunks, num_bytes = None, list[bytes](), 0
    try:
        while content := file.read(_ZSTD_INPUT):
            while content:
                # unlike its frames, the library's stream reader accepts a truncated file
                frame = frame or zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW).decompressobj()
                chunks.append(frame.decompress(content))
                num_bytes += len(chunks[-1])
                content, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
            if num_bytes >= BLOCK:
                yield b"".join(chunks)
                chunks, num_bytes = [], 0
    except zstandard.ZstdError as error:
        raise DataError(shown(path), f"the Zstandard data is damaged: {error}") from error
    if frame is not None:
        raise DataError(shown(path), "the Zstandard data is damaged: it ends too early")
    yield b"".join(chunks)


class Growth:
    """A counter of the bytes decompressed from a file; raises DataError above a limit, as a guard against zip bombs.

    The limit is EXPANSION times the size of the file, but at least EXPANSION_FROM bytes.
    """

    def __init__(self, path: Path, file: BinaryIO):
        self._path, self._num_bytes = path, 0
        self._allowed = max(EXPANSION_FROM, EXPANSION * os.fstat(file.fileno()).st_size)

    def add(self, num_bytes: int) -> None:
        self.require(num_bytes)
        self._num_bytes += num_bytes

    def bounded(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield decompressed blocks unchanged; raise DataError once the total size exceeds the limit (see `Growth`)."""
        for block in blocks:
            self.add(len(block))
            yield block

    def require(self, num_bytes: int) -> None:
        """Raise DataError if `num_bytes` further bytes would exceed the limit."""
        if self._num_bytes + num_bytes > self._allowed:
            sentence = f"it expands to more than {EXPANSION} times its size, but text never does"
            hint = "if it is text after all, unpack it, and name the unpacked file"
            raise DataError(shown(self._path), sentence, hint=hint)


def is_archive(path: Path) -> bool:
    """Return whether a file name ends like that of an archive: .zip, .tar, .tar.gz, .tgz or .tar.zst."""
    return path.name.lower().endswith((".zip", ".tar", ".tar.gz", ".tgz", ".tar.zst"))


def files_of(path: Path, file: BinaryIO) -> Iterator[tuple[Path, BinaryIO]]:
    """Yield (path, open file) for each file in an archive, except hidden files; for any other file, yield that file.

    The path of a file in an archive begins with the path of the archive. Raises DataError if the archive is damaged, is
    encrypted, has too many files, or expands beyond the limit of `Growth`.
    """
    if not is_archive(path):
        yield path, file
        return
    growth, number = Growth(path, file), 0
    members = _zip_members if path.suffix.lower() == ".zip" else _tar_members
    try:
        for name, content in members(path, file):
            parts = Path(name.replace("\\", "/")).parts
            if any(map(is_hidden, parts)):
                continue
            if (number := number + 1) > ARCHIVE_FILES:
                raise DataError(shown(path), f"it contains more than {ARCHIVE_FILES:,} files")
            with spooled(growth.bounded(iter(partial(content.read, BLOCK), b"")), path.name) as held:
                yield path.joinpath(*(visible(part).strip('"') for part in parts if part != "/")), held
    except (GptError, MemoryError):
        raise
    except Exception as error:  # of many classes, depending on the damage
        if type(error) is RuntimeError:  # of zipfile, where a password is missing
            raise DataError(shown(path), "its files are encrypted", hint="unpack it with its password") from error
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DataError(shown(path), f"the archive is damaged: {visible(str(error))}") from error


def _zip_members(path: Path, file: BinaryIO) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            if not member.is_dir():
                with archive.open(member) as content:
                    yield _name_of(member), content


def _name_of(member: zipfile.ZipInfo) -> str:
    """Return the name of a file in a zip archive, decoded as UTF-8, else as GBK, which old Chinese programs write."""
    if not member.flag_bits & 0x800:  # else it is UTF-8
        for encoding in ("utf-8", "gb18030"):
            with contextlib.suppress(UnicodeError):
                return member.filename.encode("cp437").decode(encoding)
    return member.filename


def _tar_members(path: Path, file: BinaryIO) -> Iterator[tuple[str, IO[bytes]]]:
    blocks = unpacked(path, file)
    stream: Any = SimpleNamespace(read=lambda _: next(blocks, b""))  # tarfile reads on until it has enough
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            if member.isreg() and (content := archive.extractfile(member)):
                yield member.name, content
        for _ in blocks:  # a compressed archive may be truncated after its last file
            pass
