"""Documents from the rows of a Parquet table, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from gpt_cli.errors import DataError, shown, visible
from gpt_cli.text.blocks import Block
from gpt_cli.text.packed import Growth, Reading, is_plain, optional_library

_BUFFER = 2**20  # without one a whole column of a row group is read at once
_ROWS = 2**25  # bytes of rows that are read at once, about


def rows_of_table(path: Path, file: BinaryIO, how: Reading) -> Iterator[Block]:
    """A document for each row, read row group by row group."""
    arrow = optional_library("pyarrow", "parquet", path)
    parquet = optional_library("pyarrow.parquet", "parquet", path)
    grown = Growth(path, file, how)
    try:
        table = parquet.ParquetFile(file, pre_buffer=False, buffer_size=_BUFFER, page_checksum_verification=True)
        names = table.schema_arrow.names
        if how.text_field not in names:
            sentence = f"the table has no column {shown(how.text_field)}; it has {', '.join(map(shown, names[:20]))}"
            texts = [each.name for each in table.schema_arrow if str(each.type) in ("string", "large_string")]
            texts = [*filter(is_plain, texts)]
            raise DataError(shown(path), sentence, hint=f"--set data.text_field={texts[0]}" if texts else None)
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
                        yield Block(True, text)
    except (arrow.ArrowException, UnicodeDecodeError, OSError) as error:
        if isinstance(error, OSError) and error.errno:  # the disk's; the library says without one what is damaged
            raise
        lines = str(error).splitlines() or [type(error).__name__]
        raise DataError(shown(path), f"the Parquet data is damaged: {visible(lines[0])}") from error


def _rows_at_once(file: BinaryIO, column: Any) -> int:
    """How many rows of a column are read at once: few where they, or what a dictionary repeats, are long."""
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
