"""Every command of the READMEs runs, and both tell the same."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from helpers import RunCommand

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "README.zh-CN.md")


def commands(page: str) -> list[str]:
    """The lines of shell blocks that begin with `$ gpt`, without the prompt sign."""
    blocks = re.findall(r"^```(?:console|sh)\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    lines = (line.removeprefix("$ ") for block in blocks for line in block.replace("\\\n", " ").splitlines())
    return [line for line in lines if line.startswith("gpt ") or "| gpt " in line]


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_the_page_runs(page: str, smoke_run: Path, here: Path, trained: Path, run: RunCommand) -> None:
    """With the smoke config in place of larger ones, in a folder that has a trained run and the texts named."""
    shutil.copytree(trained / "runs", here / "runs")
    (here / "my.txt").write_text("今天天气很好。 The weather is fine today.\n" * 200)
    found = commands(page)
    assert len(found) >= 10
    for number, command in enumerate(found):
        if "gpt data fetch" in command:
            continue  # needs a network; tests/text/test_catalogue.py serves one
        words = shlex.split(command.split("|")[-1].split(">")[0])
        stdin = b"The value" if "|" in command else b""
        words = [
            "smoke" if word in ("small", "tiny", "configs/small.yaml", "configs/tiny.yaml") else word for word in words
        ]
        if words[1] == "train" and "--resume" not in words and "--out" not in words:
            words += ["--out", f"runs/readme-{number}"]
        words = ["runs/smoke" if re.fullmatch(r"runs/(tiny|small|mine)", word) else word for word in words]
        if words[1] == "train":
            words = [word for word in words if word != "runs/smoke"] if "--out" not in words else words
            words += ["--max-steps", "4"] if "--max-steps" not in words and "--resume" not in words else []
        outcome = run(*words[1:], stdin=stdin)
        assert outcome.code == 0, f"{command}\n{outcome.err}"


def test_both_pages_show_the_same_commands_and_pictures() -> None:
    english, chinese = (commands(page) for page in PAGES)
    assert [c.split()[:2] for c in english] == [c.split()[:2] for c in chinese]
    pictures = [re.findall(r"!\[.*?\]\((.*?)\)", (ROOT / page).read_text()) for page in PAGES]
    assert pictures[0] == pictures[1] != []
    assert all((ROOT / picture).exists() for picture in pictures[0])


def test_every_command_and_flag_is_in_the_readme(run: RunCommand) -> None:
    text = (ROOT / "README.md").read_text()
    for command in (["train"], ["sample"], ["attn-dump"], ["info"], ["config", "show"], ["data", "fetch"]):
        assert f"gpt {command[0]}" in text
        for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]+", run(*command, "--help").out):
            assert flag in text or flag == "--help", flag


def test_every_setting_is_used_by_a_config_a_test_or_the_readme() -> None:
    from gpt_cli.config.reading import known_keys

    texts = "".join(
        path.read_text()
        for folder in ("configs", "tests", "benchmarks")
        for path in (ROOT / folder).rglob("*.*")
        if path.suffix in (".py", ".yaml")
    )
    assert [key for key in known_keys() if key.split(".")[1] not in texts] == []
