"""Read one file as a stream of documents: plain text, tables, JSON and office documents, compressed or not.

`record_formats.py` parses a file into records, and `records.py` takes the documents from the records.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO

from gpt_cli.common.machine.failures import reason
from gpt_cli.common.untrusted_files import open_regular, require_unchanged
from gpt_cli.errors import DataError, GptError, shown, visible
from gpt_cli.text.compressed import BLOCK, Growth, files_of, is_archive, unpacked
from gpt_cli.text.conversations import FIELDS, is_conversation
from gpt_cli.text.converted import DOCUMENTS, can_convert, converted
from gpt_cli.text.documents import TextBlock, decoded, format_of_binary, in_blocks, markup_noted
from gpt_cli.text.record_formats import csv_rows, form_of_json, json_items, json_lines, parquet_columns, parquet_rows
from gpt_cli.text.records import ALONE, DEFAULT_FIELD, SAMPLE, Record, conversations_of, documents_of, text_field_of
from gpt_cli.text.remarks import Remarks

# how files of records end, before .gz or .zst
_RECORDS = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
_OF_LATEX = (".aux", ".bbl", ".blg", ".fdb_latexmk", ".fls", ".lof", ".lot", ".toc")
SKIP_HINT = "‹data.skip_bad=true› leaves such files out"


@dataclass(frozen=True)
class Reading:
    """Options for reading files: settings data.*, and whether records are conversations (the first file decides)."""

    text_field: str = DEFAULT_FIELD
    separator: str | None = None  # which splits documents into shorter ones
    skip_bad: bool = False  # whether bad records, and bad files that the user did not name, are left out
    conversations: bool = False  # whether each record is a question with its answer


def read_file(
    path: Path,
    how: Reading,
    remarks: Remarks,
    *,
    named: bool,
    hint: str | None = None,
    count: Callable[[int], object] = lambda _: None,
) -> Iterator[TextBlock]:
    """Yield the documents of a file in blocks; skip a file that is not text, unless the user `named` it.

    `remarks` counts what is left out; `count` receives the number of bytes read since its last call. Raises DataError
    for a file that is missing (`hint` is the error's hint), damaged, or `named` but not text, and EnvironmentFailure if
    permission or an optional library is missing.
    """
    with open_regular(path, DataError, hint=hint) as file:
        before, counted, inner = os.fstat(file.fileno()), 0, path
        try:
            for inner, content in files_of(path, file):
                if inner != path and how.skip_bad and not _is_readable(inner, content, how):
                    remarks.leave_out("bad", visible(inner))
                    continue
                for block in _blocks_in(inner, content, how, remarks, named=named and inner == path):
                    yield block
                    if (position := file.tell()) >= counted + BLOCK:
                        count(position - counted)
                        counted = position
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EMFILE, errno.ENOMEM):  # the machine lacks processes, files, memory
                raise
            raise DataError(shown(path), reason(error)) from error
        except DataError as error:  # which may be the consequence of a change
            require_unchanged(path, file, before, DataError)
            if inner == path and path.suffix.lower() in (".gz", ".zst") and "OLD > NEW" in (error.hint or ""):
                error.hint = f"unpack the archive first; {error.hint}"
            if visible(inner) in error.where and inner != path and not has_remedy(error):
                hint = error.hint or ""
                first = "unpack the archive first; " if " > " in hint else ""
                error.hint = f"{first}{hint}; or {SKIP_HINT}" if hint else SKIP_HINT
            raise
        count(before.st_size - counted)
        require_unchanged(path, file, before, DataError)


def has_remedy(error: GptError) -> bool:
    """Return whether an error's hint already advises data.skip_bad, or to name only the files with conversations."""
    hint = error.hint or ""
    return "skip_bad" in hint or hint.endswith(ALONE)


def holds_conversations(path: Path, how: Reading, *, named: bool) -> bool | None:
    """Return whether a file's first record is a conversation; None for a file that is empty, damaged or not text.

    In an archive, the first file that is text decides. `how` and `named` are as in `read_file`.
    """
    how = replace(how, conversations=True)
    with contextlib.suppress(GptError, OSError, ValueError, RecursionError), open_regular(path, DataError) as file:
        for inner, content in files_of(path, file):
            with contextlib.suppress(DataError):
                remarks = Remarks(skip_bad=how.skip_bad)
                records, blocks = _content_of(inner, content, how, remarks, named=named and inner == path)
                if first := next(chain(records or (), blocks or ()), None):
                    return isinstance(first, Record) and is_conversation(first.fields, how.text_field)
    return None


def is_packed_text(path: Path) -> bool:
    """Return whether a file name is that of one compressed text (.gz, .zst) or of a document such as .docx or .pdf."""
    has_several = _ending(path) in _RECORDS or is_archive(path)
    return not has_several and path.suffix.lower() in (".gz", ".zst", *DOCUMENTS)


def is_encoded(path: Path) -> bool:
    """Return whether a file stores texts in JSON or Parquet, where the command `tr` cannot repair their line ends."""
    return _ending(path) in (".json", ".jsonl", ".parquet")


def _is_readable(path: Path, file: BinaryIO, how: Reading) -> bool:
    """Return whether all documents of a file in an archive can be read; if so, rewind the file."""
    with contextlib.suppress(DataError):
        for _ in _blocks_in(path, file, how, Remarks(skip_bad=True), named=False):
            pass
        file.seek(0)
        return True
    return False


def _blocks_in(path: Path, file: BinaryIO, how: Reading, remarks: Remarks, *, named: bool) -> Iterator[TextBlock]:
    """Return the documents of an open file in blocks; raise DataError for plain text if `how.conversations`."""
    records, blocks = _content_of(path, file, how, remarks, named=named)
    if records:
        blocks = (conversations_of if how.conversations else documents_of)(records, how.text_field, remarks)
    elif how.conversations and any(blocks or ()):
        sentence = "this has no questions and answers, but the first file has them, so all files must"
        raise DataError(shown(path), sentence, hint="name the files with questions and answers alone")
    return markup_noted(blocks or iter(()), remarks.note)


def _content_of(
    path: Path, file: BinaryIO, how: Reading, remarks: Remarks, *, named: bool
) -> tuple[Iterator[Record] | None, Iterator[TextBlock] | None]:
    """Return (records, None) or (None, text blocks); add a remark and return (None, None) for a skipped file."""
    if path.suffix.lower() == ".parquet":
        return _rows_of(path, file, how, remarks), None
    if path.suffix.lower() in DOCUMENTS:
        if named or can_convert(path):
            return None, in_blocks(converted(path, each, remarks) for each in [file])  # not before the first read
        remarks.leave_out("document", visible(path))
        return None, None
    if not named and is_archive(path):
        remarks.leave_out("file", f"{visible(path)} (an archive inside another)")
        return None, None
    content = unpacked(path, file)
    first = next(content, b"")
    by_latex = path.suffix in _OF_LATEX or (first.startswith(b"This is ") and b"TeX, Version" in first[:80])
    if not named and (why := "written by LaTeX" if by_latex else format_of_binary(first)):
        remarks.leave_out("file", f"{visible(path)} ({why})")
        return None, None
    return _records_in(path, decoded(chain([first], content), visible(path)), remarks)


def _ending(path: Path) -> str:
    ending = Path(path.name.lower().removesuffix(".gz").removesuffix(".zst")).suffix
    return ".jsonl" if ending == ".ndjson" else ending


def _records_in(
    path: Path, blocks: Iterator[TextBlock], remarks: Remarks
) -> tuple[Iterator[Record] | None, Iterator[TextBlock] | None]:
    """Return (records, None) for a text file with JSON records, .csv or .tsv, or (None, blocks) for plain text."""
    ending, name = _ending(path), visible(path)
    if ending not in (".csv", ".tsv"):
        start = next(blocks, None)
        blocks = blocks if start is None else chain([start], blocks)
        form = form_of_json(start.text if start else "")
        if ending in (".json", ".jsonl"):
            if form is None and ending == ".json":
                remarks.note("gpt finds no list of records, so it reads the JSON as plain text")
            ending = form or ending
        elif form == "lines":
            remarks.note("braces and names of JSON become tokens, unless the file name ends in .jsonl")
    text = (block.text for block in blocks)
    if ending == "array":
        return json_items(text, name, remarks), None
    if ending in ("lines", ".jsonl"):
        return json_lines(text, name, remarks), None
    if ending in (".csv", ".tsv"):
        return csv_rows(text, name, remarks, "\t" if ending == ".tsv" else None), None
    return None, blocks


def _rows_of(path: Path, file: BinaryIO, how: Reading, remarks: Remarks) -> Iterator[Record]:
    """Yield a Parquet table's rows with only the columns to read, except that the first SAMPLE rows may have all."""
    growth, names = Growth(path, file), parquet_columns(path, file)
    if not how.conversations and how.text_field in names:
        yield from parquet_rows(path, file, growth, [how.text_field])
        return
    sample = [*islice(parquet_rows(path, file, growth), SAMPLE)]  # which show the columns that the other rows leave out
    names = [name for name in names if name == how.text_field or name.lower() in FIELDS or len(name) == 1]
    if not how.conversations:
        names = [text_field_of(sample, how.text_field, remarks)]
    yield from sample
    yield from islice(parquet_rows(path, file, growth, names), SAMPLE, None)
