"""From one file to its documents: plain text, tables and JSON, packed or not, read as a stream.

Each format is a reader of its own: `json_records.py` and `tables.py` make records, `records.py` documents of these.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

from gpt_cli.common.machine.failures import reason
from gpt_cli.common.untrusted_files import open_regular, require_unchanged
from gpt_cli.errors import DataError, GptError, counted, shown, visible
from gpt_cli.text.archives import files_of, is_archive
from gpt_cli.text.compressed import BLOCK, Growth, unpacked
from gpt_cli.text.conversations import conversation_fields, is_conversation
from gpt_cli.text.converted import DOCUMENTS, can_convert, converted
from gpt_cli.text.documents import TextBlock, decoded, format_of_binary, markup_noted
from gpt_cli.text.json_records import form_of_json, json_items, json_lines
from gpt_cli.text.records import DEFAULT_FIELD, SAMPLE, Record, conversations_of, documents_of, text_field_of
from gpt_cli.text.tables import csv_rows, parquet_columns, parquet_rows

_MOST_NAMED = 3  # files without text that a note names
# how files of records end, before .gz or .zst
_RECORDS = (".jsonl", ".json", ".csv", ".tsv", ".parquet")


@dataclass(frozen=True)
class Reading:
    """Options by which a file becomes documents."""

    text_field: str = DEFAULT_FIELD
    conversations: bool = False  # whether each record is a question with its answer


class LeftOut(NamedTuple):
    """A file without text that nobody named."""

    why: str  # the format, such as "a PNG picture"


def _ignored(_: object) -> None:
    pass


def read_file(
    path: Path,
    how: Reading,
    *,
    named: bool,
    hint: str | None = None,
    count: Callable[[int], object] = _ignored,
    note: Callable[[str], object] = _ignored,
) -> Iterator[TextBlock] | LeftOut:
    """The documents of a file in blocks, or why it has none, where the user has not `named` it.

    Only the first bytes are read before the first block is taken; `count` receives the bytes of the file that were read
    since its last call, `note` a sentence on which fields are the text. Raises DataError, there or later, for what is
    missing, damaged or not text, and EnvironmentFailure where permission or an optional library is missing.
    """
    file = open_regular(path, DataError, hint=hint)
    try:
        before = os.fstat(file.fileno())
        blocks = _of_archive(path, file, how, note) if is_archive(path) else _blocks_in(path, file, how, named, note)
    except OSError as error:  # a broken disk
        file.close()
        raise DataError(shown(path), reason(error)) from error
    except BaseException:
        file.close()
        raise
    if isinstance(blocks, LeftOut):
        file.close()
        return blocks
    return _watched(path, file, before, blocks, count)


def _of_archive(path: Path, file: BinaryIO, how: Reading, note: Callable[[str], object]) -> Iterator[TextBlock]:
    """The documents of all files of an archive; `note` receives which of them have none, and why."""
    left_out = list[str]()
    for member, content in files_of(path, file):
        blocks = _blocks_in(member, content, how, named=False, note=note)
        if isinstance(blocks, LeftOut):
            left_out.append(f"{visible(member.relative_to(path))} ({blocks.why})")
        else:
            yield from blocks
    if left_out:
        more = ", ..." if len(left_out) > _MOST_NAMED else ""
        note(f"gpt left out {counted(len(left_out), 'file')} without text: {', '.join(left_out[:_MOST_NAMED])}{more}")


def _blocks_in(
    path: Path, file: BinaryIO, how: Reading, named: bool, note: Callable[[str], object]
) -> Iterator[TextBlock] | LeftOut:
    """The documents of an open file, or why it has none."""
    documents = conversations_of if how.conversations else documents_of
    if path.suffix == ".parquet":
        return documents(_rows_of(path, file, how), how.text_field, note)
    if path.suffix in DOCUMENTS:
        if not named and not can_convert(path):
            return LeftOut("needs the extra documents")
        content = iter([converted(path, file, note).encode()])
    else:
        content = unpacked(path, file)
    first = next(content, b"")
    if not named and (why := format_of_binary(first)):
        return LeftOut(why)
    records, blocks = _records_in(path, decoded(chain([first], content), visible(path)))
    if records is not None:
        return documents(records, how.text_field, note)
    if how.conversations:
        raise DataError(shown(path), "this has no questions and answers, but the first file does, so all must")
    return markup_noted(blocks, note)


def holds_conversations(path: Path, how: Reading) -> bool:
    """Whether the first record of a file is a question with an answer; False for what cannot be read."""
    with contextlib.suppress(GptError, OSError, ValueError, RecursionError):
        if is_archive(path) or _ending(path) in _RECORDS:
            with open_regular(path, DataError) as file:
                files = files_of(path, file) if is_archive(path) else [(path, file)]
                return any(_begins_with_conversation(inner, content, how) for inner, content in islice(files, 1))
    return False


def _begins_with_conversation(path: Path, file: BinaryIO, how: Reading) -> bool:
    if path.suffix == ".parquet":
        growth, fields = Growth(path, file), conversation_fields(how.text_field)
        records: Iterator[Record] | None = parquet_rows(path, file, growth, fields)
    else:
        records, _ = _records_in(path, decoded(unpacked(path, file), visible(path)))
    first = next(records, None) if records is not None else None
    return first is not None and is_conversation(first.fields, how.text_field)


def is_left_out(path: Path, how: Reading) -> bool:
    """Whether a file that nobody named has no text; False for what cannot be read, too."""
    with contextlib.suppress(GptError, OSError):
        if path.suffix in DOCUMENTS:
            return not can_convert(path)
        if _ending(path) not in _RECORDS and not is_archive(path):
            with open_regular(path, DataError) as file:
                return format_of_binary(next(unpacked(path, file), b"")) is not None
    return False


def is_plain(path: Path) -> bool:
    """Whether a file is the text itself, neither packed nor with fields."""
    return _ending(path) not in _RECORDS and path.suffix not in (".gz", ".zst", *DOCUMENTS) and not is_archive(path)


def _ending(path: Path) -> str:
    return Path(path.name.removesuffix(".gz").removesuffix(".zst")).suffix


def _records_in(path: Path, blocks: Iterator[TextBlock]) -> tuple[Iterator[Record] | None, Iterator[TextBlock]]:
    """The records of a text file, or None for plain text; and its blocks, of which records take what they need."""
    ending, name = _ending(path), visible(path)
    if ending == ".json":
        start = next(blocks, None)
        blocks = blocks if start is None else chain([start], blocks)
        ending = {"array": "array", "lines": ".jsonl"}.get(form_of_json(start.text if start else "") or "", "")
    text = (block.text for block in blocks)
    if ending == "array":
        return json_items(text, name), blocks
    if ending == ".jsonl":
        return json_lines(text, name), blocks
    if ending in (".csv", ".tsv"):
        return csv_rows(text, name, "\t" if ending == ".tsv" else None), blocks
    return None, blocks


def _rows_of(path: Path, file: BinaryIO, how: Reading) -> Iterator[Record]:
    """The rows of a Parquet table; of texts with their column alone, which a few rows show."""
    growth = Growth(path, file)
    if how.conversations:
        yield from parquet_rows(path, file, growth, conversation_fields(how.text_field))
        return
    field = how.text_field
    if field not in parquet_columns(path, file):
        field = text_field_of([*islice(parquet_rows(path, file, growth), SAMPLE)], field)
    for row in parquet_rows(path, file, growth, [field]):
        if row.fields[field] is not None:  # an empty cell
            yield row


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
