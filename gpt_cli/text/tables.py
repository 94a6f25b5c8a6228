"""Read the rows of .csv, .tsv and .parquet as a stream of records. Needs no torch."""

from __future__ import annotations

import contextlib
import csv
import os
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from gpt_cli.common.extras import optional_library
from gpt_cli.common.limits import HEADER_CHARACTERS, ROW_CHARACTERS
from gpt_cli.errors import DataError, shown, visible
from gpt_cli.text.compressed import Growth
from gpt_cli.text.records import Record, lines_of
from gpt_cli.text.remarks import Remarks

_DELIMITERS = ",;\t|"
_BUFFER = 2**20  # without one a whole column of a row group is read at once
_ROWS, _MOST_ROWS = 2**25, 256  # bytes, about, and number of rows of a table that are read at once


def csv_rows(text: Iterable[str], name: str, remarks: Remarks, delimiter: str | None = None) -> Iterator[Record]:
    """Yield the rows below the first one, which names the columns; the delimiter is that of the most names.

    A row with another number of cells is a bad record. Raises DataError for quotes that do not close.
    """
    csv.field_size_limit(ROW_CHARACTERS)  # of the whole process; only this function reads csv
    lines, num_characters = lines_of(text, name, ROW_CHARACTERS), 0
    header = next(lines, "")
    names, rows = list[str](), None

    def counted() -> Iterator[str]:
        """Yield the lines; raise DataError for too many in one row, as quotes may hold any number."""
        nonlocal num_characters
        for line in chain([header], lines):
            num_characters += len(line)
            if num_characters > (ROW_CHARACTERS if names else HEADER_CHARACTERS):
                raise csv.Error("a row has too many characters")
            yield line

    try:
        if delimiter is None and len(header) <= HEADER_CHARACTERS:
            delimiter = max(_DELIMITERS, key=lambda each: len(next(csv.reader([header], delimiter=each), ())))
        rows = csv.reader(counted(), delimiter=delimiter or ",", strict=True)
        for row in rows:
            num_characters = 0
            where = f"{name}:{rows.line_num}"
            if not names:
                names = row
            elif len(row) == len(names):
                yield Record(where, dict(zip(names, row, strict=True)))
            elif row:
                sentence = f"this row has {len(row):,} cells, but the first one names {len(names):,} columns"
                hint = 'put a cell with the delimiter or a line break in quotes: "a, b"'
                remarks.leave_out_record(DataError(where, sentence, hint=hint))
    except csv.Error as error:
        where = f"{name}:{rows.line_num if rows else 1}"
        raise DataError(where, f"this is no table of cells: {error}") from error


def parquet_columns(path: Path, file: BinaryIO) -> list[str]:
    """Return the names of a table's columns; raise DataError for a damaged table."""
    with _damage_named(path, file):
        return _parquet(path).read_schema(file).names


def parquet_rows(
    path: Path, file: BinaryIO, growth: Growth, columns: Collection[str] | None = None
) -> Iterator[Record]:
    """Yield the rows of a table, row group by row group, with the values of `columns`, or of all.

    Raises DataError for a damaged table, and for one that expands beyond `growth`.
    """
    number = 0
    with _damage_named(path, file):
        table = _parquet(path).ParquetFile(file, pre_buffer=False, buffer_size=_BUFFER, page_checksum_verification=True)
        names = [name for name in table.schema_arrow.names if columns is None or name in columns]
        leaves = [table.schema.column(at).path.partition(".")[0] for at in range(len(table.schema))]
        for group in range(table.num_row_groups):
            rows = _MOST_ROWS
            for at in (at for at, leaf in enumerate(leaves) if leaf in names):
                column = table.metadata.row_group(group).column(at)
                growth.require(column.total_uncompressed_size)
                rows = min(rows, _rows_at_once(file, column))
            for batch in table.iter_batches(rows, row_groups=[group], columns=names, use_threads=False):
                for row in batch.to_pylist():
                    number += 1
                    growth.add(sum(len(value) for value in row.values() if isinstance(value, str)))
                    yield Record(f"{visible(path)}: row {number:,}", row)


def _parquet(path: Path) -> Any:
    return optional_library("pyarrow.parquet", "parquet", path)


@contextlib.contextmanager
def _damage_named(path: Path, file: BinaryIO) -> Iterator[None]:
    """Raise DataError for pyarrow's errors of a damaged table."""
    arrow = optional_library("pyarrow", "parquet", path)
    try:
        yield
    except (arrow.ArrowException, UnicodeDecodeError, OSError) as error:
        if isinstance(error, OSError) and error.errno:  # the disk's; the library says without one what is damaged
            raise
        if os.pread(file.fileno(), 4, 0) not in (b"PAR1", b""):
            raise DataError(shown(path), "this is no Parquet file, though its name ends in .parquet") from error
        lines = str(error).splitlines() or [type(error).__name__]
        what = "its end is missing" if "magic bytes not found in footer" in lines[0] else visible(lines[0])
        raise DataError(shown(path), f"the Parquet data is damaged: {what}") from error


def _rows_at_once(file: BinaryIO, column: Any) -> int:
    """Return the number of rows of a column to read at once: few if they, or the entries of a dictionary, are long."""
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
