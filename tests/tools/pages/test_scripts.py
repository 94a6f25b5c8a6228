"""Scripts of pages, called in Chromium without their page."""

from __future__ import annotations

import pytest
from playwright.sync_api import Error
from support.scripts import RunScript


def test_data_goes_in_and_out(run_script: RunScript) -> None:
    given = {"text": "今天 👩‍💻\n\0", "numbers": [1, 2.5, None]}
    assert run_script(["attention_views/weights.js"], "(given) => ({ ...given, digits: precise(1 / 3) })", given) == {
        **given,
        "digits": "0.333333",
    }
    assert run_script([], "() => new Float32Array([1, NaN])") == [1, None]
    assert run_script([], "async () => { await null; }") is None


def test_an_exception_is_raised_with_its_message(run_script: RunScript) -> None:
    with pytest.raises(Error, match="no such head"):
        run_script([], '() => { throw new Error("no such head"); }')


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("en", ["5.12K", "59.1K", "410K", "1.14M", "42.1M", "1.23B"]),
        ("zh", ["5,120", "5.91 万", "41 万", "114 万", "4,210 万", "12.3 亿"]),
    ],
)
def test_the_report_counts_as_its_language_does(language: str, expected: list[str], run_script: RunScript) -> None:
    function = """([language, numbers]) => {
        document.documentElement.lang = language;
        const found = numbers.map(FORMATS.tokens);
        document.documentElement.lang = "en";
        return found;
    }"""
    numbers = [5120, 59_100, 410_000, 1_139_000, 42_070_000, 1_234_000_000]
    assert run_script(["report/numbers.js"], function, [language, numbers]) == expected
