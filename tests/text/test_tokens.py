from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpt_cli.errors import DataError, EnvironmentFailure
from gpt_cli.text import tokens as module
from gpt_cli.text.tokenizer import ByteTokenizer, CharTokenizer
from gpt_cli.text.tokens import check_length, encode_documents, validation_windows


def test_documents_are_joined_by_end_of_text() -> None:
    assert encode_documents(["ab", "c"], ByteTokenizer()).tolist() == [97, 98, 256, 99]
    assert encode_documents([], ByteTokenizer()).tolist() == []


def test_an_error_about_too_little_text_has_both_numbers() -> None:
    check_length(np.arange(9), np.arange(2), 8)
    with pytest.raises(DataError, match="8 tokens, but context_length 8 needs at least 9"):
        check_length(np.arange(8), np.arange(2), 8)
    with pytest.raises(DataError, match="validation part has 1 token, but an evaluation needs at least 2"):
        check_length(np.arange(9), np.arange(1), 8)


def test_validation_predicts_each_token_but_the_first_once() -> None:
    windows = validation_windows(25, 8)
    assert windows == [(0, 8), (8, 16), (16, 24)]
    assert validation_windows(22, 8)[-1] == (16, 21)
    assert sum(end - start for start, end in validation_windows(22, 8)) == 21


def test_fewer_validation_tokens_are_evenly_spaced() -> None:
    assert validation_windows(81, 8, eval_tokens=24) == [(0, 8), (24, 32), (48, 56)]
    assert validation_windows(81, 8, eval_tokens=1) == [(0, 8)]
    assert validation_windows(81, 8, eval_tokens=80) == validation_windows(81, 8)


def test_large_texts_are_cached_by_content_and_a_damaged_cache_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(module, "CACHE_FROM", 3)
    characters = CharTokenizer("abc")
    counted: list[int] = []
    first = encode_documents(["abc"], characters, counted.append)
    assert encode_documents(["abc"], characters, counted.append).tolist() == first.tolist() == [0, 1, 2]
    assert counted == [3]  # the second time nothing was encoded
    assert encode_documents(["acb"], characters).tolist() == [0, 2, 1]
    assert encode_documents(["abc"], CharTokenizer("cba")).tolist() == [2, 1, 0]
    for path in (tmp_path / "gpt-cli" / "tokens").iterdir():
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    assert encode_documents(["abc"], characters, counted.append).tolist() == [0, 1, 2]
    assert counted == [3, 3]


def test_a_user_without_a_home_directory_encodes_without_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: str) -> Path:
        raise EnvironmentFailure("cache", "this user has no home directory")

    monkeypatch.setattr(module, "CACHE_FROM", 3)
    monkeypatch.setattr(module, "cache_directory", refuse)
    assert encode_documents(["abc"], CharTokenizer("abc")).tolist() == [0, 1, 2]
