import json
import sys
from pathlib import Path

import pytest
from support.helpers import RunCommand
from support.light import WithoutTorch

import gpt_cli
from gpt_cli.cli import console
from gpt_cli.errors import UsageError
from gpt_cli.tools.interpret.tokens import Token, Tokens

TEXT = "The value 今"


def test_pieces_stand_above_their_ids_and_together_are_the_text(smoke_run: Path, run: RunCommand) -> None:
    ids = gpt_cli.load(smoke_run).tokenizer.encode(TEXT)
    outcome = run("tokens", TEXT)
    pieces, below = (line.split() for line in outcome.out.splitlines())
    assert [*map(int, below)] == ids
    assert "".join(pieces) == "The␣value␣<0xE4><0xBB><0x8A>"
    assert outcome.err == f"runs/smoke: {len(ids)} tokens for 11 characters, {13 / len(ids):.2f} bytes per token\n"
    assert run("tokens", TEXT, "--quiet").err == ""


def test_json_has_every_byte_of_the_text(smoke_run: Path, run: RunCommand) -> None:
    found = json.loads(run("tokens", TEXT, "--json").out)
    assert found == gpt_cli.tokens(TEXT, run=smoke_run).as_dict()
    assert bytes(byte for token in found["tokens"] for byte in token["bytes"]) == TEXT.encode()
    assert found["tokens"][-1] == {"id": 0x8A, "text": "<0x8A>", "bytes": [0x8A]}
    assert (found["tokenizer"], found["num_characters"]) == ("runs/smoke", 11)
    assert found["num_tokens"] == len(found["tokens"])
    assert found["bytes_per_token"] == pytest.approx(13 / found["num_tokens"])
    assert json.loads(run("tokens", "", "--json").out)["bytes_per_token"] is None


def test_lines_are_as_wide_as_the_terminal_and_chinese_counts_twice(
    here: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Tokens("x", [Token(5, "天下", []), Token(1234, "ab", [])], 2, 4, 4.0)
    assert found.as_text() == "天下 ab\n5    1234"
    monkeypatch.setenv("COLUMNS", "20")
    assert run("tokens", "abcdefgh\n", "--tokenizer", "byte").out == (
        "a  b  c  d   e   f\n97 98 99 100 101 102\n\ng   h   ↵\n103 104 10\n"
    )


def test_on_a_terminal_neighbours_have_different_grounds(
    here: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "colourful", lambda stream: stream is sys.stdout)
    first = run("tokens", "abc", "--tokenizer", "byte").out.splitlines()[0]
    assert first == "\033[30;46ma\033[0m  \033[30;43mb\033[0m  \033[30;46mc\033[0m"


def test_the_text_comes_as_prompts_do(here: Path, run: RunCommand) -> None:
    (here / "a.txt").write_text("ab\n")
    byte = ["tokens", "--tokenizer", "byte", "--quiet"]
    expected = "a  b\n97 98\n"
    assert run(*byte, "ab").out == run(*byte, "--prompt", "ab").out == expected
    assert run(*byte, stdin=b"ab\n").out == run(*byte, "-", stdin=b"ab").out == expected
    assert run(*byte, "--prompt-file", "a.txt").out == expected
    named = run("tokens", "--tokenizer", "byte", "a.txt")  # its name is the text, which may be a mistake
    assert named.out.split()[:5] == ["a", ".", "t", "x", "t"]
    assert named.err.startswith('"a.txt" is also a file; to tokenize its text: --prompt-file a.txt\n')


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        ("x --prompt y", 2, "--prompt and TEXT cannot be combined; leave one of them out"),
        ("x --tokenizer byte --run a", 2, "--run and --tokenizer cannot be combined; leave one of them out"),
        ("x --tokenizer gpt9", 2, '--tokenizer: tiktoken has no vocabulary "gpt9"; use one of gpt2, '),
        ("", 3, "stdin: the prompt is empty"),
    ],
)
def test_it_needs_no_torch_and_refuses_what_is_wrong(
    smoke_run: Path, words: str, code: int, error: str, without_torch: WithoutTorch
) -> None:
    done = without_torch("tokens", *words.split())
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(f"error: {error}")
    assert without_torch("tokens", "The value").returncode == 0


def test_python_reads_a_hyphen_as_a_text() -> None:
    assert [token.text for token in gpt_cli.tokens("-a", tokenizer="byte").tokens] == ["-", "a"]
    assert gpt_cli.tokens("-", tokenizer="byte").num_tokens == 1
    with pytest.raises(UsageError, match="there is no prompt"):
        gpt_cli.tokens(tokenizer="byte")
