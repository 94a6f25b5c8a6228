"""From one file to its documents: plain text, .jsonl and .parquet, packed or not, read as a stream."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from gpt_cli.errors import DataError, reason, shown, visible
from gpt_cli.limits import LINE_CHARACTERS, ZSTD_WINDOW
from gpt_cli.opening import open_regular, require_unchanged
from gpt_cli.text.blocks import Block
from gpt_cli.text.decoding import decoded, is_binary
from gpt_cli.text.packed import Growth, Reading, is_plain, optional_library
from gpt_cli.text.parquet import rows_of_table

# bytes; of twice as many, malloc would map the text anew, and decoding take twice as long (NOTES.md)
BLOCK = 2**16
# a Zstandard decoder returns at most 128 kB for each 4 bytes of input
_ZSTD_INPUT = 512


def read_file(
    path: Path,
    how: Reading,
    *,
    named: bool,
    hint: str | None = None,
    count: Callable[[int], object] = lambda _: None,
) -> Iterator[Block] | None:
    """The documents of a file in blocks; None for a file without text that the user has not `named`.

    Only the first bytes are read before the first block is taken; `count` receives the bytes of the file that were read
    since its last call. Raises DataError, there or later, for what is missing, damaged or not text, and
    EnvironmentFailure where permission or an optional library is missing.
    """
    file = open_regular(path, DataError, hint=hint)
    try:
        before = os.fstat(file.fileno())
        if path.suffix == ".parquet":
            return _watched(path, file, before, rows_of_table(path, file, how), count)
        content = _unpacked(path, file, how)
        first = next(content, b"")
        if not named and is_binary(first):
            file.close()
            return None
    except OSError as error:  # a broken disk
        file.close()
        raise DataError(shown(path), reason(error)) from error
    except BaseException:
        file.close()
        raise
    blocks = decoded(chain([first], content), visible(path))
    if path.name.removesuffix(".gz").removesuffix(".zst").endswith(".jsonl"):
        blocks = _lines((block.text for block in blocks), path, how.text_field)
    return _watched(path, file, before, blocks, count)


def _watched(
    path: Path, file: BinaryIO, before: os.stat_result, blocks: Iterator[Block], count: Callable[[int], object]
) -> Iterator[Block]:
    """The blocks of an open file; raises DataError where the file changes while it is read."""
    with file:
        counted = 0
        try:
            for block in blocks:
                yield block
                if (position := file.tell()) >= counted + BLOCK:
                    count(position - counted)
                    counted = position
        except OSError as error:  # a broken disk
            raise DataError(shown(path), reason(error)) from error
        except DataError:  # which may be the consequence of a change
            require_unchanged(path, file, before, DataError)
            raise
        count(before.st_size - counted)
        require_unchanged(path, file, before, DataError)


def _unpacked(path: Path, file: BinaryIO, how: Reading) -> Iterator[bytes]:
    """The content of a file in large blocks, decompressed where its name says so."""
    if path.suffix == ".gz":
        return _bounded(path, file, how, _gzip(path, file))
    if path.suffix == ".zst":
        return _bounded(path, file, how, _zstandard(path, file))
    # None comes of what would wait, such as /proc/kmsg
    return iter(lambda: file.read(BLOCK) or b"", b"")


def _gzip(path: Path, file: BinaryIO) -> Iterator[bytes]:
    try:
        with gzip.GzipFile(fileobj=file) as content:
            yield from iter(lambda: content.read(BLOCK), b"")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(shown(path), f"the gzip data is damaged: {error}") from error


def _zstandard(path: Path, file: BinaryIO) -> Iterator[bytes]:
    zstandard = optional_library("zstandard", "zst", path)
    frame, found, num_found = None, list[bytes](), 0
    try:
        while content := file.read(_ZSTD_INPUT):
            while content:
                # the library's stream reader takes a truncated file for a whole one, its frames do not
                frame = frame or zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW).decompressobj()
                found.append(frame.decompress(content))
                num_found += len(found[-1])
                content, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
            if num_found >= BLOCK:
                yield b"".join(found)
                found, num_found = [], 0
    except zstandard.ZstdError as error:
        raise DataError(shown(path), f"the Zstandard data is damaged: {error}") from error
    if frame is not None:
        raise DataError(shown(path), "the Zstandard data is damaged: it ends too early")
    yield b"".join(found)


def _bounded(path: Path, file: BinaryIO, how: Reading, content: Iterable[bytes]) -> Iterator[bytes]:
    grown = Growth(path, file, how)
    for block in content:
        grown.add(len(block))
        yield block


def _lines(text: Iterable[str], path: Path, field: str) -> Iterator[Block]:
    """The documents of JSON lines; a line is the largest thing that must fit in memory."""
    unfinished, length, number = list[str](), 0, 0
    # split at newlines alone: JSON text may contain U+2028, where splitlines would cut
    for block in chain(text, ["\n"]):
        first, *others = block.split("\n")
        unfinished.append(first)
        length += len(first)
        if length > LINE_CHARACTERS:
            raise DataError(f"{visible(path)}:{number + 1}", f"this line has more than {LINE_CHARACTERS:,} characters")
        for following in others:
            number += 1
            line = "".join(unfinished)
            unfinished, length = [following], len(following)
            if line.strip() and (found := _text_field(line, field, f"{visible(path)}:{number}")):
                yield Block(True, found)


def _text_field(line: str, field: str, where: str) -> str:
    example = json.dumps({field: "..."}, ensure_ascii=False)
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(where, f"this is not JSON; each line is an object such as {example}") from error
    if not isinstance(record, dict) or not isinstance(text := record.get(field), str):
        texts = (
            [key for key, value in record.items() if isinstance(value, str) and is_plain(key)]
            if isinstance(record, dict)
            else []
        )
        sentence = f"this line has no field {shown(field)} that contains text, as {example} has"
        raise DataError(where, sentence, hint=f"--set data.text_field={texts[-1]}" if texts else None)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(where, f"the text has half a character at position {error.start}") from None
    return text
