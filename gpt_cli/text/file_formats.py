"""From one file to its documents: plain text, .jsonl and .parquet, packed or not, read as a stream."""

from __future__ import annotations

import contextlib
import gzip
import importlib
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from gpt_cli.common.limits import EXPANSION, EXPANSION_FROM, LINE_CHARACTERS, ZSTD_WINDOW
from gpt_cli.common.machine.failures import reason
from gpt_cli.common.untrusted_files import open_regular, require_unchanged
from gpt_cli.errors import DataError, EnvironmentFailure, GptError, shown, visible
from gpt_cli.text.conversations import conversation_of_line, is_conversation
from gpt_cli.text.documents import TextBlock, decoded, is_binary

# bytes; of twice as many, malloc would map the text anew, and decoding take twice as long (note 0049)
BLOCK = 2**16
# a Zstandard decoder returns at most 128 kB for each 4 bytes of input
_ZSTD_INPUT = 512
_BUFFER = 2**20  # without one a whole column of a row group is read at once
_ROWS = 2**25  # bytes of rows of a table that are read at once, about
# names of fields that a hint shows: a stranger may have chosen them, and a user types what a hint says
_is_plain = re.compile(r"[\w.-]{1,64}").fullmatch


@dataclass(frozen=True)
class Reading:
    """Options by which a file becomes documents."""

    text_field: str = "text"
    conversations: bool = False  # whether each line is a question with its answer


def read_file(
    path: Path,
    how: Reading,
    *,
    named: bool,
    hint: str | None = None,
    count: Callable[[int], object] = lambda _: None,
) -> Iterator[TextBlock] | None:
    """The documents of a file in blocks; None for a file without text that the user has not `named`.

    Only the first bytes are read before the first block is taken; `count` receives the bytes of the file that were read
    since its last call. Raises DataError, there or later, for what is missing, damaged or not text, and
    EnvironmentFailure where permission or an optional library is missing.
    """
    file = open_regular(path, DataError, hint=hint)
    try:
        before = os.fstat(file.fileno())
        wrong = how.conversations and not _has_lines(path)
        if path.suffix == ".parquet" and not wrong:
            return _watched(path, file, before, _rows_of_table(path, file, how), count)
        content = _unpacked(path, file)
        first = next(content, b"")
        if not named and is_binary(first):
            file.close()
            return None
        if wrong:
            sentence = "this is not a .jsonl file, but the first file contains questions and answers, so all must"
            raise DataError(shown(path), sentence)
    except OSError as error:  # a broken disk
        file.close()
        raise DataError(shown(path), reason(error)) from error
    except BaseException:
        file.close()
        raise
    blocks = decoded(chain([first], content), visible(path))
    if _has_lines(path):
        blocks = _documents((block.text for block in blocks), path, how)
    return _watched(path, file, before, blocks, count)


def holds_conversations(path: Path, how: Reading) -> bool:
    """Whether the first line of a .jsonl file is a question with an answer; False for what cannot be read."""
    with contextlib.suppress(GptError, OSError, ValueError, RecursionError):
        if _has_lines(path):
            with open_regular(path, DataError) as file:
                blocks = decoded(_unpacked(path, file), visible(path))
                _, first = next(_lines((block.text for block in blocks), path), ("", ""))
                return is_conversation(json.loads(first), how.text_field)
    return False


def is_left_out(path: Path, how: Reading) -> bool:
    """Whether a file that nobody named has no text; False for what cannot be read, too."""
    with contextlib.suppress(GptError, OSError):
        if path.suffix != ".parquet" and not _has_lines(path):
            with open_regular(path, DataError) as file:
                return is_binary(next(_unpacked(path, file), b""))
    return False


def _has_lines(path: Path) -> bool:
    return path.name.removesuffix(".gz").removesuffix(".zst").endswith(".jsonl")


def is_plain(path: Path) -> bool:
    """Whether a file is the text itself, neither packed nor with fields."""
    return not _has_lines(path) and path.suffix not in (".parquet", ".gz", ".zst")


def _watched(
    path: Path, file: BinaryIO, before: os.stat_result, blocks: Iterator[TextBlock], count: Callable[[int], object]
) -> Iterator[TextBlock]:
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


def _unpacked(path: Path, file: BinaryIO) -> Iterator[bytes]:
    """The content of a file in large blocks, decompressed where its name says so."""
    unpack = {".gz": _gzip, ".zst": _zstandard}.get(path.suffix)
    if unpack is None:
        # None comes of what would wait, such as /proc/kmsg
        yield from iter(lambda: file.read(BLOCK) or b"", b"")
        return
    grown = _Growth(path, file)
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
    zstandard = _optional_library("zstandard", "zst", path)
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


def _documents(text: Iterable[str], path: Path, how: Reading) -> Iterator[TextBlock]:
    """The documents of JSON lines: the text of each, or a conversation as it is written."""
    for where, line in _lines(text, path):
        if how.conversations:
            yield TextBlock(True, conversation_of_line(line, how.text_field, where).written())
        elif document := _text_field(line, how.text_field, where):
            yield TextBlock(True, document)


def _lines(text: Iterable[str], path: Path) -> Iterator[tuple[str, str]]:
    """The lines that are not empty, each with its place; a line is the largest thing that must fit in memory."""
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
            if line.strip():
                yield f"{visible(path)}:{number}", line


def _text_field(line: str, field: str, where: str) -> str:
    example = json.dumps({field: "..."}, ensure_ascii=False)
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(where, f"this is not JSON; each line is an object such as {example}") from error
    fields = record if isinstance(record, dict) else {}
    if not isinstance(text := fields.get(field), str):
        texts = [key for key, value in fields.items() if isinstance(value, str) and _is_plain(key)]
        sentence = f"this line has no field {shown(field)} that contains text, as {example} has"
        hint = f"‹data.text_field={texts[-1]}›" if texts else None
        if is_conversation(record, field):
            hint = "questions with answers are read without other text; name their file alone"
        raise DataError(where, sentence, hint=hint)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(where, f"the text has half a character at position {error.start}") from None
    return text


def _rows_of_table(path: Path, file: BinaryIO, how: Reading) -> Iterator[TextBlock]:
    """A document for each row, read row group by row group."""
    arrow = _optional_library("pyarrow", "parquet", path)
    parquet = _optional_library("pyarrow.parquet", "parquet", path)
    grown = _Growth(path, file)
    try:
        table = parquet.ParquetFile(file, pre_buffer=False, buffer_size=_BUFFER, page_checksum_verification=True)
        names = table.schema_arrow.names
        if how.text_field not in names:
            sentence = f"the table has no column {shown(how.text_field)}; it has {', '.join(map(shown, names[:20]))}"
            columns = [each.name for each in table.schema_arrow if str(each.type) in ("string", "large_string")]
            texts = [*filter(_is_plain, columns)]
            raise DataError(shown(path), sentence, hint=f"‹data.text_field={texts[0]}›" if texts else None)
        paths = [table.schema.column(number).path for number in range(len(table.schema))]
        for group in range(table.num_row_groups):
            rows = 1
            if how.text_field in paths:
                column = table.metadata.row_group(group).column(paths.index(how.text_field))
                grown.require(column.total_uncompressed_size)
                rows = _rows_at_once(file, column)
            columns = [how.text_field]
            for batch in table.iter_batches(rows, row_groups=[group], columns=columns, use_threads=False):
                for text in batch.column(0).to_pylist():
                    if not isinstance(text, str | None):
                        raise DataError(shown(path), f"the column {shown(how.text_field)} does not contain text")
                    if text:
                        grown.add(len(text))
                        yield TextBlock(True, text)
    except (arrow.ArrowException, UnicodeDecodeError, OSError) as error:
        if isinstance(error, OSError) and error.errno:  # the disk's; the library says without one what is damaged
            raise
        if os.pread(file.fileno(), 4, 0) not in (b"PAR1", b""):
            raise DataError(shown(path), "this is no Parquet file, though its name ends in .parquet") from error
        lines = str(error).splitlines() or [type(error).__name__]
        what = "its end is missing" if "magic bytes not found in footer" in lines[0] else visible(lines[0])
        raise DataError(shown(path), f"the Parquet data is damaged: {what}") from error


def _rows_at_once(file: BinaryIO, column: Any) -> int:
    """Number of rows of a column to read at once: few if they, or the entries of a dictionary, are long."""
    longest = column.total_uncompressed_size // max(1, column.num_values)
    if column.has_dictionary_page:
        # parquet.thrift, PageHeader: type 2 (a dictionary), then the page's size as a zigzag varint
        start, size = os.pread(file.fileno(), 8, column.dictionary_page_offset), 0
        for number, byte in enumerate(start[3:]):
            size |= (byte & 127) << (7 * number)
            if byte < 128:
                break
        longest = max(longest, size // 2 if start[:3] == b"\x15\x04\x15" else column.total_uncompressed_size)
    return min(256, max(1, _ROWS // max(1, longest)))


def _optional_library(name: str, extra: str, path: Path) -> Any:
    """A library that an extra of the package brings."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        sentence = f"reading a .{extra} file needs the library {name.partition('.')[0]}, which is not installed"
        hint = f"in the clone of gpt: pip install -e '.[{extra}]'"
        raise EnvironmentFailure(shown(path), sentence, hint=hint) from error


class _Growth:
    """Bytes that packed data has grown to; raises DataError where no text would become so large."""

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
