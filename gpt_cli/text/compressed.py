"""Decompress gzip and Zstandard as streams, up to a limit."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from gpt_cli.common.extras import optional_library
from gpt_cli.common.limits import EXPANSION, EXPANSION_FROM, ZSTD_WINDOW
from gpt_cli.errors import DataError, shown

# bytes; of twice as many, malloc would map the text anew, and decoding take twice as long (note 0049)
BLOCK = 2**16
# a Zstandard decoder returns at most 128 kB for each 4 bytes of input
_ZSTD_INPUT = 512


def unpacked(path: Path, file: BinaryIO) -> Iterator[bytes]:
    """Yield the content of a file in large blocks, decompressed where its name says so."""
    unpack = {".gz": _gzip, ".tgz": _gzip, ".zst": _zstandard}.get(path.suffix)
    if unpack is None:
        # None comes of what would wait, such as /proc/kmsg
        yield from iter(lambda: file.read(BLOCK) or b"", b"")
        return
    grown = Growth(path, file)
    for block in unpack(path, file):
        grown.add(len(block))
        yield block


def _gzip(path: Path, file: BinaryIO) -> Iterator[bytes]:
    if not b"\x1f\x8b".startswith(file.read(2) or b""):
        hint = f"if it is not packed, let the file name end in {path.with_suffix('').suffix or '.txt'}"
        raise DataError(shown(path), "this is no gzip file, though its name ends in .gz", hint=hint)
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
                # the library's stream reader takes a truncated file for a whole one, its frames do not
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
    """The size of decompressed data; raises DataError where no text would become so large."""

    def __init__(self, path: Path, file: BinaryIO):
        self._path, self._num_bytes = path, 0
        self._allowed = max(EXPANSION_FROM, EXPANSION * os.fstat(file.fileno()).st_size)

    def add(self, num_bytes: int) -> None:
        self.require(num_bytes)
        self._num_bytes += num_bytes

    def require(self, num_bytes: int) -> None:
        """Raise the error if a number of further bytes is too many."""
        if self._num_bytes + num_bytes > self._allowed:
            raise DataError(
                shown(self._path),
                f"it expands to more than {EXPANSION} times its size, which text does not",
                hint="if it is text after all, unpack it, and name the file that comes out",
            )
