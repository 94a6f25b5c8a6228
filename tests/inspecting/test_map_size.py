from __future__ import annotations

import pytest

from gpt_cli.inspecting.map_size import num_dots, tokens_per_dot


@pytest.mark.parametrize(
    ("num_tokens", "num_layers", "num_heads", "each"),
    [
        (128, 12, 8, 1),
        (415, 12, 12, 1),  # 1.5 inches of 300 dots, of which the gap takes one in 13
        (416, 12, 12, 2),
        (1024, 12, 12, 3),
        (886, 4, 4, 1),  # 3.2 inches
        (2400, 1, 1, 1),  # 8 inches
        (4096, 2, 2, 5),
        (4096, 1024, 64, 76),  # a row of maps for each layer: 54 dots each, or the picture is too high
    ],
)
def test_long_texts_and_large_grids_share_dots(num_tokens: int, num_layers: int, num_heads: int, each: int) -> None:
    assert tokens_per_dot(num_tokens, num_layers, num_heads) == each
    assert num_dots(num_tokens, num_layers, num_heads) >= (-(-num_tokens // each)) ** 2
