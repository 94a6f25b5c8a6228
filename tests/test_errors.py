import pytest

from gpt_cli.errors import DataError, UsageError, exit_code_of, shown, together


def test_an_error_is_a_place_a_sentence_and_a_hint() -> None:
    assert UsageError("a.yaml:3", "5 is odd, but an even number is needed", hint="try 4").lines() == [
        "error: a.yaml:3: 5 is odd, but an even number is needed",
        "hint: try 4",
    ]


def test_several_problems_are_one_error_that_prints_each_hint_once() -> None:
    problems = [DataError("a", "wrong", hint="look"), DataError("b", "wrong too", hint="look")]
    assert together(problems).lines() == ["error: a: wrong", "error: b: wrong too", "hint: look"]


def test_shown_values_cannot_move_the_cursor_or_flood_the_screen() -> None:
    assert shown("a\x1b[2Jb\n今") == '"a\\x1b[2Jb\\n今"'
    assert len(shown("x" * 1000)) == 203
    assert shown("\udce9") == '"\\udce9"'


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DataError("a", "wrong"), 3),
        (BrokenPipeError(), 141),
        (OSError(28, "No space left on device"), 5),
        (MemoryError(), 5),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 5),
        (RuntimeError("oops"), 1),
    ],
)
def test_every_exception_has_an_exit_code(error: Exception, code: int) -> None:
    assert exit_code_of(error) == code
