"""Parse JSON lines, JSON arrays, and the rows of .csv, .tsv and .parquet as streams of records. Needs no torch.

A bad record raises DataError or is left out, as `Remarks` decides. `name` (a path) locates records in messages.
"""

import contextlib
import csv
import functools
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

from gpt_cli.common.extras import optional_library
from gpt_cli.common.limits import HEADER_CHARACTERS, LINE_CHARACTERS, ROW_CHARACTERS
from gpt_cli.common.untrusted_files import names_of_copy
from gpt_cli.errors import DataError, counted, shown, visible
from gpt_cli.text.compressed import Growth
from gpt_cli.text.records import DEFAULT_FIELD, SAMPLE, Record, header_command, lines_of
from gpt_cli.text.remarks import Remarks

_SPACE = " \t\r\n"
_spaces = re.compile(f"[{_SPACE}]*").match
_DELIMITERS = ",;\t|"
_QUOTING, _QUOTING_LINES = """'s/"/""/g; s/[^\\t]*/"&"/g'""", """'s/"/""/g; s/.*/"&"/'"""  # of sed
_BUFFER = 2**20  # without one a whole column of a row group is read at once
_ROWS, _MOST_ROWS = 2**25, 256  # bytes, about, and number of rows of a table that are read at once


def form_of_json(start: str) -> str | None:
    """Return the form of JSON that begins with `start`: "array" or "lines" of records, None for plain text."""
    start = start.lstrip(_SPACE)
    if start.startswith("["):
        return "array" if start[1:].lstrip(_SPACE)[:1] in ("{", '"') else None
    first, newline, rest = start.partition("\n")
    if first.startswith("{") and newline and rest.lstrip(_SPACE).startswith("{"):
        with contextlib.suppress(ValueError, RecursionError):
            json.loads(first)
            return "lines"
    return None


def json_lines(text: Iterable[str], name: str, remarks: Remarks) -> Iterator[Record]:
    """Yield a record for each non-empty line; a line without JSON is a bad record. Raises DataError for long lines."""
    for number, line in enumerate(lines := lines_of(text, name, LINE_CHARACTERS), start=1):
        if not line.strip():
            continue
        where = f"{name}:{number}"
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            error = DataError(where, 'this is not JSON; each line is an object such as {"text": "..."}')
            following = json_lines(islice(lines, SAMPLE), name, Remarks(skip_bad=True))
            remarks.leave_out_record(error, chain([number > 1], following))
            continue
        yield Record(where, "" if value is None else value if isinstance(value, dict | str) else {})


def json_items(text: Iterable[str], name: str, remarks: Remarks) -> Iterator[Record]:
    """Yield a record for each item of a JSON array; any item but an object, a string or null is a bad record.

    Raises DataError for content that is not an array, is cut off, or has an item that is too large.
    """
    decoder, blocks, number = json.JSONDecoder(), iter(text), 0
    rest, at, closed = "", 0, False

    def more() -> bool:
        """Drop parsed text; append new text, over twice as long as the rest if possible; return whether any came."""
        nonlocal rest, at
        added = [rest[at:]]
        goal, num_characters, at = 2 * len(added[0]), 0, 0
        while num_characters <= goal and (block := next(blocks, None)) is not None:
            added.append(block)
            num_characters += len(block)
        rest = "".join(added)
        return len(added) > 1

    def skip_space() -> bool:
        """Advance to the next character that is not white space; return whether there is one."""
        nonlocal at
        while (at := _spaces(rest, at).end()) == len(rest) and more():  # pyright: ignore[reportOptionalMemberAccess]
            pass
        return at < len(rest)

    skip_space()
    at += 1  # the bracket, which `form_of_json` saw
    while skip_space():
        where = f"{name}: item {number + 1:,}"
        if closed:
            raise DataError(name, f"after the array of {counted(number, 'item')}, there is more text")
        if rest[at] == "]":
            at, closed = at + 1, True
            continue
        if number and rest[at] != ",":
            raise DataError(where, "this is not JSON: a comma is missing before this item")
        at += number > 0
        while True:
            skip_space()
            try:
                value, end = decoder.raw_decode(rest, at)
            except (ValueError, RecursionError) as error:
                if len(rest) - at > LINE_CHARACTERS:
                    sentence = f"this is not JSON, or has more than {LINE_CHARACTERS:,} characters"
                    raise DataError(where, sentence) from error
                if not more():
                    raise DataError(where, "this is not JSON, or the file is cut off here") from error
                continue
            if end < len(rest) or not more():  # else a number may go on
                break
        number, at = number + 1, end
        if value is None or isinstance(value, dict | str):
            yield Record(where, "" if value is None else value)
        else:
            remarks.leave_out_record(DataError(where, "this item is neither an object nor a text"), [number > 1])
    if not closed:
        raise DataError(f"{name}: item {number:,}", "the array ends without its bracket: the file is cut off")


def csv_rows(text: Iterable[str], name: str, remarks: Remarks, delimiter: str | None = None) -> Iterator[Record]:
    """Yield each row below the first as a record; the first row, the header, has the names of the columns.

    If `delimiter` is None, choose one that gives the first rows equally many cells. A row with more or fewer cells than
    the header is a bad record. A title above the table is read as the header, so that wider rows below it
    are bad. Raises DataError for unclosed quotes, and for two columns with the same name.
    """
    csv.field_size_limit(ROW_CHARACTERS)  # of the whole process; only this function reads csv
    lines, num_characters = lines_of(text, name, ROW_CHARACTERS), 0
    header, first = next(lines, ""), 1
    if re.fullmatch(r"sep=.\s*", header):  # Excel's
        delimiter, header, first = header[4], next(lines, ""), 2
    start, names, number, any_good = [header], list[str](), first, False

    def bounded() -> Iterator[str]:
        """Yield lines; raise csv.Error for an overlong CSV row, which may span any number of lines within quotes."""
        nonlocal num_characters
        for line in chain(start, lines):
            num_characters += len(line)
            if num_characters > (ROW_CHARACTERS if names else HEADER_CHARACTERS):
                raise csv.Error("a row has too many characters")
            yield line

    num_named, is_title, below_title = 0, False, False
    try:
        if delimiter is None and len(header) <= HEADER_CHARACTERS:
            start += islice(lines, 2)
            top = [line for line in start if len(line) <= HEADER_CHARACTERS]
            cells = {each: [len(row) for row in csv.reader(top, delimiter=each) if row] or [0] for each in _DELIMITERS}
            delimiter = max(cells, key=lambda each: (max(cells[each]) == min(cells[each]) > 1, cells[each][0]))
        rows = csv.reader(bounded(), delimiter=delimiter or ",", strict=True)
        for row in rows:
            num_characters, line, number = 0, number, rows.line_num + first
            if not names:
                names = [cell.strip() or f"column{at}" for at, cell in enumerate(row, 1)]  # as a hint names them
                num_named, is_title = 1 + sum(map(bool, row[1:])), not all(cell.strip() for cell in row[1:])
                if len({*names}) < len(names):
                    twice = Counter(names).most_common(1)[0][0]
                    columns = [f"{cell}{at}" if cell in names[: at - 1] else cell for at, cell in enumerate(names, 1)]
                    command = header_command(Path(name), columns, delimiter or ",", has_names=True)
                    hint = "if the table has no row with names, write one first"
                    hint += f"; else {command}" if command else ""
                    raise DataError(f"{name}:{line}", f"several columns have the name {shown(twice)}", hint=hint)
                continue
            if is_title and sum(map(bool, row)) > num_named:
                names, below_title = names[:num_named], True
            is_title = is_title and sum(map(bool, row)) < 2  # a second title, or an empty row
            if len(row) == len(names):
                any_good = True
                yield Record(f"{name}:{line}", dict(zip(names, row, strict=True)), delimiter)
            elif row:
                num_cells, num_columns = counted(len(row), "cell"), counted(len(names), "column")
                sentence = f"this row has {num_cells}, but the first one names {num_columns}"
                hint = 'put a cell with the delimiter or a line break in quotes: "a, b"'
                if names == [DEFAULT_FIELD]:
                    old, new = names_of_copy(Path(name), "quoted")
                    hint = f"if each line is one text: sed {_QUOTING_LINES} {old} > {new}; else {hint}"
                elif len(names) == 1 or below_title:
                    old, new = names_of_copy(Path(name), "table")
                    hint = "give each column a name" if below_title else hint
                    hint = f"if the table begins here: tail -n +{line} {old} > {new}; else {hint}"
                error = DataError(f"{name}:{line}", sentence, hint=hint if len(row) > len(names) else None)
                remarks.leave_out_record(error, [any_good])
    except csv.Error as error:
        why, hint = str(error), 'write quotation marks inside a cell twice, and the cell in quotes: """Yes"", she said"'
        if "new-line" in why:
            why, (old, new) = "a line ends with \\r alone", names_of_copy(Path(name), "lf")
            hint = f"tr '\\r' '\\n' < {old} > {new}"
        elif delimiter == "\t":
            old, new = names_of_copy(Path(name), "quoted")
            hint = f"if its quotation marks belong to the text: sed {_QUOTING} {old} > {new}"
        raise DataError(f"{name}:{number}", f"this is not a table of cells: {why}", hint=hint) from error


def parquet_columns(path: Path, file: BinaryIO) -> list[str]:
    """Return the column names of a Parquet table; raise DataError for a damaged table."""
    with _damage_named(path, file):
        return optional_library("pyarrow.parquet", "parquet", path).read_schema(file).names


def parquet_rows(path: Path, file: BinaryIO, growth: Growth, columns: Sequence[str] | None = None) -> Iterator[Record]:
    """Yield the rows of a Parquet table, one row group after another, with only `columns` (None: all columns).

    Raises DataError for a table that is damaged, or that expands beyond the limit of `growth`.
    """
    number = 0
    with _damage_named(path, file):
        parquet = optional_library("pyarrow.parquet", "parquet", path)
        table = parquet.ParquetFile(file, pre_buffer=False, buffer_size=_BUFFER, page_checksum_verification=True)
        names = [name for name in table.schema_arrow.names if columns is None or name in columns]
        leaves = [table.schema.column(at).path.partition(".")[0] for at in range(len(table.schema))]
        for group in range(table.num_row_groups):
            growth.require(table.metadata.row_group(group).total_byte_size)
            read = functools.partial(table.iter_batches, row_groups=[group], columns=names, use_threads=False)
            next(read(1), None)  # raises where the metadata of a damaged column would abort the process (pyarrow 26)
            chunks = [table.metadata.row_group(group).column(at) for at, leaf in enumerate(leaves) if leaf in names]
            for batch in read(min((_rows_at_once(file, column) for column in chunks), default=_MOST_ROWS)):
                for row in batch.to_pylist():
                    number += 1
                    growth.add(sum(len(value) for value in row.values() if isinstance(value, str)))
                    yield Record(f"{visible(path)}: row {number:,}", row)


@contextlib.contextmanager
def _damage_named(path: Path, file: BinaryIO) -> Iterator[None]:
    """Run a block, and turn pyarrow's errors about a damaged table into DataError."""
    arrow = optional_library("pyarrow", "parquet", path)
    try:
        yield
    except (arrow.ArrowException, UnicodeDecodeError, OSError) as error:
        if isinstance(error, OSError) and error.errno:  # of the disk; errors about damage have no errno
            raise
        if os.pread(file.fileno(), 4, 0) not in (b"PAR1", b""):
            raise DataError(shown(path), "this is not a Parquet file, though its name ends in .parquet") from error
        lines = str(error).splitlines() or [type(error).__name__]
        what = "its end is missing" if "magic bytes not found in footer" in lines[0] else visible(lines[0])
        raise DataError(shown(path), f"the Parquet data is damaged: {what}") from error


def _rows_at_once(file: BinaryIO, column: Any) -> int:
    """Return how many rows of a column to read at once: few if its values or dictionary entries are long."""
    longest = column.total_uncompressed_size // max(1, column.num_values)
    if column.has_dictionary_page:
        # parquet.thrift, PageHeader: type 2 (a dictionary), then the page's size as a zigzag varint
        start, size = os.pread(file.fileno(), 8, column.dictionary_page_offset), 0
        for number, byte in enumerate(start[3:]):
            size |= (byte & 127) << (7 * number)
            if byte < 128:
                break
        longest = max(longest, size // 2 if start[:3] == b"\x15\x04\x15" else column.total_uncompressed_size)
    return min(_MOST_ROWS, max(1, _ROWS // max(1, longest)))
