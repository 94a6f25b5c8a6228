"""Parse conversations (questions with answers) from the records of JSON files and tables. Needs no torch."""

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gpt_cli.errors import DataError, shown, visible
from gpt_cli.text.remarks import Remarks

ROLES = ("system", "user", "assistant")
# the fields of a question, and of its answer: ours, OpenAI's completions, preferences, question sets, Alpaca
_PAIRS = (
    (("prompt",), "response"),
    (("prompt",), "completion"),
    (("prompt",), "chosen"),
    (("question",), "answer"),
    (("instruction", "input"), "output"),
)
# of OpenAI, of ShareGPT and minimind, of the chats that ChatGPT and Claude export
_EXPORTS = ("mapping", "chat_messages")
_LISTS = ("messages", "conversations", *_EXPORTS, "chosen")
FIELDS = {"system", "choices", "current_node", *_LISTS, *(key for keys, answer in _PAIRS for key in (*keys, answer))}
# one word of ASCII such as an id, a path or base64, and an address; a word of letters alone may be DNA
_is_code = re.compile(r"(?=[A-Za-z]*[!-@\[-`{-~])[!-~]+|\w+://\S*|\d+(\.\d+){3}\S*").fullmatch
_START, _MOST_UNREAD = 1000, 20  # characters that `is_words` examines; fields that a notice names
# other fields that gpt reads: beside question and answer, and in a message
_READ = {"system", "choices", "current_node", "role", "content", "from", "value", "sender", "text"}
_USERS, _ASSISTANTS = ("human", "prompter", "用户"), ("gpt", "chatgpt", "bot", "助手")
_OTHER_ROLES = {"developer": "system"} | dict.fromkeys(_USERS, "user") | dict.fromkeys(_ASSISTANTS, "assistant")
_TOOLS = ("tool", "function", "function_call", "observation")
_SPEAKERS = (("role", "content"), ("from", "value"), ("sender", "text"))
MESSAGES = '{"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}'


class Turn(NamedTuple):
    """A message of a conversation: its role and its text."""

    role: str  # one of ROLES
    content: str


class Conversation(NamedTuple):
    """The turns of a chat, in order; `choices` lists the possible answers to a final multiple-choice question."""

    turns: tuple[Turn, ...]
    choices: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Return the conversation as a JSON string, which `read_conversation` parses."""
        return json.dumps([self.turns, self.choices], ensure_ascii=False)


def read_conversation(text: str) -> Conversation:
    """Return the conversation in a JSON string that `Conversation.to_json` has made."""
    turns, choices = json.loads(text)
    return Conversation(tuple(Turn(*turn) for turn in turns), tuple(choices))


def is_conversation(record: Any, text_field: str) -> bool:
    """Return whether a record has the fields of a conversation, such as messages, and no text in `text_field`."""
    if not isinstance(record, Mapping) or isinstance(record.get(text_field), str):
        return False
    record = lower_names(record)
    return _list_of(record) is not None or _pair_of(record) is not None


def notice_of(records: Sequence[Mapping[str, Any]]) -> str:
    """Return a notice that names the fields from which gpt reads conversations, and the fields that gpt ignores.

    The notice does not name the usual fields, `messages` or `prompt` and `response`, so it may be empty.
    """
    name, (question, answer) = _list_of(records[0]), _pair_of(records[0]) or _PAIRS[0]
    present = " and ".join(key for key in question if key in records[0])
    words = f"the messages are in {name}" if name else f"the question is in {present}, the answer in {answer}"
    is_usual = name == "messages" or (not name and (question, answer) == _PAIRS[0])
    read, unread = {*_READ, *([name, "prompt", "chosen"] if name else [*question, answer])}, dict[str, None]()
    for record in records:
        messages = record.get(name or "")
        for fields in (record, *map(_dict, messages if isinstance(messages, list) else ())):
            others = [(key, value) for key, value in fields.items() if key not in read]
            has_texts = [(key, is_words(value) or (value and isinstance(value, list | dict))) for key, value in others]
            unread |= {key: None for key, has in has_texts if has or key in ("label", "weight", "score")}
    names = ", ".join(visible(key, 40) for key in [*unread][:_MOST_UNREAD])
    return "; ".join(([] if is_usual else [words]) + ([f"gpt does not read {names}"] if unread else []))


def is_words(value: Any) -> bool:
    """Return whether a value may be natural text; False for an id, URL, path, base64, or mostly digits (a date)."""
    start = value[:_START].strip(" .!?\n") if isinstance(value, str) else ""
    return not _is_code(start) and 2 * sum(map(str.isdigit, start)) < len(start) - start.count(" ")


def lower_names(record: Any) -> Any:
    """Return a record with the names of conversation fields in lower case, such as `question` for `Question`."""
    if not isinstance(record, Mapping) or all(map(str.islower, record)):  # as nearly all are
        return record
    known = FIELDS - record.keys()
    return {key.lower() if key.lower() in known else key: record[key] for key in record}


def _list_of(record: Mapping[str, Any]) -> str | None:
    """Return the name of the message field, or None; `mapping` counts only beside `current_node`, `chosen` as list."""
    names = (key for key in _LISTS if key in record and (key != "mapping" or "current_node" in record))
    return next((key for key in names if key != "chosen" or isinstance(record[key], list)), None)


def _pair_of(record: Mapping[str, Any]) -> tuple[tuple[str, ...], str] | None:
    return next((pair for pair in _PAIRS if pair[0][0] in record and pair[1] in record), None)


def conversation(record: Mapping[str, Any], where: str, remarks: Remarks | None) -> Conversation:
    """Build a conversation from a record: from its list of messages, or from its question and answer fields.

    Either form may have a `system` field. With `remarks`, a question after the last answer is dropped and counted
    there, and the rest must end with an answer; without `remarks`, the conversation must end with a question. Raises
    DataError for any other record; the message locates the record by `where`, such as a.jsonl:3.
    """
    if name := _list_of(record):
        messages = _branch(record) if name == "mapping" else record[name]
        if name == "chosen" and isinstance(record.get("prompt"), list):
            messages = record["prompt"] + messages
        elif isinstance(messages, list) and isinstance(record.get("chosen"), dict):
            messages = [*messages, record["chosen"]]
        turns = _turns(messages, name, where)
        if remarks and name in _EXPORTS and all(turn.role == "user" for turn in turns):
            return Conversation((Turn("assistant", ""),))  # a chat without any answer
    else:
        question, answer = _pair_of(record) or _PAIRS[0]
        filled = [key for key in question[1:] if record.get(key)]
        parts = [_text(record, key, where) for key in (*question[:1], *filled) if key in record]
        turns = [Turn("user", "\n\n".join(parts))] if parts else []
        if answer in record:
            value, choices = record[answer], record.get("choices")
            if isinstance(choices, list) and type(value) is int and 0 <= value < len(choices):
                value = choices[value]
            elif isinstance(value, str) and {"A", "B"} <= record.keys():  # a column for each choice
                value = record.get(value.strip(), value)
            turns.append(Turn("assistant", _text({answer: value}, answer, where)))
    if turns and record.get("system") and turns[0].role != "system":
        turns = [Turn("system", _text(record, "system", where)), *turns]
    if not turns:
        raise DataError(where, f"{name or 'messages'} is empty; write it as in {MESSAGES}")
    if remarks and turns[-1].role == "user" and any(turn.role == "assistant" for turn in turns):
        turns = turns[:-1]
        remarks.leave_out("question", where)
    last = turns[-1].role
    if remarks and last != "assistant":
        raise DataError(where, f"its last message is by {shown(last)}, so there is no answer to learn")
    if not remarks and last != "user":
        raise DataError(where, f"its last message is by {shown(last)}, so there is nothing to answer; let a user ask")
    choices = [] if record.get("choices") is None else record["choices"]  # as in tables
    if not isinstance(choices, list) or not all(isinstance(choice, str) for choice in choices):
        raise DataError(where, 'choices is a list of answers such as ["yes", "no"]')
    if choices and len(set(choices)) < max(2, len(choices)):
        raise DataError(where, "choices must have at least two answers, each only once")
    if choices and turns[-1].content not in choices:
        answer = shown(turns[-1].content, 40)
        hint = "write the answer as one of the choices"
        raise DataError(where, f"the answer {answer} is not one of its choices", hint=hint)
    return Conversation(tuple(turns), tuple(whole_text(choice, where) for choice in choices))


def conversations_of_file(text: str, where: str) -> list[Conversation]:
    """Return the conversations in `text`, which is one JSON value, or one on each line.

    Each value, an object or a list of messages, must end with a question; anything else raises DataError at `where`.
    """
    lines = {f"{where}:{number}": line for number, line in enumerate(text.split("\n"), start=1) if line.strip()}
    with contextlib.suppress(ValueError, RecursionError):
        json.loads(text)
        lines = {where: text}
    conversations = list[Conversation]()
    for location, line in lines.items():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(location, f"this is not JSON such as {MESSAGES}") from error
        record = {"messages": record} if isinstance(record, list) else record
        if not isinstance(record, dict) or not {"messages", "prompt"} & record.keys():
            raise DataError(location, f'this is not a conversation such as {{"prompt": "..."}} or {MESSAGES}')
        question = {key: record[key] for key in ("messages", "system", "prompt") if key in record}
        conversations.append(conversation(question, location, None))
    if not conversations:
        raise DataError(where, f"it contains no conversation such as {MESSAGES}")
    return conversations


def _branch(record: Mapping[str, Any]) -> Any:
    """Return the messages on the current branch of a ChatGPT export, where edited messages form a tree."""
    nodes, at, messages = record["mapping"], record["current_node"], list[dict[str, Any]]()
    if not isinstance(nodes, dict):
        return nodes
    for _ in nodes:  # a cycle ends too
        node = nodes.get(at) if isinstance(at, str) else None
        if not isinstance(node, dict):
            break
        at, message = node.get("parent"), node.get("message")
        role, content = (_dict(_dict(message).get(key)) for key in ("author", "content"))
        parts = content.get("parts")
        parts = [part for part in parts if isinstance(part, str) and part] if isinstance(parts, list) else []
        if role.get("role") in ("user", "assistant") and parts:
            messages.append({"role": role["role"], "content": "".join(parts)})
    return messages[::-1]


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _turns(messages: Any, name: str, where: str) -> list[Turn]:
    if isinstance(messages, str):  # in a cell of a table
        with contextlib.suppress(ValueError, RecursionError):
            messages = json.loads(messages)
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise DataError(where, f"{name} is a list of objects, as in {MESSAGES}")
    turns = list[Turn]()
    if tools := [role for message in messages for role in map(message.get, ("role", "from")) if role in _TOOLS]:
        raise DataError(where, f"a message has the role {shown(tools[0])}, but gpt does not learn tool calls")
    for message in messages:
        speaker, text = next((names for names in _SPEAKERS if names[0] in message), _SPEAKERS[0])
        if speaker == "sender" and isinstance(parts := message.get("content"), list):  # its `text` describes tools
            message = message | {text: [part for part in parts if _dict(part).get("type") == "text"]}
        role = str(message.get(speaker)).lower()
        role = _OTHER_ROLES.get(role, role)
        if role not in ROLES:
            said = f"a message has the role {shown(role)}" if speaker in message else "a message has no role"
            raise DataError(where, f"{said}; use {', '.join(ROLES)}")
        if role == "system" and turns:
            raise DataError(where, "a system message must come before all other messages")
        turns.append(Turn(role, _text(message, text, where)))
    return turns


def _text(record: Mapping[str, Any], key: str, where: str) -> str:
    if key not in record:
        raise DataError(where, f"{key} is missing")
    text = record[key]
    if isinstance(text, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in text):
        parts = [part.get("text") for part in text]  # OpenAI's parts of a message
        text = "".join(parts) if all(isinstance(part, str) for part in parts) else None
    if type(text) in (int, float) and str(text) != "nan":  # pandas writes nan for a missing value
        text = str(text)
    if not isinstance(text, str):
        raise DataError(where, f"{key} is not a text")
    return whole_text(text, where)


def whole_text(text: str, where: str) -> str:
    """Return the text unchanged; raise DataError if it contains a lone surrogate (half a character)."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(where, f"the text has half a character at position {error.start}") from None
    return text
