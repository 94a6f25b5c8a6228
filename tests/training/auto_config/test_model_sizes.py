"""The sizes that a choice takes from."""

from __future__ import annotations

from gpt_cli.training.auto_config.model_sizes import REFERENCE, SIZES


def test_sizes_grow_and_contain_the_reference() -> None:
    assert list(SIZES) == sorted(SIZES)
    assert (REFERENCE.d_model, REFERENCE.num_blocks) in SIZES
