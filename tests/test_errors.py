import json

import pytest

from gpt_cli.errors import DataError, UsageError, inert, inert_json, shown, together


def test_an_error_is_a_place_a_sentence_and_a_hint() -> None:
    assert UsageError("a.yaml:3", "5 is odd, but an even number is needed", hint="try 4").lines() == [
        "error: a.yaml:3: 5 is odd, but an even number is needed",
        "hint: try 4",
    ]


def test_a_sentence_that_begins_with_its_place_names_it_once() -> None:
    error = UsageError("--query", "--query and --data cannot be combined")
    assert error.lines() == [f"error: {error}"] == ["error: --query and --data cannot be combined"]


def test_several_problems_are_one_error_that_prints_each_hint_once() -> None:
    problems = [DataError("a", "wrong", hint="look"), DataError("b", "wrong too", hint="look")]
    assert together(problems).lines() == ["error: a: wrong", "error: b: wrong too", "hint: look"]


def test_chinese_hints_name_what_they_are_about_with_one_kind_of_colon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPT_LANGUAGE", "zh")
    problems = [UsageError(place, "wrong", hint=hint) for place, hint in (("a.b", "c?"), ("d", "e"), ("f", "e"))]
    assert together(problems).lines()[3:] == ["hint: a.b：c?", "hint: d、f：e"]


def test_shown_values_cannot_move_the_cursor_or_flood_the_screen() -> None:
    assert shown("a\x1b[2Jb\n今") == '"a\\x1b[2Jb\\n今"'
    assert len(shown("x" * 1000)) == 203
    assert shown("\udce9") == '"\\udce9"'


def test_text_for_a_terminal_shows_what_would_control_it() -> None:
    assert inert("a\x1b[2J\x07\r\n\t今\x9b\u202e") == "a\\x1b[2J\\x07\\r\n\t今\\x9b\\u202e"


def test_json_for_a_terminal_has_the_same_content() -> None:
    text = "a\x9b2J\x7f\u202e今"
    found = inert_json(json.dumps([text], ensure_ascii=False))
    assert found == '["a\\u009b2J\\u007f\\u202e今"]'
    assert json.loads(found) == [text]
