"""The language of the user, and finished sentences that are found again in the catalogue, with their values."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpt_cli.common.language import Catalogue, chinese, language, say


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, "en"),
        ({"LANG": "C.UTF-8"}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LC_MESSAGES": "zh_CN.UTF-8", "LANG": "en_GB.UTF-8"}, "zh"),
        ({"LC_ALL": "en_GB.UTF-8", "LC_MESSAGES": "zh_CN.UTF-8"}, "en"),
        ({"GPT_LANGUAGE": "zh", "LC_ALL": "en_GB.UTF-8"}, "zh"),
        ({"GPT_LANGUAGE": "en", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"GPT_LANGUAGE": "", "LANG": "zh-TW"}, "zh"),
        ({"GPT_LANGUAGE": "中文"}, "zh"),
        ({"GPT_LANGUAGE": "Chinese"}, "zh"),
        ({"GPT_LANGUAGE": "日本語", "LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANGUAGE": "zh_CN:en", "LANG": "en_GB.UTF-8"}, "zh"),
        ({"LANGUAGE": "de:zh_CN"}, "zh"),
        ({"LANGUAGE": "en", "LANG": "zh_CN.UTF-8"}, "en"),
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


SMALL = Catalogue(
    {
        "no such run": "没有这个训练",
        "{path} is not a run": "{path} 不是训练目录",
        "{path} is not a run; {hint!t}": "{path} 不是训练目录；{hint}",
        "{a} of {b} tokens": "{b} 个词元中的 {a} 个",
        "{number!n} head{s}": "{number} 个注意力头",
        "ask for {what!t}": "要求 {what}",
        "use one of {names!l}": "请用 {names}",
        "{heads!n} head{s} on {rows!n} row{s}": "{rows} 行上的 {heads} 个注意力头",
    }
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no such run", "没有这个训练"),
        ("runs/a is not a run", "runs/a 不是训练目录"),
        ("runs/a is not a run; no such run", "runs/a 不是训练目录；没有这个训练"),
        ("runs/a is not a run; unheard of", "runs/a 不是训练目录；unheard of"),
        ("3 of 40 tokens", "40 个词元中的 3 个"),
        ("1 head", "1 个注意力头"),
        ("1 head on 3 rows", "3 行上的 1 个注意力头"),
        ("12 heads on 1 rowing boat", "12 heads on 1 rowing boat"),
        ("ask for 12 heads", "要求 12 个注意力头"),
        ("ask for 1,200 heads, no such run, 3.5", "要求 1,200 个注意力头，没有这个训练，3.5"),
        ("ask for 1,200 heads, 3 heads", "要求 1,200 个注意力头、3 个注意力头"),
        ("1e-05 heads", "1e-05 个注意力头"),
        ("use one of a, b", "请用 a、b"),
        ("use one of a | b | c-d", "请用 a、b、c-d"),
        ("use one of a (no such run), b (1)", "请用 a（没有这个训练）、b (1)"),
        ("1, 2, 4 heads", "1, 2, 4 个注意力头"),
        ("ask for bread, butter", "要求 bread, butter"),
        ("2 headstones", "2 headstones"),
        ("nothing like that", "nothing like that"),
    ],
)
def test_a_sentence_is_said_with_its_values(text: str, said: str) -> None:
    assert SMALL.say(text) == said


def test_of_entries_that_fit_the_one_with_most_letters_counts() -> None:
    catalogue = Catalogue({"{a}: {b}": "{a}：{b}", "{a}: no {b} left": "{a}：{b} 用完了"})
    assert catalogue.say("disk: no room left") == "disk：room 用完了"
    assert catalogue.say("disk: full") == "disk：full"


def test_a_value_that_looks_like_an_entry_stays_what_it_is() -> None:
    assert SMALL.say("no such run is not a run") == "no such run 不是训练目录"


@given(st.text(), st.text())
def test_values_of_strangers_are_kept_whatever_they_contain(path: str, other: str) -> None:
    catalogue = Catalogue({"<{path}> and [{other}]": "[{other}]、<{path}>"})
    said = catalogue.say(f"<{path}> and [{other}]")
    assert sorted(said.replace("、", "")) == sorted(f"[{other}]<{path}>".replace("、", ""))


def test_thousands_and_millions_are_counted_in_ten_thousands() -> None:
    catalogue = Catalogue({"{size!m} parameters": "{size}参数"})
    assert catalogue.say("0.82 M parameters") == "82 万个参数"
    assert catalogue.say("42.07 M parameters") == "4,207 万个参数"
    assert catalogue.say("3,204 parameters") == "3,204 个参数"
    assert [catalogue.say(f"{size} parameters") for size in ("5.2 k", "180 k", "1.3 G")] == [
        "5,200 个参数",
        "18 万个参数",
        "13 亿个参数",
    ]
    assert catalogue.say("many parameters") == "many parameters"


@pytest.mark.parametrize("label", ["advice: ", "advice: step 1,000: "])
def test_no_entry_that_begins_with_a_value_swallows_a_label(label: str) -> None:
    """Such as `{sentence!t}; try more text`, whose letters are more than those of `advice: {advice!t}`."""
    beginning = [text for text in chinese().pairs if text.startswith("{")]
    assert len(beginning) > 100
    for text in beginning:
        entry, _ = chinese().fit(label + re.sub(r"\{(\w*)(![tnm])?\}", "7", text))
        assert entry is not None
        assert entry.between[0].startswith("advice: "), text


def test_a_text_that_nobody_can_read_costs_nothing() -> None:
    assert SMALL.find("x" * 10**7) is None
