from __future__ import annotations

import numpy as np
import pytest
import torch

from gpt_cli.cli.attn_dump import STAGES
from gpt_cli.config import ModelConfig
from gpt_cli.errors import UsageError
from gpt_cli.inspecting.dump import dump_attention, parse_selection
from gpt_cli.model import GPT
from gpt_cli.model.attention import Stages
from gpt_cli.text.tokenizer import ByteTokenizer

SIZES = ModelConfig(context_length=16, d_model=24, num_heads=3, num_blocks=4)
MODEL = GPT(SIZES, 257, torch.Generator().manual_seed(0)).eval()
IDS = list("今ab".encode())


def test_a_dump_holds_the_models_weights_and_the_tokens() -> None:
    dump = dump_attention(MODEL, ByteTokenizer(), IDS, layers=(1, 3), heads=(0, 2))
    expected = MODEL.attention_weights(torch.tensor([IDS]), [1, 3], [0, 2])[:, 0]
    np.testing.assert_array_equal(dump.weights, expected.numpy())
    assert dump.tokens == ("<0xE4>", "<0xBB>", "<0x8A>", "a", "b")
    assert (dump.layers, dump.heads, dump.token_ids) == ((1, 3), (0, 2), tuple(IDS))


def test_every_stage_has_its_shape_and_follows_from_the_ones_before() -> None:
    stages = dump_attention(MODEL, ByteTokenizer(), IDS, layers=(0, 1, 2), heads=(1,), stages=STAGES).stages
    for name in ("queries", "keys", "values", "heads"):
        assert stages[name].shape == (3, 1, 5, 8)
    np.testing.assert_allclose(stages["scores"], stages["queries"] @ stages["keys"].swapaxes(-1, -2), atol=1e-6)
    np.testing.assert_allclose(stages["heads"], stages["weights"] @ stages["values"], atol=1e-6)


def test_the_flag_knows_every_stage() -> None:
    assert set(STAGES) == set(Stages._fields)


def test_float16_is_close_enough_to_look_at() -> None:
    dump = dump_attention(MODEL, ByteTokenizer(), IDS, layers=(0,), heads=(0,), file_dtype="float16")
    exact = dump_attention(MODEL, ByteTokenizer(), IDS, layers=(0,), heads=(0,))
    assert dump.weights.dtype == np.float16
    assert np.abs(dump.weights.astype(float) - exact.weights).max() < 2**-11


@pytest.mark.parametrize(
    ("text", "chosen"),
    [(None, (0, 1, 2, 3)), ("0", (0,)), ("3,0-1", (0, 1, 3)), ("1-1, 2", (1, 2)), ("0,0", (0,))],
)
def test_selections_are_numbers_and_ranges(text: str | None, chosen: tuple[int, ...]) -> None:
    assert parse_selection(text, 4, "--layers") == chosen


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("4", '--layers: "4" is out of range; this model has 0 to 3'),
        ("2-1", '--layers: "2-1" is out of range; this model has 0 to 3'),
        ("", '--layers: "" is not a number or a range; write for example 0,3-5'),
        ("1-", '--layers: "1-" is not a number or a range; write for example 0,3-5'),
        ("-1", '--layers: "-1" is not a number or a range; write for example 0,3-5'),
        ("²", '--layers: "²" is not a number or a range; write for example 0,3-5'),
    ],
)
def test_wrong_selections_are_told_as_typed(text: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_selection(text, 4, "--layers")
    assert raised.value.lines() == [f"error: {message}"]
