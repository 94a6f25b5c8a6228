"""Choose the fields of records of tables and JSON: text, or question and answer. Needs no torch."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from gpt_cli.errors import DataError, shown, visible
from gpt_cli.text.conversations import (
    FIELDS,
    MESSAGES,
    conversation,
    is_conversation,
    is_words,
    notice_of,
    small,
    whole_text,
)
from gpt_cli.text.documents import TextBlock
from gpt_cli.text.remarks import Remarks

DEFAULT_FIELD = "text"  # of data.text_field
SAMPLE, _SAMPLE_CHARACTERS = 100, 2**20  # of the records that decide which field is the text
_LONG = 20  # characters on average, from which a field is a text and not a name, a label or a date
_MOST_FIELDS = 20  # that an error lists
ALONE = "name their file alone"  # of a hint about questions beside texts
_KINDS = {dict: "an object", list: "a list", bytes: "bytes"}
# names of fields that are questions and answers, the likeliest first
_QUESTIONS = ("prompt", "question", "instruction", "input", "问题", "指令")
_ANSWERS = ("response", "answer", "output", "target", "completion", "chosen", "输出", "答案", "回答")
# names of fields that a hint shows: a stranger may have chosen them, and a user types what a hint says
_is_plain = re.compile(r"(?=.{1,64}$)[\w.?？-]+( [\w.?？-]+)*").fullmatch
# five words, two with a full stop, or ten characters of Chinese or Japanese: the first row of a table is a record
_is_sentence = re.compile(r"(\S+ ){4}.+|.* .*\.|.*[\u3040-\u30ff\u3400-\u9fff]{10}.*").fullmatch


class Record(NamedTuple):
    """One row of a table, or one value of JSON, with its place in the file."""

    where: str
    fields: Any  # a mapping from names to values; a text alone is a document
    delimiter: str | None = None  # of the cells, where the names are the first row of a table


def lines_of(text: Iterable[str], name: str, most: int) -> Iterator[str]:
    """Yield the lines of a text with their newlines; raise DataError for a line of more than `most` characters."""
    # split at newlines alone: JSON text may contain U+2028, where splitlines would cut
    unfinished, length, number = list[str](), 0, 1
    for block in text:
        first, *others = block.split("\n")
        unfinished.append(first)
        length += len(first)
        if length > most:
            raise DataError(f"{name}:{number}", f"this line has more than {most:,} characters")
        for following in others:
            yield "".join(unfinished) + "\n"
            unfinished, length, number = [following], len(following), number + 1
    if last := "".join(unfinished):
        yield last


def documents_of(records: Iterable[Record], text_field: str, remarks: Remarks) -> Iterator[TextBlock]:
    """Yield the text of each record as a document; a record without text is a bad record.

    Raises DataError that lists the fields with text, if none of them is clearly the text of the records.
    """
    records = iter(records)
    sample = _sample_of(records)
    objects = [record for record in sample if not isinstance(record.fields, str)]
    field = text_field_of(objects, text_field, remarks)
    if field != text_field:
        others = [name for name in _texts_of(objects, _mean_lengths(objects)) if name != field]
        unread = ", ".join(visible(name, 40) for name in others[:_MOST_FIELDS])
        remarks.note(f"{field} is the text of each record" + (f"; gpt does not read {unread}" if unread else ""))
    yield from _blocks_of(sample, records, lambda record: _text(record, field, remarks.path), remarks)


def conversations_of(records: Iterable[Record], text_field: str, remarks: Remarks) -> Iterator[TextBlock]:
    """Yield each conversation as one text, that of `Conversation.to_json`; any other record is a bad record."""
    records = (record._replace(fields=small(record.fields)) for record in records)
    sample = _sample_of(records)
    examples = [record.fields for record in sample if is_conversation(record.fields, text_field)]
    if examples and (words := notice_of(examples)):
        remarks.note(words)

    def text_of(record: Record) -> str:
        if not is_conversation(record.fields, text_field):
            sentence = "this is no question with an answer, as the first record of the first file is"
            lacks_a_part = isinstance(record.fields, Mapping) and record.fields.keys() & FIELDS
            hint = None if lacks_a_part else "put texts into a file of their own, and train on that alone"
            raise DataError(record.where, sentence, hint=hint)
        dialogue = conversation(record.fields, record.where, remarks=remarks)
        return dialogue.to_json() if dialogue.turns[-1].content.strip() else ""

    yield from _blocks_of(sample, records, text_of, remarks)


def _blocks_of(
    sample: Sequence[Record], records: Iterable[Record], text_of: Callable[[Record], str], remarks: Remarks
) -> Iterator[TextBlock]:
    """Yield the text of each record; leave out empty records, and bad ones if `remarks` allow that, else raise."""
    for record in chain(sample, records):
        try:
            text = text_of(record)
        except DataError as error:
            remarks.leave_out_record(error, _blocks_of(sample, (), text_of, Remarks(skip_bad=True)))
            continue
        if text:
            yield TextBlock(True, text)
        else:
            remarks.leave_out("empty", record.where)


def text_field_of(sample: Sequence[Record], text_field: str, remarks: Remarks) -> str:
    """Return the name of the text's field: `text_field`, or if that is the default and missing, the only long field.

    Raises DataError that lists the fields with text, the longest first.
    """
    if not sample or any(isinstance(_field(record, text_field), str) for record in sample):
        return text_field
    lengths = _mean_lengths(sample)
    long = [name for name in lengths if name.lower() == DEFAULT_FIELD]  # written Text
    long = long or [name for name in _texts_of(sample, lengths) if lengths[name] >= _LONG]
    has_text = len(long) == 1 and _is_name(long[0], sample[0]) and not is_conversation(sample[0].fields, text_field)
    names = {name.lower(): name for name in lengths}
    has_answers = all(_likely_pair(names)) or {"role", "content"} <= names.keys() or "rejected" in names
    if text_field == DEFAULT_FIELD and has_text and not has_answers:
        return long[0]
    raise _without_text(sample, text_field, remarks.path)


def _sample_of(records: Iterator[Record]) -> list[Record]:
    sample, num_characters = list[Record](), 0
    while len(sample) < SAMPLE and num_characters < _SAMPLE_CHARACTERS and (record := next(records, None)):
        sample.append(record)
        num_characters += len(str(record.fields))
    return sample


def _mean_lengths(sample: Sequence[Record]) -> dict[str, float]:
    """Return the mean number of characters of each field that contains text, the longest first."""
    lengths = Counter[str]()
    for record in sample:
        for name, value in record.fields.items():
            if isinstance(value, str):
                lengths[name] += len(value)
    return {name: length / len(sample) for name, length in lengths.most_common()}


def _texts_of(sample: Sequence[Record], names: Collection[str]) -> list[str]:
    """Return the names of the fields whose values, apart from empty ones, are mostly words."""
    values = {name: [value for record in sample if (value := _field(record, name))] for name in names}
    return [name for name in names if 2 * sum(map(is_words, values[name])) > len(values[name])]


def _without_text(sample: Sequence[Record], text_field: str, path: Path | None) -> DataError:
    record, lengths = sample[0], _mean_lengths(sample)
    sentence, hint = f"this record has no field {shown(text_field)} that contains text", None
    if lengths:
        listed = [f"{shown(name)} ({length:,.0f})" for name, length in islice(lengths.items(), _MOST_FIELDS)]
        sentence += f"; fields with text, and their mean length in characters: {', '.join(listed)}"
    kinds = {name: _KINDS[type(value)] for name, value in record.fields.items() if type(value) in _KINDS}
    if listed := [f"{shown(name)} ({kind})" for name, kind in kinds.items()]:
        sentence += f"; fields of other kinds: {', '.join(listed[:_MOST_FIELDS])}"
    longest = next(iter(texts := _texts_of(sample, lengths)), None)
    names = {name.lower(): name for name in lengths}
    if {"role", "content"} <= names.keys() or {"from", "value"} <= names.keys():
        hint = f"a record has all messages of a conversation, as in {MESSAGES}"
    elif longest and record.delimiter and not any(_likely_pair(names)) and _may_be_record(longest, record, lengths):
        columns = dict.fromkeys([longest], "text")
        if lengths[longest] < _LONG and len(texts) == 2:  # such as a word and its translation
            columns = dict(zip(filter(texts.__contains__, record.fields), ("prompt", "response"), strict=True))
        columns = [columns.get(name, f"column{at}") for at, name in enumerate(record.fields, 1)]
        command = path and header_command(path, columns, record.delimiter, "named", has_names=False)
        may_be_name = _is_name(longest, record) or (_is_plain(longest) and longest[-1] in "?？")  # as forms have it
        hint = f"‹data.text_field={longest}›; " if may_be_name else ""
        hint += "if the table has no row with names, write one first" + (f": {command}" if command else "")
    elif longest and _is_plain(longest) and "rejected" not in names:  # a shorter one is not the text
        hint = f"‹data.text_field={longest}›"
        if sum(length > 1 for length in lengths.values()) > 1:
            command = path and _rewriting(record, path, names)
            hint += "; for questions with answers"
            hint += f": {command}" if command else ", name their fields prompt and response"
    if is_conversation(record.fields, text_field):
        hint = f"questions with answers are read without other text; {ALONE}"
    return DataError(record.where, sentence, hint=hint)


def _may_be_record(longest: str, record: Record, lengths: Mapping[str, float]) -> bool:
    """Return whether the first row of a table may be a record: one column, a sentence, or short cells alone."""
    return len(record.fields) == 1 or not _is_name(longest, record) or lengths[longest] < _LONG


def _is_name(name: str, record: Record) -> bool:
    """Return whether a hint can show a field's name: plain, and no sentence from a table without a row of names."""
    return _is_plain(name) is not None and not (record.delimiter and _is_sentence(name))


def _likely_pair(names: Mapping[str, str]) -> tuple[str, str]:
    """Return the likeliest fields of question and answer, from names by their lower case; "" where no name is known."""
    question, answer = (next((names[one] for one in known if one in names), "") for known in (_QUESTIONS, _ANSWERS))
    return question, answer


def _rewriting(record: Record, path: Path, names: Mapping[str, str]) -> str | None:
    """Return the command that renames a file's fields to prompt and response; None for unknown names or formats."""
    question, answer = _likely_pair(names)
    ending, program = Path(path.name.removesuffix(".gz")).suffix.lower(), None
    if ending in (".jsonl", ".ndjson", ".json"):
        rows = "json.load(sys.stdin)" if ": item " in record.where else "map(json.loads, filter(str.strip, sys.stdin))"
        pair = f'{{"prompt": r.pop("{question}"), "response": r.pop("{answer}"), **r}}'
        program = f"python3 -c 'import json, sys; [print(json.dumps({pair})) for r in {rows}]'"
    elif ending == ".parquet":
        table = f't.read_table(sys.stdin.buffer).rename_columns({{"{question}": "prompt", "{answer}": "response"}})'
        program = f"python3 -c 'import sys, pyarrow.parquet as t; t.write_table({table}, sys.stdout.buffer)'"
    elif record.delimiter and question and answer:
        renamed = {question: "prompt", answer: "response"}
        columns = [renamed.get(name) or name for name in record.fields]
        return header_command(path, columns, record.delimiter, "qa", has_names=True)
    return _copying(path, program, "qa") if program and question and answer else None


def header_command(path: Path, columns: Iterable[str], delimiter: str, label: str, *, has_names: bool) -> str | None:
    """Return the command that copies a table with these names of columns above its rows, or for its first row.

    Names that cannot be typed become column1 and so on. Returns None where `_copying` does.
    """
    columns = (name if _is_plain(name) else f"column{at}" for at, name in enumerate(columns, 1))
    names = delimiter.join(columns).replace("\t", r"\t")
    return _copying(path, f"(printf '{names}\\n'; {'tail -n +2' if has_names else 'cat'})", label)


def _copying(path: Path, program: str, label: str) -> str | None:
    """Return the command with which a program rewrites a file, packed or not; None for a name that cannot be typed."""
    packed, name = path.suffix == ".gz", Path(path.name.removesuffix(".gz"))
    ending = ".jsonl" if name.suffix.lower() == ".json" else name.suffix
    known = ending.lower() in (".jsonl", ".ndjson", ".csv", ".tsv", ".parquet")
    if not known or not path.is_file() or visible(str(path)) != str(path):
        return None
    old, new = quote(str(path)), quote(str(path.with_name(f"{name.stem}-{label}{ending}")))
    return f"gunzip -c {old} | {program} > {new}" if packed else f"{program} < {old} > {new}"


def _field(record: Record, name: str) -> Any:
    return record.fields.get(name) if isinstance(record.fields, Mapping) else record.fields


def _text(record: Record, field: str, path: Path | None) -> str:
    if (text := _field(record, field)) is None and field in record.fields:  # an empty cell, as pandas writes it
        return ""
    if not isinstance(text, str):
        error = _without_text([record], field, path)
        if not is_conversation(record.fields, field):
            error.hint = None  # as other records have the field
        raise error
    return whole_text(text, record.where)
