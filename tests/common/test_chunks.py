import json

import numpy as np
import pytest

from gpt_cli.common.chunks import gathered, json_pieces

CONTENT = {
    "tokens": ("今", '"', "\x00"),
    "none": [],
    "one": 1.5,
    "below": {"a": None, "b": {}},
    "array": np.array([[[0.1, 2], [3, 4]], [[5, 6], [7, 1e-30]]]),
    "numbers": np.array([1, 2]),
    "empty": np.empty((0, 3)),
    "scores": [np.array([1.0, -np.inf])],
}


def test_pieces_are_the_json_of_lists() -> None:
    lists = CONTENT | {"array": CONTENT["array"].tolist(), "numbers": [1, 2], "empty": [], "scores": [[1.0, None]]}
    rows: list[int] = []
    assert "".join(json_pieces(CONTENT, rows.append)) == json.dumps(lists, ensure_ascii=False)
    assert sum(rows) == 4 + 1


def test_a_piece_is_a_row() -> None:
    pieces = list(json_pieces(np.ones((50, 100))))
    assert max(map(len, pieces)) == len(json.dumps([1.0] * 100))


def test_no_nan_becomes_json() -> None:
    for wrong in (np.nan, np.inf):
        with pytest.raises(ValueError, match="not JSON compliant"):
            list(json_pieces({"a": np.array([1, wrong])}))


def test_small_pieces_are_gathered() -> None:
    found = list(gathered("ab" for _ in range(100_000)))
    assert "".join(found) == "ab" * 100_000
    assert [len(piece) for piece in found] == [65_536, 65_536, 65_536, 200_000 - 3 * 65_536]
