import pytest

from gpt_cli.errors import UsageError, inert, shown, together


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
