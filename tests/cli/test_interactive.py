import codecs
import os
import pty
import re
import select
import sys
import time
from pathlib import Path

import pytest
from support.helpers import RunCommand

from gpt_cli.cli.console import Console
from gpt_cli.cli.sample import SETTINGS, Answer, changed_by, converse, explained, in_session, sample_commands
from gpt_cli.config.request import read_request
from gpt_cli.errors import UsageError
from gpt_cli.sampling.request import SampleRequest

TIMEOUT = 60.0  # seconds


class Terminal:
    """`gpt sample` as a person sees it."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.seen, self.decoder = "", codecs.getincrementaldecoder("utf-8")("replace")
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            command = [sys.executable, "-m", "gpt_cli", "sample", *arguments]
            os.execve(command[0], command, os.environ | {"TERM": "dumb"} | environment)

    def until(self, text: str) -> str:
        """What the terminal shows before a text, which must come."""
        deadline = time.monotonic() + TIMEOUT
        while text not in self.seen:
            assert time.monotonic() < deadline, self.seen
            if select.select([self.descriptor], [], [], 0.1)[0]:
                self.seen += self.decoder.decode(os.read(self.descriptor, 4096))
        before, _, self.seen = self.seen.partition(text)
        return before

    def type(self, text: str, encoding: str = "utf-8") -> None:
        os.write(self.descriptor, text.encode(encoding))

    def enter(self, line: str) -> None:
        """Type a line where the session asks for one."""
        self.until("> ")
        self.type(f"{line}\n")

    def code(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_a_session_answers_warns_and_changes_choices_and_ctrl_c_ends_the_answer_alone(
    here: Path, run: RunCommand
) -> None:
    (here / "abc.txt").write_text("abc cab bac\n" * 400)
    chars = ("--set", "tokenizer.kind=char", "--set", "train.warmup_steps=1", "--set", "train.save_every=1")
    run("train", "--config", "smoke", "--data", "abc.txt", *chars, "--max-steps", "2", "--out", "runs/abc", exits=0)
    # as in all locales of UTF-8 but C.UTF-8
    strictly = {"PYTHONIOENCODING": "utf-8:strict"}
    terminal = Terminal("--max-new-tokens", "20", "--seed", "1", "--without", "0.0", **strictly)
    terminal.until("heads switched off: 0.0")
    terminal.until("Ctrl-D or /quit exits, /help lists")
    answers = []
    for choice in ("/seed 3", "/temperature 0", "/seed 4"):
        terminal.enter(choice)
        terminal.enter("ab cab")
        terminal.until("ab cab\r\n")
        answers.append(terminal.until("\r\n> "))
        terminal.type("\n")  # an empty line is a prompt as well
        terminal.until("an empty line starts a new document\r\n")
        terminal.until("\r\n")
    assert answers[0] != answers[1] == answers[2]
    terminal.enter("\x10")  # Ctrl-P, as the arrow upwards, brings the earlier line back
    terminal.until("ab cab\r\n")
    assert terminal.until("\r\n> ") == answers[2]
    terminal.type("/max_new_tokens 1000000\n")
    terminal.enter("ab cab")
    terminal.until("ab cab\r\n")
    time.sleep(0.5)
    terminal.type("\x03")
    terminal.until("\r\n> ")
    terminal.type("/max_new_tokens 4\n")
    for typed, answer in (
        ("/temperature 0", "/temperature 0\r\ntemperature 0.0\r\n"),
        ("/temperature ０．８", "hint: did you mean /temperature 0.8?"),
        ("/set temperature 0.5", 'warning: there is no "/set"; did you mean /temperature 0.5?'),
        ("/set parameter top_k=5", 'warning: there is no "/set"; did you mean /top-k 5?'),
        ("abŵ", 'warning: this model knows 5 characters, but not "ŵ" U+0175 at position 2\r\nhint: leave these'),
        ("/help temperature", "/temperature 0.0\r\nBelow 1 is more careful, above 1 more daring"),
        ("/help warmth", 'warning: there is no "/warmth"; you can change /seed, '),
        ("/help top-k", "Allowed: a whole number of at least 0\r\nOr: /top-k off\r\n"),
        ("/without 0.1", "heads switched off: 0.1"),
        ("/without 9.9", 'so "9.9" is out of range\r\n'),
        ("/checkpoint 9", "warning: this run has no checkpoint of step 9, only of 1, 2"),
        ("/checkpoint 1", "step-00000001.safetensors, step 1\r\n"),
        ("/seed", "warning: write a value after /seed, as in /seed 4; /help seed lists the allowed values"),
        ("/top-k", "warning: write a value after /top-k, as in /top-k off; /help top-k lists"),
        ("/stop", "warning: /stop TEXT ends answers before that text; /stop off cancels it"),
        ("ab", "ab\r\n"),
        ("/warmth 3", 'warning: there is no "/warmth"; you can change /seed, /temperature, /top-k, '),
        ("/help", "/seed 4\r\n/temperature 0.0\r\n/top-k off\r\n"),
        ("/help", "/without 0.1\r\n/checkpoint 1\r\n"),
    ):
        terminal.enter(typed)
        terminal.until(answer)
    terminal.until("> ")
    terminal.type("今天\n", "gb18030")
    terminal.until("warning: byte 0xbd at position 0 is not UTF-8")
    terminal.until("> ")
    terminal.type("\x04")
    assert terminal.code() == 0


@pytest.mark.parametrize("word", ["/quit", "/exit", "/bye", "quit", "exit", "bye"])
def test_a_word_of_farewell_leaves(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = iter([word, "more"])
    monkeypatch.setattr("builtins.input", lambda _: next(lines))
    answered: list[str] = []
    converse(Console(), SampleRequest(), lambda _: lambda line, _: answered.append(line))
    assert answered == []
    assert next(lines) == "more"


def test_only_another_checkpoint_or_other_heads_load_a_model_again(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = iter(
        ["/top-k 3", "/without 0.0", "/stop x", "/checkpoint last", "/checkpoint last", "/checkpoint best", "bye"]
    )
    monkeypatch.setattr("builtins.input", lambda _: next(lines))
    opened: list[object] = []

    def open_model(request: SampleRequest) -> Answer:
        opened.append((request.checkpoint, *request.without))
        return lambda line, _: None

    converse(Console(), SampleRequest(), open_model)
    # the last one may be newer by now
    assert opened == [(None,), (None, "0.0"), ("last", "0.0"), ("last", "0.0"), (None, "0.0")]


def changed(*lines: str, **given: object) -> SampleRequest:
    """A request after some lines of a session."""
    request = read_request(SampleRequest, given)
    for line in lines:
        request = changed_by(request, line)
    return request


def help_of(request: SampleRequest) -> list[str]:
    return [line for name in SETTINGS for line in sample_commands(request, name)]


def test_stops_are_added_one_by_one_and_go_together() -> None:
    request = changed("/stop .", "/stop \\n", "/stop .")
    assert request.stop == [".", "\n"]
    assert {"/stop .", "/stop \\n"} < set(help_of(request))
    assert changed_by(request, "/stop off").stop == ()


def test_choices_are_read_as_the_flags_are() -> None:
    request = changed("/top_p 0.5", "/temperature 1.5", temperature="0.8")
    assert request.model_dump(exclude_unset=True) == {"temperature": 1.5, "top_p": 0.5}
    assert changed_by(request, "/seed 0").seed == 0
    with pytest.raises(UsageError, match=re.escape('"-1" is not a number of at least 0')):
        changed_by(request, "/temperature -1")
    assert any("0 the same as --greedy" in line for line in explained(request, "temperature"))
    with pytest.raises(UsageError, match=re.escape('there is no "/temp"; did you mean /temperature?')):
        explained(request, "temp")
    with pytest.raises(UsageError, match=re.escape('there is no "/"; you can change /seed, ')):
        changed_by(request, "/")


def test_every_line_of_help_can_be_typed() -> None:
    for request in (changed(), changed(seed=3, top_k=5, top_p=0.5, min_p=0.1, without="0.1", max_new_tokens=9)):
        retyped = changed(*help_of(request), seed=1, top_k=1)
        assert help_of(retyped) == help_of(request)
    assert "/top-k off" in help_of(changed())
    assert changed("/seed random", seed=3).seed is None


def test_a_greedy_session_begins_at_temperature_zero(smoke_run: Path) -> None:
    request = in_session(SampleRequest(greedy=True, seed=4))
    assert (request.temperature, request.seed, request.run) == (0, 4, smoke_run)
    assert changed_by(request, "/temperature 1").temperature == 1
