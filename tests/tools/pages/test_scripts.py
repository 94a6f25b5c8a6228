"""Scripts of pages, called in Chromium without their page."""

from __future__ import annotations

import pytest
from support.scripts import RunScript


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
