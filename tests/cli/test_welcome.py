"""What `gpt` alone says."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from support.helpers import RunCommand


def test_gpt_alone_says_what_to_type_first(run: RunCommand, here: Path) -> None:
    outcome = run(exits=0)
    assert "What to type first:" in outcome.out
    assert next(line for line in outcome.out.splitlines() if line.startswith("  gpt")) == "  gpt train --data my.txt"


def test_in_chinese_the_commands_take_chinese_texts(
    run: RunCommand, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPT_LANGUAGE", "zh")
    commands = [line.strip() for line in run().out.splitlines() if line.startswith("  gpt")]
    assert commands == [
        "gpt train --data my.txt",
        "gpt train --config tiny",
        "gpt sample --prompt '今天天气'",
        "gpt attn-dump --prompt '今天天气' --out attention.html",
    ]


def test_with_a_run_at_hand_it_names_that_run(run: RunCommand, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(trained)
    outcome = run()
    first = next(line for line in outcome.out.splitlines() if line.startswith("  gpt"))
    assert first == "  gpt sample --run runs/smoke --prompt 'The value of'"
    assert run(*shlex.split(first)[1:], "--max-new-tokens", "2").code == 0
