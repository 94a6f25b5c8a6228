"""Read records of JSON, a line each, or the items of one array, as a stream. Needs no torch."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from gpt_cli.common.limits import LINE_CHARACTERS
from gpt_cli.errors import DataError
from gpt_cli.text.records import Record, lines_of
from gpt_cli.text.remarks import Remarks

_SPACE = " \t\r\n"
_spaces = re.compile(f"[{_SPACE}]*").match


def form_of_json(start: str) -> str | None:
    """Return the form of a .json file by its beginning: "array", "lines", or None for a value that is plain text."""
    start = start.lstrip(_SPACE)
    if start.startswith("["):
        return "array" if start[1:].lstrip(_SPACE)[:1] in ("{", '"') else None
    first, newline, rest = start.partition("\n")
    if first.startswith("{") and newline and rest.lstrip(_SPACE).startswith("{"):
        try:
            json.loads(first)
        except (ValueError, RecursionError):
            return None
        return "lines"
    return None


def json_lines(text: Iterable[str], name: str, remarks: Remarks) -> Iterator[Record]:
    """Yield the values of lines that are not empty; a line that is not JSON is a bad record. Raises DataError."""
    for number, line in enumerate(lines_of(text, name), start=1):
        if not line.strip():
            continue
        where = f"{name}:{number}"
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            example = '{"text": "..."}'
            remarks.leave_out_record(DataError(where, f"this is not JSON; each line is an object such as {example}"))
            continue
        yield Record(where, value if isinstance(value, dict | str) else {})


def json_items(text: Iterable[str], name: str, remarks: Remarks) -> Iterator[Record]:
    """Yield the items of one array, objects or texts; any other item is a bad record.

    Raises DataError for content that is no array, is cut off, or has a large item.
    """
    decoder, blocks, number = json.JSONDecoder(), iter(text), 0
    rest, at, closed = "", 0, False

    def more() -> bool:
        """Drop the text that was read, and read as much again as is held; only an item must fit in memory."""
        nonlocal rest, at
        added = [rest[at:]]
        goal, num_characters, at = 2 * len(added[0]), 0, 0
        while num_characters <= goal and (block := next(blocks, None)) is not None:
            added.append(block)
            num_characters += len(block)
        rest = "".join(added)
        return len(added) > 1

    def skip_space() -> bool:
        """Go to the next character that is no space; return whether there is one."""
        nonlocal at
        while (at := _spaces(rest, at).end()) == len(rest) and more():  # pyright: ignore[reportOptionalMemberAccess]
            pass
        return at < len(rest)

    skip_space()
    at += 1  # the bracket, which `form_of_json` saw
    while skip_space():
        where = f"{name}: item {number + 1:,}"
        if closed:
            raise DataError(name, f"after the array of {number:,} items, there is more text")
        if rest[at] == "]":
            at, closed = at + 1, True
            continue
        if number and rest[at] != ",":
            raise DataError(where, "this is not JSON: a comma is missing before this item")
        at += number > 0
        while skip_space():
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
        else:
            raise DataError(where, "this is not JSON, or the file is cut off here")
        number, at = number + 1, end
        if isinstance(value, dict | str):
            yield Record(where, value)
        else:
            remarks.leave_out_record(DataError(where, "this item is neither an object nor a text"))
    if not closed:
        raise DataError(f"{name}: item {number:,}", "the array ends without its bracket: the file is cut off")
