"""Where lines for a terminal are broken."""

import os
import pty
import re
import select
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import ioctl
from termios import TIOCSWINSZ

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gpt_cli.cli.app import main
from gpt_cli.cli.console import Console, wrapped


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a text that fits", ["a text that fits"]),
        ("try it: gpt train --out a --resume", ["try it:", "gpt train --out a --resume"]),
        ("stopped; --max-steps 600 goes on", ["stopped;", "--max-steps 600 goes", "on"]),
        ("hint: --prompt 'The value of all'", ["hint:", "--prompt 'The value of all'"]),
        ("as gpt says, as gpt says it", ["as gpt says, as gpt", "says it"]),
        ("run/" + "x" * 20 + " is a name", ["run/" + "x" * 20, "is a name"]),
        ("  indented, as it was before", ["  indented, as it", "  was before"]),
        ("device  cpu, float32, 2 threads", ["device  cpu,", "        float32, 2", "        threads"]),
        ("one\ntwo three four five six seven", ["one", "two three four five", "six seven"]),
        ("验证损失在最后一段仍在下降", ["验证损失在最后一段仍", "在下降"]),
        ("验证损失在最后一段降低，还会", ["验证损失在最后一段降", "低，还会"]),
        ("验证损失在最后一段降，还会", ["验证损失在最后一段", "降，还会"]),
        (
            "接着训练：gpt train --out 'a 中' --resume；可以",
            ["接着训练：", "gpt train --out 'a 中' --resume；", "可以"],
        ),
        (
            "so: iconv -f GB18030 -t utf-8 a.txt > 'b c'; go on",
            ["so:", "iconv -f GB18030 -t utf-8 a.txt > 'b c';", "go on"],
        ),
        ("more files with ulimit -n", ["more files with", "ulimit -n"]),
        ("use python 3.12 as we do here", ["use python 3.12 as", "we do here"]),
        ("位置在第三个（从零）数起", ["位置在第三个（从零）", "数起"]),
        ("位置在第三个字这（里）数", ["位置在第三个字这", "（里）数"]),
    ],
)
def test_lines_break_between_words_and_never_in_a_command(text: str, lines: list[str]) -> None:
    assert wrapped(text, 20).split("\n") == lines
    assert wrapped(text, None) == text


@given(text=st.text("ab 中，\n", max_size=60), width=st.integers(1, 30))
def test_lines_are_as_short_as_their_words_let_them_be(text: str, width: int) -> None:
    broken = wrapped(text, width)
    assert re.sub(r"\s", "", broken) == re.sub(r"\s", "", text)
    for line in broken.split("\n"):
        assert cell_len(line) <= width or re.fullmatch(" *([ab]+|中)?，*", line)
        assert not line.startswith("，") or re.search(r"(^|\s)，", text)


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> Iterator[int]:
    """A terminal as stderr; yields the descriptor that reads what it shows."""
    reader, writer = pty.openpty()
    ioctl(writer, TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with open(writer, "w") as stream:
        monkeypatch.setattr("sys.stderr", stream)
        yield reader
    os.close(reader)


def shown(reader: int) -> list[str]:
    """The lines that a terminal shows; it hands them on in pieces."""
    seen = b""
    while select.select([reader], [], [], 0.3)[0]:
        seen += os.read(reader, 999)
    return seen.decode().splitlines()


def test_notices_and_errors_fit_the_terminal_of_stderr(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with terminal(monkeypatch, 40) as reader:
        Console().warn("these runs are measured on different texts; --data SOURCE measures all on the same text")
        assert shown(reader) == [
            "warning: these runs are measured on",
            "different texts; --data SOURCE measures",
            "all on the same text",
        ]
        assert main(["sample", "--prompt", "The", "value", "of", "a", "command"]) == 2
        assert shown(reader) == [
            "error: gpt sample: unexpected argument",
            '"value of a command"',
            "hint: put quotes around a text with",
            "spaces:",
            "--prompt 'The value of a command'",
        ]
    monkeypatch.undo()
    Console().warn("these runs are measured on different texts; --data SOURCE measures all on the same text")
    assert len(capfd.readouterr().err.splitlines()) == 1
