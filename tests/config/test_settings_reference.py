import re

import pytest

import gpt_cli
from gpt_cli.config.settings_reference import allowed_values, key_names, setting_schemas


def allowed(key: str) -> list[str]:
    return allowed_values(key, setting_schemas()[key])


def test_names_are_those_of_the_schema() -> None:
    assert key_names() == list(setting_schemas())


def test_every_setting_says_what_it_allows_and_means() -> None:
    for key, details in setting_schemas().items():
        assert details.get("description"), f"{key}: give its field in gpt_cli/config a description"
        assert all(allowed_values(key, details)), key


def test_ranges_name_both_ends() -> None:
    assert allowed("train.seed") == ["a whole number from 0 to 9,223,372,036,854,775,807"]
    assert allowed("model.ngram_rows") == ["a whole number from 1 to 2,147,483,647"]
    assert allowed("model.ngram_embedding") == ["a whole number from 2 to 8", "null"]
    assert allowed("train.weight_decay") == ["a number of at least 0 and below 10"]
    assert allowed("train.gradient_clip") == ["a number above 0", "null"]
    assert allowed("model.bias") == ["true", "false"]


def test_the_table_has_a_row_for_every_setting() -> None:
    rows = str(gpt_cli.configs.settings()).splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == list(setting_schemas())
    assert {row.count("|") for row in rows} == {5}
    assert "| `model.norm` | layernorm | layernorm or rmsnorm | kind of normalisation |" in rows


def test_the_table_is_chinese_where_the_user_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys, defaults and values stay what one types."""
    english = str(gpt_cli.configs.settings()).splitlines()[2:]
    monkeypatch.setenv("GPT_LANGUAGE", "zh")
    chinese = str(gpt_cli.configs.settings()).splitlines()[2:]
    assert "| `model.norm` | layernorm | layernorm 或 rmsnorm | 归一化的种类 |" in chinese
    assert "| `data.source` | python-docs | 一个来源或来源的列表 |" in "\n".join(chinese)
    for row, said in zip(english, chinese, strict=True):
        assert row.split("|")[1:3] == said.split("|")[1:3]
        mend = f"{said}\nits line in gpt_cli/common/language/zh/settings.toml; make zh prints those that are missing"
        assert re.search("[\u4e00-\u9fff]", said.split("|")[4]), mend
        one, other = (re.findall("[a-z]+_[a-z]+|null|true|false|auto", line.split("|")[3]) for line in (row, said))
        assert one == other, mend
