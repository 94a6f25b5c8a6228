"""Every command of every page runs, and its exit codes are those that the pages name."""

import re
import shlex
from pathlib import Path

import pytest
from support.documents import CHINESE, DOCS, ENGLISH, ROOT, WITH_OUTPUTS, Shell, commands, shape, smaller
from support.faults import SCALE
from support.helpers import RunCommand
from support.package import COMMANDS

from gpt_cli.tools.bench.device_check import checks

FLAG = r"(?<![\w-])--[a-z][a-z-]+"
PAGES = [page for page in (*ENGLISH, *CHINESE) if page.name not in WITH_OUTPUTS and commands(page)]


# each shape of a command at its first place, as another text or run makes no other command; at full scale, everything,
# and the Chinese pages, whose flags are those of the English ones and whose commands differ in texts and runs
FIRST = {shape(command): page for page in reversed(PAGES) for command in reversed(commands(page))}


def test_pages_have_commands() -> None:
    assert len(PAGES) >= 7
    assert sum(len(commands(page)) for page in PAGES) >= 40


@pytest.mark.parametrize(
    "page", [pytest.param(page, id=page.name, marks=[pytest.mark.long] * (page in CHINESE)) for page in PAGES]
)
def test_every_command_of_the_page_runs(page: Path, trained_shell: Shell) -> None:
    """As typed, with the smoke config in place of larger ones."""
    for command in commands(page):
        if "data fetch" in command:  # which needs a network
            continue
        if SCALE < 1 and FIRST[shape(command)] != page and shape(command) != command:
            words = shlex.split(command)
            assert "--run" not in words or Path(words[words.index("--run") + 1]).exists(), command
            continue
        with pytest.MonkeyPatch.context() as patch:
            # half a minute of checks, which tests/tools/bench does
            patch.setattr("gpt_cli.tools.bench.device_check.checks", lambda cpu, other: checks(cpu, other)[5:6])
            trained_shell.run(smaller(command))


@pytest.mark.parametrize("page", ["exit-codes.md", "exit-codes.zh-CN.md"])
def test_the_examples_of_exit_codes_end_with_them(page: str, trained_shell: Shell) -> None:
    rows = re.findall(r"^\| (\d+) \|.*\| `(gpt [^|]*)` \|$", (DOCS / page).read_text(), re.MULTILINE)
    assert [int(code) for code, _ in rows] == [0, 2, 3, 4, 5, 6]
    for code, command in rows:
        assert trained_shell.run(command, exits=int(code)).err.count("error: ") == (code != "0")


def test_every_command_and_flag_is_in_the_pages(run: RunCommand) -> None:
    text = "\n".join(page.read_text() for page in ENGLISH)
    for command in [*COMMANDS, "completion", "help"]:
        assert f"gpt {command}" in text, f"gpt {command} is in no page of docs/"
        for flag in re.findall(FLAG, run(*command.split(), "--help").out):
            assert flag in text or flag == "--help", f"{command} {flag} is in no page of docs/"


@pytest.mark.parametrize("page", CHINESE, ids=lambda page: page.name)
def test_a_chinese_page_names_no_unknown_flag(page: Path) -> None:
    everywhere = "\n".join(other.read_text() for other in ENGLISH)
    assert set(re.findall(FLAG, page.read_text())) <= set(re.findall(FLAG, everywhere))


@pytest.mark.parametrize(("name", "words"), [("README.md", 1100), ("README.zh-CN.md", 2000)])
def test_the_first_page_is_short_and_begins_with_commands(name: str, words: int) -> None:
    """A Chinese character counts as a word; of a line, what a link names does not count."""
    text = (ROOT / name).read_text()
    lines = re.sub(r"^```.*?^```\n|\]\(.*?\)", "", text, flags=re.DOTALL | re.MULTILINE).splitlines()
    assert text[: text.index("$ gpt sample")].count("\n") < 15
    assert max(map(len, lines)) <= 200
    assert len(re.sub(r"([\u4e00-\u9fff])", r" \1 ", text.replace("|", " ")).split()) <= words
