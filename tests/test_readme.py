"""Every command of the READMEs runs, and both tell the same."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.helpers import RunCommand

from gpt_cli.config.describing import known_keys

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "README.zh-CN.md")


def commands(page: str) -> list[str]:
    """The lines of shell blocks that begin with `$ gpt`, without the prompt sign."""
    blocks = re.findall(r"^```console\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.startswith("$ ")]
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ gpt ") or "| gpt " in line]


def python_blocks() -> list[str]:
    """The chapter on Python, and the recipes for other viewers."""
    found = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    return sorted(found, key=lambda block: "attention.npz" in block)


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_the_page_runs(
    page: str, here: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As typed, with the smoke config in place of larger ones, in a folder that has the text and the run named."""
    monkeypatch.setattr("gpt_cli.measuring.roof._SIZE", 64)
    shape = ["--set", "model.num_heads=4", "--set", "model.num_blocks=4"]  # those of tiny
    assert run("train", "--config", "smoke", "--out", "runs/tiny", "--max-steps", "4", *shape).code == 0
    (here / "my.txt").write_text("今天天气很好。 The weather is fine today.\n" * 200)
    found = [command for command in commands(page) if "data fetch" not in command]  # which needs a network
    assert len(found) >= 15
    for command in found:
        before, _, typed = command.rpartition("| ")
        words = shlex.split(typed.split(" > ")[0])[1:]
        words = ["smoke" if word in ("small", "tiny", "configs/tiny.yaml") else word for word in words]
        if words[0] == "train" and "--resume" not in words:
            words += ["--max-steps", "4"]
        if words[0] == "bench":
            words += ["--config", "smoke", "--rounds", "1", "--tokens", "3"]
        outcome = run(*words, stdin=b"The value\n" if before else b"")
        assert outcome.code == 0, f"{command}\n{outcome.err}"


def test_the_recipes_for_other_viewers_run(
    smoke_run: Path, run: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With stand-ins for the viewers, which ask for what the real ones do in the versions that the page names."""
    assert run("attn-dump", "--run", smoke_run, "--prompt", "The value", "--out", tmp_path / "attention.npz").code == 0
    monkeypatch.chdir(tmp_path)
    shown: list[str] = []

    def head_view(attention: torch.Tensor, tokens: list[str]) -> None:
        for of_layer in attention:
            assert of_layer.shape == (1, 2, len(tokens), len(tokens))
        shown.append("bertviz")

    def attention_heads(attention: np.ndarray, tokens: list[str]) -> None:
        assert attention.shape == (2, len(tokens), len(tokens))
        shown.append("circuitsvis")

    def activation_cache(cache: dict[str, torch.Tensor], model: None) -> None:
        assert list(cache) == ["blocks.0.attn.hook_pattern", "blocks.1.attn.hook_pattern"]
        assert {of_layer.shape[:2] for of_layer in cache.values()} == {(1, 2)}
        shown.append("transformer_lens")

    for name, content in {
        "bertviz": {"head_view": head_view},
        "circuitsvis": {"attention": SimpleNamespace(attention_heads=attention_heads)},
        "transformer_lens": {"ActivationCache": activation_cache},
    }.items():
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(**content))
    _, recipes = python_blocks()
    exec(recipes, {})
    assert shown == ["bertviz", "circuitsvis", "transformer_lens"]


def test_both_pages_show_the_same_commands_outputs_and_pictures() -> None:
    blocks, pictures = (
        [re.findall(pattern, (ROOT / page).read_text(), re.DOTALL | re.MULTILINE) for page in PAGES]
        for pattern in (r"^```(?:console|python)\n(.*?)^```", r"!\[.*?\]\((.*?)\)")
    )
    assert blocks[0] == blocks[1]
    assert pictures[0] == pictures[1] != []
    assert all((ROOT / picture).exists() for picture in pictures[0])


def test_every_command_and_flag_is_in_the_readme(run: RunCommand) -> None:
    text = (ROOT / "README.md").read_text()
    for command in (
        ["train"],
        ["sample"],
        ["attn-dump"],
        ["explain"],
        ["eval"],
        ["bench"],
        ["info"],
        ["config", "show"],
        ["data", "fetch"],
    ):
        assert f"gpt {command[0]}" in text
        for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]+", run(*command, "--help").out):
            assert flag in text or flag == "--help", flag


def test_the_settings_of_the_readme_are_those_of_the_program() -> None:
    rows = {
        key: (default, meaning)
        for key, default, meaning in re.findall(
            r"^\| `(\w+\.\w+)` \| (.*?) \| (.*?) \|$", (ROOT / "README.md").read_text(), re.MULTILINE
        )
    }
    expected = {
        key: (
            "null" if details["default"] is None else json.dumps(details["default"]).strip('"'),
            details["description"],
        )
        for key, details in known_keys().items()
    }
    assert rows == expected


def test_the_python_of_the_readme_runs(smoke_run: Path) -> None:
    block, _ = python_blocks()
    names: dict[str, Any] = {}
    exec(block.replace("runs/tiny", "runs/smoke"), names)  # the page's own text
    assert names["logits"].shape[-1] == names["run"].tokenizer.vocab_size
    assert names["weights"].shape[:3] == (2, 1, 2)


def test_bare_make_lists_the_targets() -> None:
    done = subprocess.run(["make", "-s", "-C", str(ROOT)], capture_output=True, text=True)
    targets = {line.split()[0] for line in done.stdout.splitlines()}
    assert {"demo", "test", "check", "bench", "data"} <= targets
