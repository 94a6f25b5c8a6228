"""Results on a terminal and in a pipe."""

import io
import json
import os
import signal
import threading
import time
from dataclasses import dataclass

import pytest
from support.helpers import Terminal, unread_pipe

from gpt_cli.cli.console import Console, Patient
from gpt_cli.cli.signals import Signals
from gpt_cli.common.results import Result

HOSTILE = "a\x1b[2Jb\x9bc\u202ed\x7f"


@dataclass(frozen=True)
class _Told(Result):
    token: str


def printed(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO) -> list[str]:
    monkeypatch.setattr("sys.stdout", stream)
    Console().pieces(["token,weight\n", f'"{HOSTILE}",1\n'])
    Console().show(_Told(HOSTILE), json=True)
    return stream.getvalue().splitlines()


def test_csv_and_json_on_a_terminal_hold_nothing_that_it_obeys(monkeypatch: pytest.MonkeyPatch) -> None:
    header, row, content = printed(monkeypatch, Terminal())
    assert header == "token,weight"
    assert row == r'"a\x1b[2Jb\x9bc\u202ed\x7f",1'
    assert content == r'{"token": "a\u001b[2Jb\u009bc\u202ed\u007f"}'


def test_a_pipe_receives_every_character(monkeypatch: pytest.MonkeyPatch) -> None:
    _, row, content = printed(monkeypatch, io.StringIO())
    assert row == f'"{HOSTILE}",1'
    assert json.loads(content) == {"token": HOSTILE}


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "gbk"])
def test_json_is_json_in_every_locale(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding, "backslashreplace")
    monkeypatch.setattr("sys.stdout", stream)
    Console().show(_Told("é 今天 😀"), json=True)
    assert json.loads(stream.buffer.getvalue()) == {"token": "é 今天 😀"}  # type: ignore[attr-defined]


def test_a_line_waits_for_its_reader_until_a_signal_is_more_urgent(monkeypatch: pytest.MonkeyPatch) -> None:
    signals = Signals()
    signals.saving = True  # as while a training prints
    monkeypatch.setattr("gpt_cli.cli.console.PATIENCE", 0.1)
    with unread_pipe() as writer, open(writer, "w", closefd=False) as stream:
        patient = Patient(stream)
        thread = threading.Thread(target=print, args=["x" * 100_000], kwargs={"file": patient})
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
        monkeypatch.setattr("sys.stderr", patient)
        signals.hear(signal.SIGTERM)
        thread.join(30)
        assert not thread.is_alive()
        begun = time.monotonic()
        for _ in range(5):  # none of which waits once more
            print("lost", file=patient)
        assert time.monotonic() - begun < 2


def test_a_long_line_arrives_whole_whatever_pieces_it_is_written_in() -> None:
    reader, writer = os.pipe()
    with open(reader, encoding="utf-8") as read, open(writer, "w", encoding="utf-8") as stream:
        content: list[str] = []
        thread = threading.Thread(target=lambda: content.append(read.readline()))
        thread.start()
        patient = Patient(stream)
        patient.hurry()
        print("é中" * 50_000, file=patient)
        thread.join(30)
    assert content == ["é中" * 50_000 + "\n"]
