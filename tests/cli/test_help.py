"""Help in Chinese."""

from collections.abc import Iterator
from typing import Any

import pytest
from rich.cells import cell_len
from support.helpers import run_command

from gpt_cli.cli.app import build
from gpt_cli.cli.command_table import TABLE


def test_chinese_help_keeps_flags_and_values_and_breaks_lines_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GPT_LANGUAGE", "zh")
    monkeypatch.setenv("COLUMNS", "80")
    lines = run_command("sample", "--help").out.splitlines()
    assert lines[0] == "用法：gpt sample [选项]"
    assert "  --greedy                总是选概率最大的 token。" in lines
    assert "  --num-samples N         每个提示词续写几次。默认：1。" in lines
    assert lines[-1] == "  例：gpt sample --prompt '今天天气' --num-samples 3"
    assert max(map(cell_len, lines)) <= 80
    assert not [line for line in lines if line.strip()[:1] in tuple("，。：；、）")]
    assert "9223372036854775807。" in "\n".join(lines)


def test_headings_are_chinese_and_no_example_has_an_english_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPT_LANGUAGE", "zh")
    said = [run_command(*name.split(), "--help").out for name in ["", "data", *TABLE]]
    for help_text in said:
        assert "选项：\n" in help_text
        for english in ("The value of", "Options", "Commands", "[required]"):
            assert english not in help_text
    assert sum("今天天气" in help_text for help_text in said) >= 5


def test_help_names_no_types_of_python() -> None:
    said = run_command("runs", "rm", "--help").out
    assert "\n  NAME  Names that `gpt runs` prints" in said
    assert "str" not in said


def test_each_way_to_call_and_each_example_has_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    said = run_command("runs", "--help").out.splitlines()
    assert said[:3] == ["Usage: gpt runs [OPTIONS] [DIR]", "       gpt runs rm NAME...", ""]
    assert said[-2:] == ["  Example: gpt runs --sort loss", "  Example: gpt runs rm tiny"]
    assert run_command("config", "check", "--help").out.startswith("Usage: gpt config check [OPTIONS] FILE\n")
    first = ["  Start with:", "    gpt train --data my.txt", "    gpt sample --prompt 'The value of'"]
    assert run_command("--help").out.splitlines()[-4:-1] == first
    monkeypatch.setenv("GPT_LANGUAGE", "zh")
    said = run_command("runs", "--help").out.splitlines()
    assert said[:2] == ["用法：gpt runs [选项] [DIR]", "      gpt runs rm NAME..."]
    assert said[-2:] == ["  例：gpt runs --sort loss", "  例：gpt runs rm tiny"]
    assert run_command("--help").out.splitlines()[-4:] == [
        "  从这里开始：",
        "    gpt train --data my.txt",
        "    gpt sample --prompt '今天天气'",
        "    gpt attn-dump --prompt '今天天气' --out attention.html",
    ]
    assert run_command("--help").out.startswith("用法：gpt [选项] 命令 [参数]...\n")


def test_every_flag_that_takes_a_value_says_so_in_help() -> None:
    def flags(command: Any, name: str) -> Iterator[str]:
        for parameter in command.params:
            if parameter.param_type_name == "option" and not parameter.is_flag and not parameter.metavar:
                yield f"{name} {parameter.opts[0]}"
        for below in getattr(command, "commands", {}).values():
            yield from flags(below, f"{name} {below.name}")

    assert [*flags(build(), "gpt")] == []
    assert "--generate N " in run_command("attn-dump", "--help").out
