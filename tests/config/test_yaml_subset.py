from __future__ import annotations

import time
from pathlib import Path

import pytest

from gpt_cli.config.yaml_subset import parse, read_text
from gpt_cli.errors import UsageError


def test_scalars_stay_text_and_null_is_none() -> None:
    text = "a: 010\nb: 12:30\nc: yes\nd: 2024-13-45\ne: ~\nf: 'null'\ng: [1, null]\nh: 1_000"
    assert parse(text, "f").content == {
        "a": "010", "b": "12:30", "c": "yes", "d": "2024-13-45", "e": None, "f": "null", "g": ["1", None], "h": "1_000",
    }  # fmt: skip


def test_lines_of_keys_are_remembered() -> None:
    assert parse("# c\nmodel:\n\n  d_model: 3", "f").lines == {("model",): 2, ("model", "d_model"): 4}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a: !!python/object/apply:os.system ['true']",
            'f:1: tag "tag:yaml.org,2002:python/object/apply:os.system"; tags are not allowed',
        ),
        ("a: !x 1", 'f:1: tag "!x"; tags are not allowed'),
        ("a: &x 1\nb: *x", "f:1: anchor &x; anchors are not allowed; write the value out"),
        ("a:\n  b: *x", "f:2: alias *x; aliases are not allowed; write the value out"),
        ("<<: {a: 1}", "f:1: merge key <<; merges are not allowed; write the values out"),
        ("a: 1\nb: 2\na: 3", 'f:3: "a" stands a second time; first on line 1'),
        ("? [a]\n: b", "f:1: a key that is not plain text; keys are names"),
        ("- a", "f:1: not a mapping; write sections such as `model:` with keys below them"),
        ("a: b: c", "f:1: not YAML, mapping values are not allowed here"),
        ("a: [1", "f:1: not YAML, expected ',' or ']', but got '<stream end>'"),
        ("a:\n\tb: 1", "f:2: not YAML, found character '\\t' that cannot start any token"),
        ("a: \x00", "f: character U+0000 at position 3; YAML does not allow it"),
        ('a: "\\UFFFFFFFF"', 'f: not YAML, "Python int too large to convert to C int"'),
        ("&k a: 1", "f:1: a key that is not plain text; keys are names"),
        ("a: 1\n---\nb: 2", "f:2: a second document; a config is one document"),
    ],
)
def test_what_is_not_allowed_is_told_with_its_line(text: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse(text, "f")
    assert raised.value.lines() == [f"error: {message}"]


def test_bombs_are_refused_at_once() -> None:
    started = time.monotonic()
    for text in ("[" * 100_000, "{a: " * 100_000, "a: &a [x]\n" + "b: [*a, *a]\n" * 1000):
        with pytest.raises(UsageError):
            parse(text, "f")
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: \xe9", "byte 0xe9 at offset 3 is not UTF-8; a config is UTF-8 text"),
        (b"x" * 1_000_001, "has 1,000,001 bytes; a config has at most 1,000,000"),
    ],
)
def test_files_that_are_no_config_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        read_text(path)


def test_a_byte_order_mark_and_windows_line_ends_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(b"\xef\xbb\xbfmodel:\r\n  d_model: 64\r\n")
    assert parse(read_text(path), "f").content == {"model": {"d_model": "64"}}
