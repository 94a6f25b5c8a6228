"""Records of JSON: a line each, or the items of one array, as a stream. Needs no torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from gpt_cli.common.limits import LINE_CHARACTERS
from gpt_cli.errors import DataError
from gpt_cli.text.records import Record, lines_of
from gpt_cli.text.remarks import Remarks

_SPACE = " \t\r\n"


def form_of_json(start: str) -> str | None:
    """How a .json file that begins so holds records: "array", "lines", or None for a value to be read as plain text."""
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
    """The values of lines that are not empty; a line that is not JSON is a bad record. Raises DataError."""
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
    """The items of one array, objects or texts; any other item is a bad record.

    Raises DataError for what is no array, cut off, or has a large item.
    """
    decoder, blocks, number = json.JSONDecoder(), iter(text), 0
    rest, closed = "", False

    def more() -> bool:
        """Double what is held; an item is the largest thing that must fit in memory."""
        nonlocal rest
        goal, added = 2 * len(rest), [rest]
        while (block := next(blocks, None)) is not None:
            added.append(block)
            if sum(map(len, added)) > goal:
                break
        rest = "".join(added)
        return len(added) > 1

    while not rest.lstrip(_SPACE) and more():
        pass
    rest = rest.lstrip(_SPACE)[1:]  # the bracket, which `form_of_json` saw
    while True:
        rest = rest.lstrip(_SPACE)
        if not rest:
            if more():
                continue
            break
        if closed:
            raise DataError(name, f"after the array of {number:,} items, there is more text")
        where = f"{name}: item {number + 1:,}"
        if rest[0] == "]":
            rest, closed = rest[1:], True
            continue
        if number and rest[0] != ",":
            raise DataError(where, "this is not JSON: a comma is missing before this item")
        item = rest[1:].lstrip(_SPACE) if number else rest
        try:
            value, end = decoder.raw_decode(item)
            complete = end < len(item)  # a number may go on
        except (ValueError, RecursionError) as error:
            if len(rest) > LINE_CHARACTERS:
                raise DataError(where, f"this is not JSON, or has more than {LINE_CHARACTERS:,} characters") from error
            complete = False
            if not more():
                raise DataError(where, "this is not JSON, or the file is cut off here") from error
            continue
        if not complete and more():
            continue
        number, rest = number + 1, item[end:]
        if isinstance(value, dict | str):
            yield Record(where, value)
        else:
            remarks.leave_out_record(DataError(where, "this item is neither an object nor a text"))
    if not closed:
        raise DataError(f"{name}: item {number:,}", "the array ends without its bracket: the file is cut off")
