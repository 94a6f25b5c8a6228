import pytest

from gpt_cli.errors import UsageError
from gpt_cli.tools.interpret.request import parse_selection


@pytest.mark.parametrize(
    ("text", "chosen"),
    [(None, (0, 1, 2, 3)), ("all", (0, 1, 2, 3)), ("0", (0,)), ("3,0-1", (0, 1, 3)), ("1-1, 2", (1, 2)), ("0,0", (0,))],
)
def test_selections_are_numbers_and_ranges(text: str | None, chosen: tuple[int, ...]) -> None:
    assert parse_selection(text, 4, "layers") == chosen


@pytest.mark.parametrize(
    ("text", "error", "hint"),
    [
        ("4", 'this model has layers 0 to 3, so "4" is out of range', None),
        ("0,2-9", 'this model has layers 0 to 3, so "2-9" is out of range', None),
        ("2-1", 'the range "2-1" runs backwards', "--layers 1-2"),
        ("", '"" is neither a number nor a range', "--layers 0,3-5"),
        ("1-", '"1-" is neither a number nor a range', "--layers 0,3-5"),
        ("-1", '"-1" is neither a number nor a range', "--layers 0,3-5"),
        ("²", '"²" is neither a number nor a range', "--layers 0,3-5"),
    ],
)
def test_wrong_selections_are_reported_as_typed(text: str, error: str, hint: str | None) -> None:
    with pytest.raises(UsageError) as raised:
        parse_selection(text, 4, "layers")
    assert raised.value.lines() == [f"error: --layers: {error}", *([f"hint: {hint}"] if hint else [])]
