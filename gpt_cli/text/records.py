"""Find the fields of records (table rows, JSON) that contain the text, or question and answer. Needs no torch."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from gpt_cli.common.untrusted_files import name_in_shell
from gpt_cli.errors import DataError, shown, visible
from gpt_cli.text.conversations import (
    FIELDS,
    MESSAGES,
    conversation,
    is_conversation,
    is_words,
    lower_names,
    notice_of,
    whole_text,
)
from gpt_cli.text.documents import TextBlock
from gpt_cli.text.remarks import Remarks

DEFAULT_FIELD = "text"  # of data.text_field
SAMPLE, _SAMPLE_CHARACTERS = 100, 2**20  # of the records that decide which field is the text
_letters = re.compile(r"[^\W\d_]").findall
_wide = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]").findall
_LONG = 20  # characters on average, from which a field is a text and not a name, a label or a date
_MOST_FIELDS = 20  # that an error lists
ALONE = "name their file alone"  # of a hint about questions beside texts
_KINDS = {dict: "an object", list: "a list", bytes: "bytes"}
# names of fields that are questions and answers, the likeliest first
_QUESTIONS = ("prompt", "question", "query", "instruction", "input", "ask", "human", "user", "q", "front", "term")
_QUESTIONS += ("问题", "提问", "题目", "指令", "用户", "输入", "问")
_ANSWERS = ("response", "answer", "reply", "output", "target", "completion", "chosen", "assistant", "a", "back")
_ANSWERS += ("definition", "回答", "答案", "回复", "解答", "解析", "助手", "输出", "答")
_is_label = re.compile(r"(id|key|编号|序号|时间|类型)$").search
# names of fields that a hint shows: a stranger may have chosen them, and a user types what a hint says
_is_plain = re.compile(r"(?=.{1,120}$)[\w.,?/()、，。？！：（）《》-]+( [\w.,?/()、，。？！：（）《》-]+)*").fullmatch
# a record as first row of a table: five words, two and a full stop, a comma, ten characters of Chinese; no form's "1."
_is_sentence = re.compile(r"(?!\d+[.、])((\S+ ){4}.+|.* .*\.|.*, .*|.*[\u3040-\u30ff\u3400-\u9fff]{10}.*)").fullmatch


class Record(NamedTuple):
    """One row of a table, or one value of JSON; `where` (file and line) is for error messages."""

    where: str
    fields: Any  # a mapping from names to values; a text alone is a document
    delimiter: str | None = None  # between cells, if the names are the first row of a table


def lines_of(text: Iterable[str], name: str, max_length: int) -> Iterator[str]:
    """Yield lines with their newlines; raise DataError, located by `name`, for a line over `max_length` characters."""
    # split at newlines alone: JSON text may contain U+2028, where splitlines would cut
    unfinished, length, number = list[str](), 0, 1
    for block in text:
        first, *others = block.split("\n")
        unfinished.append(first)
        length += len(first)
        if length > max_length:
            raise DataError(f"{name}:{number}", f"this line has more than {max_length:,} characters")
        for following in others:
            yield "".join(unfinished) + "\n"
            unfinished, length, number = [following], len(following), number + 1
    if last := "".join(unfinished):
        yield last


def documents_of(records: Iterator[Record], text_field: str, remarks: Remarks) -> Iterator[TextBlock]:
    """Yield the text field of each record as a document; `remarks` leaves out a record without it, or raises DataError.

    Also raises DataError, which lists the fields with text, if `text_field_of` cannot tell which field is the text.
    """
    sample = _sample_of(records)
    objects = [record for record in sample if not isinstance(record.fields, str)]
    field = text_field_of(objects, text_field, remarks)
    if field != text_field:
        others = [*_texts_of(objects, _mean_lengths(objects)), *_nested_texts(objects, 0)]
        others = [name for name in others if name != field]
        unread = ", ".join(visible(name, 40) for name in others[:_MOST_FIELDS])
        remarks.note(f"{field} is the text of each record" + (f"; gpt does not read {unread}" if unread else ""))
    yield from _blocks_of(sample, records, lambda record: _text(record, field, remarks.path), remarks)


def conversations_of(records: Iterable[Record], text_field: str, remarks: Remarks) -> Iterator[TextBlock]:
    """Yield conversations as JSON (`Conversation.to_json`); `remarks` leaves out other records, or raises DataError.

    A record with a text in the field `text_field` is not a conversation.
    """
    records = (record._replace(fields=lower_names(record.fields)) for record in records)
    sample = _sample_of(records)
    examples = [record.fields for record in sample if is_conversation(record.fields, text_field)]
    if examples and (words := notice_of(examples)):
        remarks.note(words)

    def text_of(record: Record) -> str:
        if not is_conversation(record.fields, text_field):
            sentence = "this is not a question with an answer, but the first record of the first file is"
            lacks_a_part = isinstance(record.fields, Mapping) and record.fields.keys() & FIELDS
            hint = None if lacks_a_part else "put texts into a file of their own, and train on that alone"
            raise DataError(record.where, sentence, hint=hint)
        dialogue = conversation(record.fields, record.where, remarks)
        return dialogue.to_json() if dialogue.turns[-1].content.strip() else ""

    yield from _blocks_of(sample, records, text_of, remarks)


def _blocks_of(
    sample: Sequence[Record], records: Iterable[Record], text_of: Callable[[Record], str], remarks: Remarks
) -> Iterator[TextBlock]:
    """Yield the text of each non-empty record; a bad record is left out or raises DataError, as `remarks` decides."""
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
    """Return the text field's name: `text_field` or, if that is the default and missing, the only long field.

    Ignores a long field whose values are lists of lines, unless it is the longest. Raises DataError in all other cases;
    the error lists the fields that contain text, the longest first.
    """
    if not sample or any(isinstance(_field(record, text_field), str) for record in sample):
        return text_field
    lengths = _mean_lengths(sample)
    long = [name for name in lengths if name.lower() == DEFAULT_FIELD]  # such as "Text"
    long = long or [name for name in _texts_of(sample, lengths) if _is_long(name, sample)]
    long = [name for name in long if name == long[0] or not isinstance(sample[0].fields.get(name), list)]
    has_text = len(long) == 1 and _is_name(long[0], sample[0]) and not is_conversation(sample[0].fields, text_field)
    names = {name.lower(): name for name in lengths}
    question, answer = _likely_pair(names)
    has_answers = bool(answer) and (bool(question) or _is_long(answer, sample))
    has_answers |= {"role", "content"} <= names.keys() or any(re.search("rejected|answer|答", name) for name in names)
    if text_field == DEFAULT_FIELD and has_text and not has_answers and not _nested_texts(sample, lengths[long[0]]):
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
        for name in record.fields:
            if isinstance(value := _field(record, name), str):
                lengths[name] += len(value)
    return {name: length / len(sample) for name, length in lengths.most_common()}


def _is_long(name: str, sample: Sequence[Record]) -> bool:
    """Return whether a field's values have at least 20 characters on average; Chinese and Japanese ones count twice."""
    values = [value for record in sample if isinstance(value := _field(record, name), str)]
    return sum(len(value) + len(_wide(value[:_LONG])) for value in values) >= _LONG * len(sample)


def _nested_texts(sample: Sequence[Record], most: float) -> list[str]:
    """Return the names of fields whose values are objects or lists of more than `most` letters on average."""
    lengths = Counter[str]()
    for record in sample:
        for name in record.fields:
            if type(value := _field(record, name)) in (dict, list):
                lengths[name] += len(_letters(str(value)))
    return [name for name, length in lengths.items() if length > most * len(sample)]


def _texts_of(sample: Sequence[Record], names: Collection[str]) -> list[str]:
    """Return the fields in `names` of which over half of the non-empty values may be natural text (see `is_words`)."""
    values = {name: [value for record in sample if (value := _field(record, name))] for name in names}
    return [name for name in names if 2 * sum(map(is_words, values[name])) > len(values[name])]


def _without_text(sample: Sequence[Record], text_field: str, path: Path | None) -> DataError:
    record, lengths = sample[0], _mean_lengths(sample)
    sentence, hint = f"this record has no field {shown(text_field)} that contains text", None
    if lengths:
        listed = [f"{shown(name)} ({length:,.0f})" for name, length in islice(lengths.items(), _MOST_FIELDS)]
        sentence += f"; fields with text, and their mean length in characters: {', '.join(listed)}"
    kinds = {name: _KINDS[kind] for name in record.fields if (kind := type(_field(record, name))) in _KINDS}
    if listed := [f"{shown(name)} ({kind})" for name, kind in kinds.items()]:
        sentence += f"; fields of other kinds: {', '.join(listed[:_MOST_FIELDS])}"
    longest = next(iter(texts := _texts_of(sample, lengths)), None)
    names = {name.lower(): name for name in lengths}
    has_names = longest and len(record.fields) > 1 and _is_name(longest, record) and lengths[longest] >= _LONG
    if {"role", "content"} <= names.keys() or {"from", "value"} <= names.keys():
        hint = f"a record must have all messages of a conversation, as in {MESSAGES}"
    elif longest and record.delimiter and not has_names and not any(_likely_pair(names)):
        hint = "if the table has no row with names, write one first"
        readings: list[dict[str, str]] = [{longest: "text"} if len(texts) == 1 or len(record.fields) == 2 else {}]
        if len(texts) == len(record.fields) == 2:  # such as a word and its translation
            readings = readings * _is_long(longest, sample)
            readings.append(dict(zip(record.fields, ("prompt", "response"), strict=True)))
        columns = [[new.get(name, "") for name in record.fields] for new in readings]
        commands = [path and header_command(path, new, record.delimiter, has_names=False) for new in columns]
        if all(commands):
            hint += ": " + "; for questions with answers: ".join(map(str, commands))
        if _is_name(longest, record) or (_is_plain(longest) and re.search("[?？]", longest)):  # of a form
            hint += f"; else ‹data.text_field={longest}›"
    elif lengths.keys() == {"chosen", "rejected"}:
        hint = "‹data.text_field=chosen›"
    elif longest and _is_plain(longest) and "rejected" not in names and not _nested_texts(sample, lengths[longest]):
        hint = f"‹data.text_field={longest}›"  # a shorter one is not the text
        if command := path and _rewriting(record, path, names):
            hint = f"for questions with answers: {command}; else {hint}"
        elif sum(length > 1 for length in lengths.values()) > 1:
            hint += "; for questions with answers, name their fields prompt and response"
    if is_conversation(record.fields, text_field):
        hint = f"questions with answers are read without other text; {ALONE}"
    return DataError(record.where, sentence, hint=hint)


def _is_name(name: str, record: Record) -> bool:
    """Return whether a hint may show a field name: only safe characters; in a table, not a sentence (a row of text)."""
    return _is_plain(name) is not None and not (record.delimiter and _is_sentence(name))


def _likely_pair(names: Mapping[str, str]) -> tuple[str, str]:
    """Return the likeliest (question, answer) fields, "" if not found; `names` maps lower-case names to real names."""

    def likeliest(known: Sequence[str]) -> str:
        if exact := [names[word] for word in known if word in names]:
            return exact[0]
        words = [word for word in known if len(word) > (5 if word.isascii() else 1)]
        plain = [name for name in names if _is_plain(name) and not _is_label(name)]
        return next((names[one] for word in words for one in plain if word in one), "")

    question, answer = likeliest(_QUESTIONS), likeliest(_ANSWERS)
    return question, "" if answer == question else answer


def _rewriting(record: Record, path: Path, names: Mapping[str, str]) -> str | None:
    """Return a shell command that copies a file and renames its question and answer fields for gpt, or return None."""
    question, answer = _likely_pair(names)
    renamed, inputs = {question: "prompt", answer: "response"}, ("input", "输入", "context")
    if (more := [names[one] for one in inputs if one in names]) and question in ("指令", names.get("instruction")):
        renamed = {question: "instruction", more[0]: "input", answer: "output"}
    if "system_prompt" in names:
        renamed[names["system_prompt"]] = "system"
    ending, program = Path(path.name.removesuffix(".gz")).suffix.lower(), None
    if not question or not answer:
        return None
    if ending in (".jsonl", ".ndjson", ".json"):
        rows = "json.load(sys.stdin)" if ": item " in record.where else "map(json.loads, filter(str.strip, sys.stdin))"
        pairs = ", ".join(f'"{new}": r.pop("{old}", "")' for old, new in renamed.items())
        program = f"python3 -c 'import json, sys; [print(json.dumps({{{pairs}, **r}})) for r in {rows}]'"
    elif ending == ".parquet":
        pairs = ", ".join(f'"{old}": "{new}"' for old, new in renamed.items())
        # a path, as after reading a file object pyarrow may abort at exit (apache/arrow #34314)
        table = f't.read_table("/dev/stdin").rename_columns({{{pairs}}})'
        program = f"python3 -c 'import sys, pyarrow.parquet as t; t.write_table({table}, sys.stdout.buffer)'"
    elif record.delimiter:
        columns = [renamed.get(name) or name for name in record.fields]
        return header_command(path, columns, record.delimiter, has_names=True)
    return _copying(path, program, "qa") if program else None


def header_command(path: Path, columns: Sequence[str], delimiter: str, *, has_names: bool) -> str | None:
    """Return a shell command that copies a table, with a new first row `columns`; if `has_names`, without the old one.

    A name with special characters becomes column1, column2, ... Returns None unless `path` is an existing table.
    """
    plain = (name if _is_plain(name.replace(delimiter, '"')) else f"column{at}" for at, name in enumerate(columns, 1))
    names = delimiter.join(plain).replace("\t", r"\t")
    label = "qa" if {"prompt", "instruction"} & {*columns} else "named"
    return _copying(path, f"(printf '{names}\\n'; {'tail -n +2' if has_names else 'cat'})", label)


def _copying(path: Path, program: str, label: str) -> str | None:
    """Return a shell command that pipes a table or JSON file through `program` to a copy NAME-`label`, or None."""
    packed, name = path.suffix == ".gz", Path(path.name.removesuffix(".gz"))
    ending = ".jsonl" if name.suffix.lower() == ".json" else name.suffix
    old = name_in_shell(path)
    if old == "OLD" or ending.lower() not in (".jsonl", ".ndjson", ".csv", ".tsv", ".parquet"):
        return None
    new = quote(str(path.with_name(f"{name.stem}-{label}{ending}")))
    return f"gunzip -c {old} | {program} > {new}" if packed else f"{program} < {old} > {new}"


def _field(record: Record, name: str) -> Any:
    """Return the value of a field; a list of strings becomes one text with a line for each string."""
    value = record.fields.get(name) if isinstance(record.fields, Mapping) else record.fields
    if isinstance(value, list) and value and all(isinstance(line, str) for line in value):
        return "\n".join(value)
    return value


def _text(record: Record, field: str, path: Path | None) -> str:
    if (text := _field(record, field)) is None and field in record.fields:  # an empty cell, as pandas writes it
        return ""
    if not isinstance(text, str):
        error = _without_text([record], field, path)
        if not is_conversation(record.fields, field):
            error.hint = None  # as other records have the field
        raise error
    return whole_text(text, record.where)
