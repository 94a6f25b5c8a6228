"""Results on a terminal and in a pipe."""

from __future__ import annotations

import io
import json

import pytest

from gpt_cli.cli.terminal import Console

HOSTILE = "a\x1b[2Jb\x9bc\u202ed"


class Stream(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


def printed(monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> list[str]:
    stream = Stream(terminal)
    monkeypatch.setattr("sys.stdout", stream)
    Console().pieces(["token,weight\n", f'"{HOSTILE}",1\n'])
    Console().json({"token": HOSTILE})
    return stream.getvalue().splitlines()


def test_csv_and_json_on_a_terminal_hold_nothing_that_it_obeys(monkeypatch: pytest.MonkeyPatch) -> None:
    header, row, content = printed(monkeypatch, terminal=True)
    assert header == "token,weight"
    assert row == r'"a\x1b[2Jb\x9bc\u202ed",1'
    assert content == r'{"token": "a\u001b[2Jb\u009bc\u202ed"}'


def test_a_pipe_receives_every_character(monkeypatch: pytest.MonkeyPatch) -> None:
    _, row, content = printed(monkeypatch, terminal=False)
    assert row == f'"{HOSTILE}",1'
    assert json.loads(content) == {"token": HOSTILE}
