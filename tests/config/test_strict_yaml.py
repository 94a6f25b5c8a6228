from pathlib import Path

import pytest

from gpt_cli.config.strict_yaml import parse, read_config_text
from gpt_cli.errors import UsageError


def refused(text: str, name: str = "f") -> UsageError:
    with pytest.raises(UsageError) as raised:
        parse(text, name)
    return raised.value


def test_scalars_stay_text_and_null_is_none() -> None:
    for scalar in ("010", "12:30", "yes", "2024-13-45", "1_000"):
        assert parse(f"a: {scalar}", "f").content == {"a": scalar}
    content = parse("a: ~\nb: 'null'\nc: [1, null]\nd:", "f").content
    assert content == {"a": None, "b": "null", "c": ["1", None], "d": None}


def test_lines_of_keys_are_remembered() -> None:
    assert parse("# c\nmodel:\n\n  d_model: 3", "f").lines == {("model",): 2, ("model", "d_model"): 4}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a: !!python/object/apply:os.system ['true']",
            'f:1: tags such as "tag:yaml.org,2002:python/object/apply:os.system" are not allowed',
        ),
        ("a: !x 1", 'f:1: tags such as "!x" are not allowed'),
        ("a: &x 1\nb: *x", "f:1: anchors such as &x are not allowed; write the value out"),
        ("a:\n  b: *x", "f:2: aliases such as *x are not allowed; write the value out"),
        ("<<: {a: 1}", "f:1: merge keys (<<) are not allowed; write the values out"),
        ("a: 1\nb: 2\na: 3", 'f:3: "a" is already set on line 1'),
        ("? [a]\n: b", "f:1: a key must be plain text"),
        ("- a", "f:1: a config consists of sections such as `model:`, with settings below them"),
        ("'null'", "f:1: a config consists of sections such as `model:`, with settings below them"),
        ("a: {b: {c: {d: {}}}}", "f:1: this is nested too deeply; a config has at most 4 levels"),
        ("a: b: c", "f:1: this is not YAML: mapping values are not allowed here"),
        ("a: [1", "f:1: this is not YAML: expected ',' or ']', but got '<stream end>'"),
        ("a:\n\tb: 1", "f:2: this is not YAML: found character '\\t' that cannot start any token"),
        ("a: \x00", "f: YAML does not allow the character U+0000 at position 3"),
        ('a: "\\UFFFFFFFF"', 'f: this is not YAML: "Python int too large to convert to C int"'),
        ("a: 1\n---\nb: 2", "f:2: a second document starts here, but a config is one document"),
    ],
)
def test_an_error_names_the_line_of_what_is_not_allowed(text: str, message: str) -> None:
    assert refused(text).lines() == [f"error: {message}"]


def test_a_setting_of_a_command_line_has_no_lines() -> None:
    message = "this is not YAML: expected ',' or ']', but got '<stream end>'"
    assert refused("value: [a", "‹settings›").lines() == [f"error: --set: {message}"]


@pytest.mark.parametrize("text", ["data:\n  source: [" + "a, " * 210 + "a]\n", "model:\n" + "  d_model: 4\n" * 110])
def test_a_config_of_many_parts_is_refused_before_it_is_read(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpt_cli.config.strict_yaml.CONFIG_NODES", 200)
    assert "a config has at most 200 keys and values" in str(refused(text))


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(b"a: \xe9")
    with pytest.raises(UsageError, match="a config must be UTF-8 text, but byte 0xe9 at offset 3 is not"):
        read_config_text(path)


def test_a_byte_order_mark_and_windows_line_ends_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(b"\xef\xbb\xbfmodel:\r\n  d_model: 64\r\n")
    assert parse(read_config_text(path), "f").content == {"model": {"d_model": "64"}}


@pytest.mark.parametrize(
    ("text", "where", "sentence"),
    [
        ("model:\n\u3000\u3000d_model: 32\n", "f:2", "the indentation has full-width spaces; type half-width ones"),
        ("model:\n  num_heads: 4\n \u3000d_model: 32\n", "f:3", "the indentation has full-width spaces"),
        ("model:\n  d_model:32\n", "f:2", '"d_model:32" has no space after its colon; type "d_model: 32"'),
    ],
)
def test_slips_of_spaces_are_named_with_their_line(text: str, where: str, sentence: str) -> None:
    error = refused(text)
    assert error.where == where
    assert error.sentence.startswith(sentence)


def test_colons_and_full_width_spaces_in_values_are_fine() -> None:
    text = "data:\n  source: C:\\a.txt\n  separator: '\u3000a:b'\ntrain:\n  max_time: 1:30\n"
    assert parse(text, "f").content["data"] == {"source": "C:\\a.txt", "separator": "\u3000a:b"}
