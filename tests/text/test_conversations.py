"""Questions and answers as files give them, what is refused with its line, and how they become tokens."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.archives import zipped
from support.corpora import documents_of, read_split
from support.exchange import CHATML
from support.helpers import small_config
from support.kept import save
from support.texts import examples_of, lay, read, refused

from gpt_cli.common.host import Host
from gpt_cli.errors import DataError, UsageError
from gpt_cli.text.chat_templates import template_for
from gpt_cli.text.conversations import Conversation, Turn, conversation, conversations_of_file, read_conversation
from gpt_cli.text.encode import encode_parts
from gpt_cli.text.remarks import Remarks
from gpt_cli.text.sft_examples import Examples, gather, pack
from gpt_cli.text.tokenizers import ByteTokenizer
from gpt_cli.tools.exchange.tokenizer_json import read_tokenizer

PAIR = {"prompt": "2+3", "response": "5"}
CHAT = {
    "messages": [
        {"role": "system", "content": "Add."},
        {"role": "user", "content": "1+1"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "2+2"},
        {"role": "assistant", "content": "4"},
    ]
}
END = 256


def lines(path: Path, *records: Any) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def examples(source: str, *settings: str) -> tuple[Examples, Examples]:
    sizes = "data.validation_fraction=0.5", "model.context_length=48"
    return examples_of(small_config(f"data.source={source}", *sizes, *settings))


def parts(found: Examples, number: int = 0) -> tuple[bytes, bytes]:
    """The tokens that are read alone and those that are learned; END is a full stop."""
    start, end = found.bounds[number : number + 2]
    ids, learned = found.ids[start:end], found.learned[start:end]
    as_text = [bytes(np.where(part == END, ord("."), part).astype(np.uint8)) for part in (ids[~learned], ids[learned])]
    return as_text[0], as_text[1]


def test_answers_are_learned_with_the_token_that_ends_them_or_where_that_is_asked_all_but_the_first(here: Path) -> None:
    found, validation = examples(lines(here / "a.jsonl", CHAT, PAIR))
    assert parts(found) == (b"Add.\n1+1\n2+2\n", b"2.4.")
    assert parts(validation) == (b"2+3\n", b"5.")
    own, _ = examples("a.jsonl", "data.template=Q: {prompt}\\nA: ")
    assert parts(own) == (b"Add.\nQ: 1+1\nA: Q: 2+2\nA: ", b"2.4.")
    _, whole = examples("a.jsonl", "data.loss=all")
    assert parts(whole) == (b"2", b"+3\n5.")


def test_the_last_examples_validate_and_none_is_cut(here: Path) -> None:
    """17 bytes and end-of-text fit a context of 17, one more does not."""
    records = [{"prompt": "x" * n, "response": "y" * 8} for n in (8, 9, 1, 2)]
    config = small_config(f"data.source={lines(here / 'a.jsonl', *records)}", "data.validation_fraction=0.25")
    config = config.changed(model={"context_length": 17})
    notices: list[str] = []
    text = encode_parts(*read_split(config.data), config, host=Host(notice=notices.append))
    assert isinstance(text.ids, Examples)
    assert isinstance(text.validation_ids, Examples)
    assert (text.ids.lengths.tolist(), text.validation_ids.lengths.tolist()) == ([17, 10], [11])
    left_out = "left out: 1 example of the training part, longer than context_length 17"
    assert notices == [f"{left_out}; all fit with ‹model.context_length=18›"]
    with pytest.raises(DataError, match="no example fits into context_length 4, of 3 examples"):
        encode_parts(*read_split(config.data), config.changed(model={"context_length": 4}))


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"text": "a text"}, "this is not a question with an answer"),
        ({"prompt": "only"}, "this is not a question with an answer"),
        ({"prompt": "a", "response": None}, "response is not a text"),
        ({"messages": []}, "messages is empty"),
        ({"messages": [{"content": "a"}]}, "a message has no role"),
        ({"messages": [{"role": "user"}]}, "content is missing"),
        ({"messages": CHAT["messages"][:2]}, "there is no answer to learn"),
        ({"messages": [{"role": "robot", "content": ""}]}, "use system, user, assistant"),
        ({"messages": [*CHAT["messages"][1:3], CHAT["messages"][0]]}, "must come before all other messages"),
        ({"messages": "a"}, "messages is a list of objects"),
        ({**PAIR, "choices": ["4", "6"]}, "is not one of its choices"),
        ({"prompt": "a", "response": "\ud800"}, "half a character"),
        ({"prompt": "a", "response": [{"type": "text", "text": [{"type": "text", "text": "b"}]}]}, "is not a text"),
    ],
)
def test_a_line_that_is_no_question_with_an_answer_is_named(here: Path, record: Any, said: str) -> None:
    error = refused(lines(here / "a.jsonl", PAIR, record))
    assert error.where.endswith("a.jsonl:2")
    assert said in error.sentence


@pytest.mark.parametrize("picture", ["a.png", "z.png"])
def test_a_file_without_text_in_a_directory_is_left_out(here: Path, picture: str) -> None:
    lay({f"texts/{picture}": b"\x89PNG\r\n\x1a\n\0\0"})
    lines(here / "texts" / "m.jsonl", PAIR, {**PAIR, "choices": None})
    found = read("texts")
    assert (found.how.conversations, found.num_documents, found.survey.num_skipped) == (True, 2, 1)


@pytest.mark.parametrize(
    ("name", "content", "hints"),
    [
        ("a.zip", b"PK cut off", ["‹data.skip_bad=true› leaves such files out"]),
        ("a.jsonl", b"[cut off", ["‹data.skip_bad=true› leaves such files out"]),
        ("a.jsonl", b"", []),
        ("a.txt", b"", []),
    ],
)
def test_the_first_file_that_says_something_tells_whether_a_directory_has_questions(
    here: Path, name: str, content: bytes, hints: list[str]
) -> None:
    lay({f"texts/{name}": content})
    lines(here / "texts" / "b.jsonl", PAIR, PAIR)
    lay({"packed.zip": zipped({name: content, "b.jsonl": Path("texts/b.jsonl").read_bytes()})})
    for source in ("texts", "packed.zip"):
        found = read(source, skip_bad=True)
        assert (found.how.conversations, found.num_documents) == (True, 2)
    if hints:
        error = refused("texts")
        assert [one.hint for one in (error, *error.others)] == hints
    else:
        assert read("texts").num_documents == 2


def test_a_missing_file_beside_questions_is_missing(here: Path) -> None:
    pairs = lines(here / "a.jsonl", PAIR, PAIR)
    for sources in ([pairs, "gone.jsonl"], ["gone.jsonl", pairs]):
        assert not refused(sources, "no such file").others


def test_files_of_two_kinds_are_refused(here: Path) -> None:
    pairs, text = lines(here / "a.jsonl", PAIR, PAIR), here / "b.txt"
    text.write_text("a text")
    for other in (str(text), "sums"):
        refused([pairs, other], "so all (files|sources) must")
    with pytest.raises(DataError, match="the other has none"):
        examples(pairs, "data.validation_source=sums")
    refused("b.txt", "needs lines of", loss="answers")
    assert documents_of(read(lines(here / "c.jsonl", {**PAIR, "text": "x"}))) == ("x",)


def test_a_file_of_messages_is_one_conversation_or_one_on_each_line() -> None:
    asked = [Turn("user", "1+1")]
    message = '{"role": "user", "content": "1+1"}'
    for text in (f"[{message}]", '{"prompt": "1+1"}', '{"prompt": "1+1", "system": "", "response": "2"}\n'):
        assert [list(one.turns) for one in conversations_of_file(text, "f")] == [asked]
    assert len(conversations_of_file('{"prompt": "a"}\n\n{"prompt": "b"}\n', "f")) == 2
    assert [list(one.turns) for one in conversations_of_file(f"[{message}]\r\n[{message}]", "f")] == [asked, asked]
    for wrong, where in (("", "f"), ("1", "f"), ('{"prompt": "a"}\nx', "f:2"), (json.dumps(CHAT), "f")):
        with pytest.raises(DataError) as raised:
            conversations_of_file(wrong, "f")
        assert raised.value.where == where


def test_a_conversation_is_written_and_read() -> None:
    found = conversation({**PAIR, "choices": ["5", "6"]}, "f:1", Remarks())
    assert found == Conversation((Turn("user", "2+3"), Turn("assistant", "5")), ("5", "6"))
    assert read_conversation(found.to_json()) == found


def test_rows_hold_every_example_once_and_are_as_full_as_they_can_be() -> None:
    lengths = np.array([5, 3, 7, 2, 8, 1, 6])
    rows = pack(lengths, 8)
    assert sorted(np.concatenate(rows).tolist()) == list(range(7))
    assert [int(lengths[row].sum()) for row in rows] == [8, 8, 8, 8]


def test_a_window_holds_examples_side_by_side() -> None:
    turns = [Conversation((Turn("user", "a"), Turn("assistant", answer))) for answer in ("bc", "d")]
    found = gather(turns, ByteTokenizer(), template_for(None, ByteTokenizer()), 8)
    inputs, targets, positions = found.packed(pack(found.lengths, 9), 9)
    a, b, c, d, line = b"abcd\n"
    assert inputs.tolist() == [[a, line, b, c, a, line, d, 0, 0]]
    assert targets.tolist() == [[-100, b, c, END, -100, d, END, -100, -100]]
    assert positions.tolist() == [[0, 1, 2, 3, 0, 1, 2, 0, 1]]


@pytest.mark.parametrize("learn_all", [False, True])
def test_the_question_of_the_first_example_ends_before_its_answer(learn_all: bool) -> None:
    turns = [Conversation((Turn("user", word), Turn("assistant", "yes"))) for word in ("one", "two")]
    tokenizer = ByteTokenizer()
    for first, question in enumerate(("one\n", "two\n")):
        found = gather(turns[first:], tokenizer, template_for(None, tokenizer), 16, learn_all=learn_all)
        assert tokenizer.decode(found.first_question) == question


def test_a_known_template_of_a_tokenizer_is_used_and_another_is_named(tmp_path: Path) -> None:
    folder = save("qwen", tmp_path)
    (folder / "chat_template.jinja").write_text(CHATML)
    tokenizer, notices = read_tokenizer(folder, None, None), list[str]()
    template = template_for(None, tokenizer, notices.append)
    assert (template.name, template.default_system, notices) == ("chatml", "You add numbers.", [])
    found = template.encode([Turn("user", "1+1"), Turn("assistant", "2")], tokenizer)
    learned = [i for i, learn in zip(*found, strict=True) if learn]
    assert learned == [*tokenizer.encode("2"), *tokenizer.encode("<|im_end|>")]
    (folder / "chat_template.jinja").write_text(CHATML.replace("im_start", "think"))
    assert template_for(None, read_tokenizer(folder, None, None), notices.append).name == "{prompt}\n"
    assert notices[0].startswith("gpt does not support the chat template of this tokenizer")
    with pytest.raises(UsageError, match="this one lacks them"):
        template_for("llama3", tokenizer)
    with pytest.raises(UsageError, match=r"it must contain \{prompt\} once"):
        small_config("data.template=no place")
