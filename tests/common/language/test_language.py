"""The language of the user."""

from __future__ import annotations

import pytest

from gpt_cli.common.language import chinese, language, say


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, "en"),
        ({"LANG": "C.UTF-8"}, "en"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LC_MESSAGES": "zh_CN.UTF-8", "LANG": "en_GB.UTF-8"}, "zh"),
        ({"LC_ALL": "en_GB.UTF-8", "LC_MESSAGES": "zh_CN.UTF-8"}, "en"),
        ({"GPT_LANGUAGE": "zh", "LC_ALL": "en_GB.UTF-8"}, "zh"),
        ({"GPT_LANGUAGE": "en", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"GPT_LANGUAGE": "", "LANG": "zh-TW"}, "zh"),
        ({"GPT_LANGUAGE": "中文"}, "zh"),
        ({"GPT_LANGUAGE": "cn"}, "zh"),
        ({"GPT_LANGUAGE": "Chinese"}, "zh"),
        ({"GPT_LANGUAGE": "English", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"GPT_LANGUAGE": "日本語", "LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANGUAGE": "zh_CN:en", "LANG": "en_GB.UTF-8"}, "zh"),
        ({"LANGUAGE": "de:zh_CN"}, "zh"),
        ({"LANGUAGE": "en", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"LANGUAGE": "fr", "LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANGUAGE": "zh_CN", "LC_ALL": "C"}, "en"),
    ],
)
def test_a_variable_comes_before_the_locale(environment: dict[str, str], found: str) -> None:
    assert language(environment) == found


def test_english_needs_no_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPT_LANGUAGE", "en")
    chinese.cache_clear()
    assert say("Train a small GPT on your own text, sample from it, and see its attention.").startswith("Train")
    assert not chinese.cache_info().currsize
