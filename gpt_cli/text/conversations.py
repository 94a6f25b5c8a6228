"""Questions with answers, as lines of .jsonl and files of JSON give them. Needs no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gpt_cli.errors import DataError, shown

ROLES = ("system", "user", "assistant")
EXAMPLE = '{"prompt": "...", "response": "..."}'
MESSAGES = '{"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}'


class Turn(NamedTuple):
    """A message of one side."""

    role: str  # one of ROLES
    content: str


class Conversation(NamedTuple):
    """Turns in order; `choices` are answers among which the last turn has the right one."""

    turns: tuple[Turn, ...]
    choices: tuple[str, ...] = ()

    def written(self) -> str:
        """The conversation as one text, which `read_written` reads."""
        return json.dumps([self.turns, self.choices], ensure_ascii=False)

    def answered_by(self, answer: str) -> Conversation:
        """The conversation with another last answer."""
        return self._replace(turns=(*self.turns[:-1], Turn("assistant", answer)))


def read_written(text: str) -> Conversation:
    """The conversation that `written` wrote."""
    turns, choices = json.loads(text)
    return Conversation(tuple(Turn(*turn) for turn in turns), tuple(choices))


def is_conversation(record: Any, text_field: str) -> bool:
    """Whether a line of JSON is a question with an answer, not a text in its field."""
    known = isinstance(record, dict) and not isinstance(record.get(text_field), str)
    return known and ("messages" in record or {"prompt", "response"} <= record.keys())


def conversation_of_line(line: str, text_field: str, where: str) -> Conversation:
    """The conversation of a line of .jsonl, which ends with an answer; raises DataError, at `where`, for another."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(where, f"this is not JSON; each line is an object such as {EXAMPLE}") from error
    if not is_conversation(record, text_field):
        sentence = f"this line is no question with an answer, as the first one is: {EXAMPLE}"
        raise DataError(where, sentence, hint=f"or {MESSAGES}; put lines of text into a file of their own")
    return conversation(record, where)


def conversation(record: Mapping[str, Any], where: str, *, answered: bool = True) -> Conversation:
    """A conversation from `messages`, or from `prompt` and `response` with an optional `system`.

    It ends with an answer, or, not `answered`, with what is to be answered. Raises DataError at `where`.
    """
    if "messages" in record:
        turns = tuple(_turns(record["messages"], where))
    else:
        named = {"prompt": "user", "response": "assistant"}
        if record.get("system") not in (None, ""):  # as tables have it where nothing is said
            named = {"system": "system", **named}
        turns = tuple(Turn(role, _text(record, key, where)) for key, role in named.items() if key in record)
    if not turns:
        raise DataError(where, f"messages is empty; write it as in {MESSAGES}")
    last = turns[-1].role
    if answered and last != "assistant":
        raise DataError(where, f"its last message is by {shown(last)}, so there is no answer to learn")
    if not answered and last != "user":
        raise DataError(where, f"its last message is by {shown(last)}, so there is nothing to answer; let a user ask")
    choices = [] if record.get("choices") is None else record["choices"]  # as in tables
    if not isinstance(choices, list) or not all(isinstance(choice, str) for choice in choices):
        raise DataError(where, 'choices is a list of answers such as ["yes", "no"]')
    if choices and answered and (turns[-1].content not in choices or len(set(choices)) < max(2, len(choices))):
        raise DataError(where, "choices has at least two answers, each once, and the right one is among them")
    return Conversation(turns, tuple(_whole(choice, where) for choice in choices))


def conversations_of_file(text: str, where: str) -> list[Conversation]:
    """Read what is to be answered: JSON messages of one conversation, or a conversation a line, with or without a key.

    Raises DataError for anything else.
    """
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        whole = None
    if isinstance(whole, list):
        return [conversation({"messages": whole}, where, answered=False)]
    records = [(whole, where)] if isinstance(whole, dict) else []
    for number, line in enumerate(text.split("\n") if whole is None else (), start=1):
        if line.strip():
            try:
                records.append((json.loads(line), f"{where}:{number}"))
            except (ValueError, RecursionError) as error:
                raise DataError(f"{where}:{number}", f"this is not JSON such as {MESSAGES}") from error
    conversations = list[Conversation]()
    for record, location in records:
        record = {"messages": record} if isinstance(record, list) else record
        if not isinstance(record, dict) or not {"messages", "prompt"} & record.keys():
            raise DataError(location, f'this is not a conversation such as {{"prompt": "..."}} or {MESSAGES}')
        question = {key: record[key] for key in ("messages", "system", "prompt") if key in record}
        conversations.append(conversation(question, location, answered=False))
    if not conversations:
        raise DataError(where, f"it contains no conversation such as {MESSAGES}")
    return conversations


def _turns(messages: Any, where: str) -> Sequence[Turn]:
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise DataError(where, f"messages is a list of objects, as in {MESSAGES}")
    turns = list[Turn]()
    for message in messages:
        role = message.get("role")
        if role not in ROLES:
            said = f"a message has the role {shown(role)}" if "role" in message else "a message has no role"
            raise DataError(where, f"{said}; use {', '.join(ROLES)}")
        if role == "system" and turns:
            raise DataError(where, "a message of the system comes before all others")
        turns.append(Turn(role, _text(message, "content", where)))
    return turns


def _text(record: Mapping[str, Any], key: str, where: str) -> str:
    if key not in record:
        raise DataError(where, f"{key} is missing")
    if not isinstance(text := record[key], str):
        raise DataError(where, f"{key} is not a text")
    return _whole(text, where)


def _whole(text: str, where: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(where, f"the text has half a character at position {error.start}") from None
    return text
