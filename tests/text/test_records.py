"""The same texts and the same questions in every form that people write them in, and what is refused."""

import csv
import gzip
import io
import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pyarrow.parquet
import pytest
from support.archives import zipped
from support.corpora import documents_of
from support.texts import lay, read, read_with_notices, refused, run_hint

from gpt_cli.text.conversations import read_conversation
from gpt_cli.text.load import SourceCorpus

TEXTS = [
    "今天天气很好，我们去公园。\n又一行",
    'It was "fine"; truly, a good day.',
    "tabs\tand | bars, \u2028 and more words",
]


def table(rows: list[dict[str, str]], dialect: str = "excel") -> str:
    content = io.StringIO(newline="")
    writer = csv.DictWriter(content, list(rows[0]), dialect=dialect)
    writer.writeheader()
    writer.writerows(rows)
    return content.getvalue()


def parquet_of(rows: list[dict[str, Any]]) -> bytes:
    content = io.BytesIO()
    pyarrow.parquet.write_table(arrow.Table.from_pylist(rows), content)
    return content.getvalue()


def json_lines_of(rows: list[Any]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def put(name: str, content: str | bytes | list[dict[str, Any]]) -> None:
    """Write a file of the working folder; rows as its ending says."""
    if isinstance(content, list):
        content = WRITERS[name.rpartition(".")[2].lower()](content)
    Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())


def said(corpus: SourceCorpus) -> list[list[str]]:
    """What the turns of each conversation contain."""
    return [[turn.content for turn in read_conversation(text).turns] for text in documents_of(corpus)]


def assert_ours(corpus: SourceCorpus) -> None:
    """A corpus has QUESTIONS, as lines of prompt and response would give them."""
    put("ours.jsonl", pairs("prompt", "response"))
    assert said(corpus) == [[*pair] for pair in QUESTIONS]
    assert corpus.digest == read("ours.jsonl").digest


ROWS = [{"id": str(number), "text": text} for number, text in enumerate(TEXTS)]
QUESTIONS = [("Add.\n\n2+3", "5"), ("打个招呼", "你好")]
ALPACA = [
    {"instruction": "Add.", "input": "2+3", "output": "5"},
    {"instruction": "打个招呼", "input": "", "output": "你好"},
]


def pairs(question: str, answer: str) -> list[dict[str, Any]]:
    return [{question: asked, answer: answered} for asked, answered in QUESTIONS]


def messages(key: str, role: str, content: str, human: str, model: str) -> list[dict[str, Any]]:
    return [{key: [{role: human, content: asked}, {role: model, content: answered}]} for asked, answered in QUESTIONS]


def chat_of_chatgpt(asked: str, answered: str) -> dict[str, Any]:
    """A tree of messages: an answer that was thrown away, one of a tool, what the model thought, and the last one."""

    def node(parent: str | None, role: str, *parts: Any, kind: str = "text") -> dict[str, Any]:
        content = {"content_type": kind, "parts": list(parts)}
        return {"message": {"author": {"role": role}, "content": content}, "parent": parent}

    nodes = {
        "root": {"message": None, "parent": None},
        "system": node("root", "system", ""),
        "asked": node("system", "user", {"asset_pointer": "a picture"}, asked, kind="multimodal_text"),
        "first": node("asked", "assistant", "no"),
        "thoughts": {"message": {"author": {"role": "assistant"}, "content": {"thoughts": []}}, "parent": "asked"},
        "tool": node("thoughts", "tool", "found"),
        "last": node("tool", "assistant", answered),
    }
    return {"title": "A title that is longer than twenty characters", "mapping": nodes, "current_node": "last"}


CONVERSATIONS: dict[str, tuple[list[dict[str, Any]], str]] = {
    "openai": (messages("messages", "role", "content", "user", "assistant"), ""),
    "sharegpt": (messages("conversations", "from", "value", "human", "gpt"), "the messages are in conversations"),
    "chatgpt": ([chat_of_chatgpt(*pair) for pair in QUESTIONS], "the messages are in mapping; gpt does not read title"),
    "claude": (messages("chat_messages", "sender", "text", "human", "assistant"), "the messages are in chat_messages"),
    "ours": (pairs("prompt", "response"), ""),
    "completions": (pairs("prompt", "completion"), "the question is in prompt, the answer in completion"),
    "preferences": (
        [row | {"rejected": "I do not know."} for row in pairs("prompt", "chosen")],
        "the question is in prompt, the answer in chosen; gpt does not read rejected",
    ),
    "questions": (pairs("question", "answer"), "the question is in question, the answer in answer"),
    "alpaca": (ALPACA, "the question is in instruction and input, the answer in output"),
}
WRITERS: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    "jsonl": lambda rows: json_lines_of(rows).encode(),
    "json": lambda rows: json.dumps(rows, indent=1).encode(),
    "csv": lambda rows: table(
        [{key: value if isinstance(value, str) else json.dumps(value) for key, value in row.items()} for row in rows]
    ).encode(),
    "parquet": parquet_of,
}


@pytest.mark.parametrize(
    ("schema", "ending"),
    [*((schema, "jsonl") for schema in CONVERSATIONS), *itertools.product(("sharegpt", "alpaca"), [*WRITERS][1:])],
)
def test_questions_are_the_same_in_every_form(here: Path, schema: str, ending: str) -> None:
    rows, words = CONVERSATIONS[schema]
    put(f"q.{ending}", rows)
    corpus = read(f"q.{ending}")
    assert corpus.how.conversations
    assert_ours(corpus)
    assert list(corpus.notices()) == ([f"in q.{ending}, {words}"] if words else [])


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_capital_letters_in_the_names_of_fields_change_nothing(here: Path, ending: str) -> None:
    put(f"a.{ending}", [row | {"Context": "It rained."} for row in pairs("Question", "ANSWER")])
    corpus = read(f"a.{ending}")
    assert_ours(corpus)
    notice = f"in a.{ending}, the question is in question, the answer in answer; gpt does not read Context"
    assert list(corpus.notices()) == [notice]
    put(f"b.{ending}", [{"Text": "short", "note": "a note that is longer than it"}])
    notice = f"in b.{ending}, Text is the text of each record; gpt does not read note"
    assert read_with_notices(f"b.{ending}") == (("short",), [notice])
    assert documents_of(read(f"a.{ending}", text_field="Context")) == ("It rained.",) * 2


def test_a_chat_that_is_no_tree_of_messages_is_named(here: Path) -> None:
    whole, cycle = chat_of_chatgpt("a", "b"), chat_of_chatgpt("a", "b")
    cycle["mapping"]["asked"]["parent"] = "last"
    put("q.json", [cycle])
    (turns,) = said(read("q.json"))
    assert turns == ["b", "a", "b", "a", "b"][-len(turns) :]
    for parts in (5, True, {"text": "no"}, "no"):
        whole["mapping"]["first"]["message"]["content"]["parts"] = parts
        whole["mapping"]["last"]["parent"] = "first"
        put("q.json", [whole])
        assert said(read("q.json")) == [["a", "b"]]
    put("q.json", [whole, whole | {"mapping": "a"}])
    refused("q.json", "mapping is a list of objects")


def test_chats_of_an_export_without_an_answer_are_left_out_and_counted(here: Path) -> None:
    whole = chat_of_chatgpt("a", "b")
    question = [{"sender": "human", "text": "Are you there?"}]
    put("q.json", [whole | {"current_node": 1}, whole, {"chat_messages": []}, {"chat_messages": question}])
    documents, notices = read_with_notices("q.json")
    assert len(documents) == 1
    assert "left out 3 records with an empty text or answer: q.json: item 1" in "".join(notices)


THOUGHT = [
    {"role": "user", "content": "2+2?"},
    {"role": "assistant", "content": "4", "reasoning_content": "two and two"},
]
UNREAD: list[tuple[dict[str, Any], str]] = [
    ({"prompt": "Sum up.", "response": "No.", "label": False}, "gpt does not read label"),
    ({"prompt": "Sum up.", "context": "It rained all day.", "response": "Rain."}, "gpt does not read context"),
    (
        {"instruction": "And 2+3?", "output": "5", "history": [["1+1?", "2"]]},
        "the question is in instruction, the answer in output; gpt does not read history",
    ),
    ({"title": "", "tools": [], "messages": THOUGHT}, "gpt does not read reasoning_content"),
    (
        {"conversations": THOUGHT, "topic": "数学"},
        "the messages are in conversations; gpt does not read topic, reasoning_content",
    ),
]


@pytest.mark.parametrize(("record", "words"), UNREAD)
@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_notice_names_the_fields_with_text_that_gpt_does_not_read(
    here: Path, record: dict[str, Any], words: str, ending: str
) -> None:
    put(f"a.{ending}", [record])
    assert list(read(f"a.{ending}").notices()) == [f"in a.{ending}, {words}"]


def test_a_field_that_only_later_records_fill_is_named_too(here: Path) -> None:
    rows = [{"question": "Name a fish.", "context": context, "answer": "Cod."} for context in ("", "Cod is a fish.")]
    put("a.csv", rows)
    notice = "in a.csv, the question is in question, the answer in answer; gpt does not read context"
    assert list(read("a.csv").notices()) == [notice]


@pytest.mark.parametrize("name", ["export", "export.zip"])
def test_the_chats_of_a_whole_export_are_read_once_skip_bad_leaves_out_the_other_files(here: Path, name: str) -> None:
    chats = json.dumps([chat_of_chatgpt(*pair) for pair in QUESTIONS]).encode()
    files = {"chat.html": b"<html></html>", "conversations.json": chats, "user.json": b'{"id": "user-1"}'}
    lay({"export.zip": zipped(files), **{f"export/{one}": content for one, content in files.items()}})
    error = refused(name, "this document contains no text")
    assert "data.skip_bad=true leaves such files out" in "\n".join(error.lines())
    corpus = read(name, skip_bad=True)
    assert_ours(corpus)
    assert f"left out 2 bad files: {name}/chat.html, {name}/user.json" in corpus.notices()


def test_a_column_named_mapping_is_no_conversation(here: Path) -> None:
    put("q.json", [{"mapping": "a", "text": "b"}])
    assert documents_of(read("q.json")) == ("b",)
    put("q.json", [{"mapping": "a", "note": "The value of the value."}])
    assert documents_of(read("q.json")) == ("The value of the value.",)


def test_a_system_beside_messages_comes_first_and_may_be_called_developer(here: Path) -> None:
    pair = [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]
    put(
        "q.json",
        [
            {"system": "Be brief.", "conversations": pair},
            {"conversations": [{"from": "developer", "value": "Be brief."}, *pair]},
        ],
    )
    for text in documents_of(read("q.json")):
        assert read_conversation(text).turns == (("system", "Be brief."), ("user", "a"), ("assistant", "b"))


def test_the_only_column_of_long_texts_is_the_text_and_a_notice_says_so(here: Path) -> None:
    rows = [{"title": "春晓", "poem": text * 3, "year": "730", "note": "of the Tang dynasty"} for text in TEXTS]
    for name in ("poems.csv", "poems.parquet"):
        put(name, rows)
        notice = f"in {name}, poem is the text of each record; gpt does not read note, title"
        assert read_with_notices(name) == (tuple(text * 3 for text in TEXTS), [notice])
    assert documents_of(read("poems.csv", text_field="title")) == ("春晓",) * 3


NO_TEXTS = {
    "ip": "113.0.2.0(北京-北京)",
    "uuid": "cd613e30-d8f1-6adf-91b7-584a2265b1f5",
    "sha1": "e4b06ce60741c7a87ce42c8218072e8c000",
    "created_at": "2023-01-01T12:00:00Z",
    "date": "Mon Apr 06 22:19:45 PDT 2009",
    "time": "2024-01-01 10:00:00 +0000 UTC",
    "url": "https://zh.wikipedia.org/wiki/北京",
    "path": "src/module/sub/file_number_0.py",
    "image": "iVBORw0KGgoAAAANSUhEUgAAiVBORw0KGgoAAAANSUhEUgAA" * 99,
}


@pytest.mark.parametrize("name", NO_TEXTS)
def test_an_id_a_date_an_address_a_path_and_base64_are_no_text_however_long(here: Path, name: str) -> None:
    put("a.jsonl", [{name: NO_TEXTS[name], "body": "on my way"}] * 3)
    error = refused("a.jsonl", f'"{name}"')
    assert (error.hint or "").startswith("‹data.text_field=body›")  # short, so gpt does not guess
    text = "I am on my way, and I bring bread."
    put("a.jsonl", [{name: NO_TEXTS[name], "body": text}] * 3)
    assert read_with_notices("a.jsonl") == ((text,) * 3, ["in a.jsonl, body is the text of each record"])


@pytest.mark.parametrize(
    "text",
    [
        "今天天气很好我们去公园今天天气很好我们去公园",
        "ฉันรักภาษาไทยมากและอยากเรียน",
        "ACGTTGCAAACGTTGCAA" * 3,
        "def f(x):\n\treturn 1000000 + x",
    ],
)
def test_scripts_without_spaces_dna_and_source_code_are_texts(here: Path, text: str) -> None:
    put("a.jsonl", [{"id": "AB-1", "body": text}])
    assert documents_of(read("a.jsonl")) == (text,)


def test_a_column_name_may_have_spaces_and_a_shorter_column_is_no_remedy(here: Path) -> None:
    put("a.csv", [{"id": "1", "my poem": "p" * 30}])
    assert documents_of(read("a.csv")) == ("p" * 30,)
    put("b.csv", [{"id": "1", "my poem": "p" * 30, "a note": "n" * 20}])
    remedy = "for questions with answers, name their fields prompt and response"
    assert refused("b.csv").lines()[1] == f"hint: --set data.text_field='my poem'; {remedy}"
    put("c.csv", [{"id": "1", "A boy, carried": "p" * 30, "B": "n" * 20}])
    remedy = r"(printf 'column1,column2,column3\n'; cat) < c.csv > c-named.csv"  # the first row names no columns
    hint = refused("c.csv").hint or ""
    assert hint.startswith(f"if the table has no row with names, write one first: {remedy}")


def test_of_several_long_columns_the_error_lists_all_the_longest_first(here: Path) -> None:
    put("a.csv", [{"summary": "s" * 30, "body": "b" * 500, "id": "1"}])
    assert refused("a.csv").lines() == [
        'error: a.csv:2: this record has no field "text" that contains text; fields with text, and their mean length in '
        'characters: "body" (500), "summary" (30), "id" (1)',
        "hint: --set data.text_field=body; for questions with answers, name their fields prompt and response",
    ]
    refused("a.csv", 'this record has no field "summry"', text_field="summry")


OTHER_KINDS: dict[str, tuple[dict[str, Any], str]] = {
    "translation.jsonl": (
        {"translation": {"en": "Good morning"}},
        '; fields of other kinds: "translation" (an object)',
    ),
    "dialog.jsonl": ({"id": 3, "dialog": [{"human": "Hi."}]}, '; fields of other kinds: "dialog" (a list)'),
    "lines.jsonl": ({"text": ["line 1", 2]}, '; fields of other kinds: "text" (a list)'),
    "rows.parquet": (
        {"lines": [1], "image": b"PNG", "id": "a"},
        '; fields with text, and their mean length in characters: "id" (1); '
        'fields of other kinds: "lines" (a list), "image" (bytes)',
    ),
}


@pytest.mark.parametrize("name", OTHER_KINDS)
def test_an_error_says_what_fields_without_text_contain(here: Path, name: str) -> None:
    row, sentence = OTHER_KINDS[name]
    put(name, [row])
    assert refused(name).sentence == f'this record has no field "text" that contains text{sentence}'


POEM = {"title": "静夜思", "author": "李白", "paragraphs": ["床前明月光，疑是地上霜。", "举头望明月，低头思故乡。"]}


@pytest.mark.parametrize("name", ["a.json", "A.PARQUET"])
def test_a_list_of_lines_is_a_text_and_the_text_if_it_is_the_longest_field(here: Path, name: str) -> None:
    put(name, [POEM])
    corpus = read(name)
    assert documents_of(corpus) == ("床前明月光，疑是地上霜。\n举头望明月，低头思故乡。",)
    assert list(corpus.notices()) == [
        f"in {name}, paragraphs is the text of each record; gpt does not read title, author"
    ]
    assert read(name, text_field="paragraphs").digest == corpus.digest


def test_lines_of_json_in_a_file_of_another_ending_are_text_and_noted(here: Path) -> None:
    put("wiki_00", json_lines_of(ROWS))
    notice = "in wiki_00, braces and names of JSON become tokens, unless the file name ends in .jsonl"
    assert read_with_notices("wiki_00") == ((json_lines_of(ROWS),), [notice])


def test_texts_inside_objects_and_lists_are_named_and_no_shorter_field_is_taken_for_them(here: Path) -> None:
    chat = {"turn_1": {"Human": "What is the capital of France?", "MOSS": "The capital of France is Paris."}}
    put("a.json", [{"meta": "You are a kind assistant of people.", "chat": chat}])
    assert refused("a.json", r'"chat" \(an object\)').hint is None
    put("b.json", [{"body": "I am on my way, and I bring bread.", "by": {"name": "Ann"}}])
    assert list(read("b.json").notices()) == ["in b.json, body is the text of each record; gpt does not read by"]


def test_a_sentence_of_chinese_is_as_long_as_its_translation(here: Path) -> None:
    put("a.csv", [{"英文": "The weather is fine today, let us go.", "中文": "今天天气很好，我们走吧。"}])
    refused("a.csv", "no field")


QUESTION_NAMES = [
    "提问 回答",
    "题目 解析",
    "用户问题 客服回复",
    "Q A",
    "human assistant",
    "Term Definition",
    "Front Back",
]
QUESTION_NAMES += ["textbox_question textbox_answer", "Question Correct_Answer", "Input Output"]


@pytest.mark.parametrize("names", QUESTION_NAMES)
def test_names_of_questions_and_answers_stop_however_long_the_answers_are(here: Path, names: str) -> None:
    answer = "the sky scatters blue light more than red light"
    put("a.csv", [{"id": "1", **dict(zip(names.split(), ("Why?", answer), strict=True))}])
    run_hint(refused("a.csv"), "for questions with answers: ")
    assert said(read("a-qa.csv")) == [["Why?", answer]]


ANSWERED = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]
CHOSEN: dict[str, dict[str, Any]] = {
    "minimind": {"chosen": ANSWERED, "rejected": ANSWERED},
    "ultrafeedback": {"prompt": "2+2?", "chosen": ANSWERED, "rejected": ANSWERED},
    "trl": {"prompt": ANSWERED[:1], "chosen": ANSWERED[1:], "rejected": ANSWERED[1:]},
    "llama factory": {"conversations": ANSWERED[:1], "chosen": ANSWERED[1], "rejected": ANSWERED[1]},
}


def test_a_letter_is_the_answer_in_the_column_of_that_name(here: Path) -> None:
    rows = [{"question": "Which is red?", "A": "the sky", "B": "blood", "answer": "B"}] * 200
    for name in ("a.csv", "a.parquet"):  # of which columns that no conversation needs are not read after a while
        put(name, rows)
        assert [answer for _, answer in said(read(name))] == ["blood"] * 200


def test_the_text_of_a_chat_of_claude_is_that_of_its_parts(here: Path) -> None:
    parts = [{"type": "text", "text": "I look. "}, {"type": "tool_use", "name": "web"}, {"type": "text", "text": "4"}]
    answer = {"sender": "assistant", "text": "I look. ``` This block is not supported ``` 4", "content": parts}
    put("a.json", [{"chat_messages": [{"sender": "human", "text": "2+2?"}, answer]}])
    assert said(read("a.json")) == [["2+2?", "I look. 4"]]


@pytest.mark.parametrize("name", CHOSEN)
def test_the_chosen_messages_of_a_preference_are_the_conversation(here: Path, name: str) -> None:
    put("a.json", [CHOSEN[name]])
    corpus = read("a.json")
    assert said(corpus) == [["2+2?", "4"]]
    assert "gpt does not read rejected" in "".join(corpus.notices()) or name == "llama factory"


def test_a_whole_number_is_the_position_of_an_answer_among_choices(here: Path) -> None:
    put("a.jsonl", [{"question": "How many?", "choices": ["8", "2", "24"], "answer": 2}])
    assert said(read("a.jsonl")) == [["How many?", "24"]]


UNKNOWN = [{"id": "1", "回答": answered, "问题": asked} for asked, answered in QUESTIONS]
REWRITTEN: dict[str, str | bytes] = {
    "a b.jsonl": json_lines_of(UNKNOWN) + "\n",
    "escaped.json": json.dumps(UNKNOWN, indent=1),
    "packed.jsonl.gz": gzip.compress(json_lines_of(UNKNOWN).encode()),
    "excel.csv": "\ufeff" + table(UNKNOWN),
    "tabs.tsv": table(UNKNOWN, dialect="excel-tab"),
    "rows.parquet": parquet_of(UNKNOWN),
}


@pytest.mark.parametrize("name", REWRITTEN)
def test_the_command_of_a_hint_makes_questions_of_fields_that_gpt_does_not_know(here: Path, name: str) -> None:
    put(name, REWRITTEN[name])
    before = {path: path.read_bytes() for path in here.iterdir()}
    error = refused(name, '"问题"')
    assert "\n" not in (error.hint or "")
    run_hint(error, "for questions with answers: ")
    (new,) = {*here.iterdir()} - {*before}
    assert_ours(read(new.name))
    assert {path: path.read_bytes() for path in before} == before


def test_the_command_changes_no_column_whose_name_contains_that_of_another(here: Path) -> None:
    put("a.csv", [{"instruction": "a" * 30, "instructions": "b" * 50, "target": "c"}])
    command = r"(printf 'prompt,instructions,response\n'; tail -n +2) < a.csv > a-qa.csv"
    hint = f"for questions with answers: {command}; else ‹data.text_field=instructions›"
    assert refused("a.csv").hint == hint


# fields, and those that the command of the hint makes question and answer
PAIRS: list[tuple[tuple[str, ...], str | None]] = [
    (("instruction", "context", "response", "category"), '"input": r.pop("context", ""), "output": r.pop("response"'),
    (("kind", "input", "target"), 'r.pop("input", ""), "response": r.pop("target"'),
    (("输出", "指令", "输入"), '"input": r.pop("输入", ""), "output": r.pop("输出"'),
    (("id", "title", "context", "question"), None),
    (("name", "Instruction", "Response"), 'r.pop("Instruction", ""), "response": r.pop("Response"'),
    (("chosen", "rejected"), "‹data.text_field=chosen›"),
    (("title", "answer"), None),
]


@pytest.mark.parametrize(("names", "command"), PAIRS)
def test_names_say_which_field_is_the_question_and_lengths_do_not(
    here: Path, names: tuple[str, ...], command: str | None
) -> None:
    row = {name: f"{name} in words" * number for number, name in enumerate(names, start=2)}
    put("a.jsonl", [row])
    expected = command or "; for questions with answers, name their fields prompt and response"
    assert expected in (refused("a.jsonl").hint or "")


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_the_command_of_a_hint_keeps_what_a_question_is_about(here: Path, ending: str) -> None:
    names = ("instruction", "context", "response") if ending == "jsonl" else ("指令", "输入", "输出")
    values = ("Name a fish.", "The cod is a fish.", "The cod.")
    put(f"a.{ending}", [dict(zip(names, values, strict=True)) | {"tone": "a friendly tone"}])
    run_hint(refused(f"a.{ending}"), "for questions with answers: ")
    corpus = read(f"a-qa.{ending}")
    assert said(corpus) == [["\n\n".join(values[:2]), values[2]]]
    assert "gpt does not read tone" in "".join(corpus.notices())


@pytest.mark.parametrize(("role", "content"), [("role", "content"), ("from", "value")])
def test_a_list_of_messages_is_no_list_of_texts(here: Path, role: str, content: str) -> None:
    put("a.json", [{role: "user", content: "2+2?"}, {role: "assistant", content: "4"}])
    hint = refused("a.json").hint or ""
    assert hint.startswith('a record must have all messages of a conversation, as in {"messages": [{')


BAD_RECORDS: dict[str, str] = {
    "a.jsonl": '{"text": "one"}\n{"text"\n{"id": 3}\n{"text": "a\\ud800"}\n{"text": "two"}\n',
    "a.json": '[{"text": "one"}, {"id": 3}, 3, {"text": "a\\ud800"}, {"text": "two"}]',
    "a.csv": "id,text\n1,one\n2\n3,a,b\n4,x,\n5,two\n",
    "q.jsonl": '{"prompt": "a", "response": "b"}\n{\n{"prompt": "c"}\n{"prompt": "c", "response": [3]}\n',
}


@pytest.mark.parametrize("name", BAD_RECORDS)
def test_bad_records_are_left_out_and_counted_where_the_config_says_so(here: Path, name: str) -> None:
    put(name, BAD_RECORDS[name])
    refused(name)
    corpus = read(name, skip_bad=True)
    assert corpus.num_documents == (1 if name == "q.jsonl" else 2)
    (notice,) = corpus.notices()
    assert notice.startswith(f"left out 3 bad records: {name}")
    assert [*corpus.blocks()] == [*read(name, skip_bad=True).blocks()]


ALL_BAD: dict[str, tuple[str, str]] = {
    "tools.jsonl": (
        json_lines_of([{"messages": [{"role": "user", "content": "4?"}, {"role": "tool", "content": "4"}]}] * 2),
        'a message has the role "tool", but gpt does not learn tool calls',
    ),
    "observed.jsonl": (
        json_lines_of([{"conversations": [{"from": "human", "value": "4?"}, {"from": "observation", "value": "4"}]}]),
        'a message has the role "observation", but gpt does not learn tool calls',
    ),
    "lists.jsonl": (
        json_lines_of([{"question": "Two rivers?", "answer": ["Rhine", "Po"]}] * 2),
        "answer is not a text",
    ),
    "indented.jsonl": ('{\n "text": "one"\n}\n{\n "text": "two"\n}\n', "this is not JSON"),
}


@pytest.mark.parametrize("name", ALL_BAD)
def test_a_hint_leaves_bad_records_out_only_where_others_are_good(here: Path, name: str) -> None:
    content, sentence = ALL_BAD[name]
    put(name, content)
    assert refused(name, sentence).hint is None
    good = {"text": "one"} if name == "indented.jsonl" else {"prompt": "a", "response": "b"}
    for lines in (content.split("\n")[0] + "\n" + json_lines_of([good]), json_lines_of([good]) + content):
        put(name, lines)
        assert refused(name, sentence).hint == "‹data.skip_bad=true› leaves such records out"
        assert read(name, skip_bad=True).num_documents == 1


@pytest.mark.parametrize("roles", ["用户 助手", "User Assistant", "prompter chatgpt", "HUMAN bot"])
@pytest.mark.parametrize("names", ["from value", "role content"])
def test_roles_of_other_programs_are_ours(here: Path, roles: str, names: str) -> None:
    put("a.jsonl", messages("conversations", *names.split(), *roles.split()))
    assert_ours(read("a.jsonl"))


def test_a_number_is_an_answer_and_no_value_is_none(here: Path) -> None:
    put("a.jsonl", '{"question": "7+5", "answer": 12}\n{"question": 0.5, "answer": "half"}\n')
    assert said(read("a.jsonl")) == [["7+5", "12"], ["0.5", "half"]]
    for value in ("NaN", "true", "null"):
        put("a.jsonl", f'{{"question": "7+5", "answer": {value}}}\n')
        refused("a.jsonl", "answer is not a text")


EMPTY_TEXTS: dict[str, str | bytes] = {
    "a.jsonl": '{"text": "one"}\n{"text": ""}\n{"text": null}\n',
    "a.csv": "id,text\n1,one\n2,\n3,\n",
    "a.parquet": parquet_of([{"text": "one"}, {"text": ""}, {"text": None}]),
}


@pytest.mark.parametrize("name", EMPTY_TEXTS)
def test_records_with_an_empty_text_are_counted(here: Path, name: str) -> None:
    put(name, EMPTY_TEXTS[name])
    documents, (notice,) = read_with_notices(name)
    assert documents == ("one",)
    assert notice.startswith(f"left out 2 records with an empty text or answer: {name}")


def test_empty_answers_are_counted_and_empty_questions_stay(here: Path) -> None:
    put("a.csv", "prompt,response\na,\n,x\nb,y\n")
    corpus = read("a.csv")
    assert said(corpus) == [["", "x"], ["b", "y"]]
    assert "left out 1 record with an empty text or answer: a.csv:2" in corpus.notices()


def test_questions_beside_a_text_are_no_texts(here: Path) -> None:
    row = {"instruction": "Say hi", "input": "", "output": "Hello there, and a very good morning to you"}
    lay({"d/README.md": "# A data set", "d/train.json": json.dumps([row])})
    shutil.make_archive("d", "zip", "d")
    for name in ("d", "d.zip"):
        hint = "questions with answers are read without other text; name their file alone"
        assert refused(name, r"train\.json").hint == hint


def test_a_last_question_without_an_answer_is_left_out_and_counted(here: Path) -> None:
    turns = [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}, {"from": "human", "value": "c"}]
    put("a.jsonl", [{"conversations": turns}])
    corpus = read("a.jsonl")
    assert said(corpus) == [["a", "b"]]
    assert "left out 1 question without an answer, at the end of a conversation: a.jsonl:1" in corpus.notices()
    put("b.jsonl", [{"conversations": turns[2:]}])
    refused("b.jsonl", "there is no answer to learn")


def test_the_parts_of_a_message_are_one_text_and_a_picture_is_none(here: Path) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    record = {"messages": [{"role": "user", "content": parts}, {"role": "assistant", "content": "c"}]}
    put("a.jsonl", [record])
    assert said(read("a.jsonl")) == [["ab", "c"]]
    parts.append({"type": "image_url", "image_url": "x.png"})
    put("a.jsonl", [record])
    refused("a.jsonl", "content is not a text")


NAMES_FIRST = "if the table has no row with names, write one first: "
NAMELESS: dict[str, tuple[list[tuple[str, ...]], int]] = {  # tables without a row of names, and the column of the text
    "poems.csv": ([("Before my bed, the moon is bright; " * 3, "Li Bai"), ("I lift my head to look", "Li Bai")], 0),
    "sentences.csv": ([("The cat sat on the mat.",), ("A dog ran through the park.",)], 0),
    "lines.csv": ([("Shall I compare thee to a summer day",), ("Thou art more lovely and more temperate",)], 0),
    "诗.csv": ([("静夜思", "床前明月光疑是地上霜举头望明月"), ("登鹳雀楼", "白日依山尽黄河入海流欲穷千里目")], 1),
    "-begins-as-a-flag.csv.gz": ([("1", "Snow fell all day and night"), ("2", "The first warm evening of spring")], 1),
    "pairs.tsv": ([("1", "eng", "Let us try something new today."), ("2", "eng", "I have to go to sleep now.")], 2),
}


@pytest.mark.parametrize("name", NAMELESS)
def test_a_table_without_a_row_of_names_is_an_error_whose_command_writes_one(here: Path, name: str) -> None:
    rows, column = NAMELESS[name]
    content = io.StringIO(newline="")
    csv.writer(content, "excel-tab" if ".tsv" in name else "excel").writerows(rows)
    plain = content.getvalue().encode()
    put(name, gzip.compress(plain) if name.endswith("gz") else plain)
    before = {*here.iterdir()}
    error = refused(name, 'no field "text"')
    run_hint(error, NAMES_FIRST, "; for questions with answers: ")
    (new,) = {*here.iterdir()} - before
    assert documents_of(read(new.name)) == tuple(row[column] for row in rows)
    assert all("prompt" in other for other in (error.hint or "").split("; for questions with answers: ")[1:])


def test_names_of_four_words_or_of_chinese_are_names(here: Path) -> None:
    for name in ("Text of the review", "用户评论的内容", "Desc."):
        put("a.csv", [{"id": "1", name: "I walked out after twenty minutes"}])
        assert documents_of(read("a.csv")) == ("I walked out after twenty minutes",)


def test_a_column_of_short_cells_may_have_a_name_or_none(here: Path) -> None:
    put("a.csv", "Anna\nBen\n")
    run_hint(refused("a.csv"), NAMES_FIRST)
    assert documents_of(read("a-named.csv")) == ("Anna", "Ben")
    assert documents_of(read("a.csv", text_field="Anna")) == ("Ben",)


def test_a_first_column_without_a_name_is_an_index_and_others_need_one(here: Path) -> None:
    put("a.csv", ",body,\n1,I walked out after twenty minutes,\n")
    assert documents_of(read("a.csv")) == ("I walked out after twenty minutes",)
    put("a.csv", "id,body,\n1,I walked out after twenty minutes,yes\n")
    error = refused("a.csv", "this row has 3 cells, but the first one names 2 columns")
    assert (error.hint or "").endswith("; else give each column a name")


def test_a_table_of_two_short_texts_may_be_questions_and_answers_without_names(here: Path) -> None:
    put("a.tsv", "Haus\thouse\nBaum\ttree\nHund\tdog\n")
    run_hint(refused("a.tsv"), NAMES_FIRST)
    assert said(read("a-qa.tsv"))[0] == ["Haus", "house"]


def test_a_question_may_be_the_name_of_a_column_as_forms_have_it(here: Path) -> None:
    question = "What did you like about the course?"
    put("a.csv", [{"Time": "9:00", question: "The teacher."}])
    assert (refused("a.csv").hint or "").endswith(f"; else ‹data.text_field={question}›")
    assert documents_of(read("a.csv", text_field=question)) == ("The teacher.",)
    put("b.csv", [{"1、性别": "男", "4、请谈谈您对学校食堂的意见和建议": "饭菜要热一点，菜也要多几样。"}])
    assert documents_of(read("b.csv")) == ("饭菜要热一点，菜也要多几样。",)


TITLES = ["Poems of 1970,,", "Poems of 1970", "Poems of 1970,,\n,,", "Poems,,1970", "Poems,,\nby Li Bai,,"]
TITLES += ["Exported by MyDiary 3.2\n2024-05-01"]


@pytest.mark.parametrize("title", TITLES)
def test_a_title_above_the_row_of_names_is_an_error_whose_command_takes_it_away(here: Path, title: str) -> None:
    put("a.csv", f'{title}\nyear,name,text\n1,Li Bai,"The moon, bright."\n')
    error = refused("a.csv", r"this row has 3 cells, but the first one names \d column")
    run_hint(error, "if the table begins here: ")
    assert documents_of(read("a-table.csv")) == ("The moon, bright.",)


def test_a_name_of_several_columns_is_an_error_whose_command_changes_it(here: Path) -> None:
    put("a.csv", "id,name,name,text\n1,a,b,The moon is bright.\n")
    run_hint(refused("a.csv", r'a\.csv:1: several columns have the name "name"'), "; else ")
    assert documents_of(read("a-named.csv")) == ("The moon is bright.",)


def test_where_every_record_is_bad_the_first_is_an_error(here: Path) -> None:
    put("a.jsonl", '{"text": "\\ud800"}\n{"text": "\\ud801"}\n')
    refused("a.jsonl", "half a character", skip_bad=True)
