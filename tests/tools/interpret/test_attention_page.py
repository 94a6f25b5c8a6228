"""The page as bytes: how large it is, how exact. What it does in a browser: tests/tools/pages/attention."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.pages import content_of, dump_of, random_weights, restored, scores_of, unpacked, writes_of

from gpt_cli.attention_maps.file_formats import num_written, written_bytes
from gpt_cli.attention_maps.head_metrics import COLUMNS, ROLES
from gpt_cli.attention_maps.logit_attribution import Writes
from gpt_cli.attention_maps.patterns import Prediction
from gpt_cli.tools.interpret.attention_page import attention_page, quantise


@pytest.mark.parametrize(("levels", "largest_error"), [(255, 1 / 255), (65535, 1 / 65535)])
def test_a_weight_is_held_as_finely_as_the_docstring_says(levels: int, largest_error: float) -> None:
    weights = np.concatenate([np.linspace(0, 1, 100_001), np.logspace(-9, 0, 100_001)])
    errors = np.abs((quantise(weights, levels) / levels) ** 2 - weights)
    assert (errors <= np.sqrt(weights) / levels + 1 / (4 * levels**2) + 1e-15).all()
    assert largest_error / 2 < errors.max() <= largest_error
    # of a hundredth a tenth of that: long texts have many small weights
    assert errors[weights <= 0.01].max() <= largest_error * 0.11
    assert (errors[weights == 0] == 0).all()
    assert (errors[weights == 1] == 0).all()


@pytest.mark.parametrize(("shape", "levels"), [((2, 3, 20), 65535), ((12, 8, 128), 255)])
def test_the_page_holds_every_weight_of_every_head(shape: tuple[int, int, int], levels: int) -> None:
    weights = random_weights(*shape)
    page = attention_page(dump_of(["x"] * shape[2], weights))
    assert content_of(page)["levels"] == levels
    expected = weights[:, :, *np.tril_indices(shape[2])]
    allowed = np.sqrt(expected) / levels + 1 / (4 * levels**2) + 1e-9
    assert (np.abs(restored(page) - expected) <= allowed).all()


def test_the_same_dump_gives_the_same_page() -> None:
    dump = dump_of(["a", "b"], random_weights(1, 1, 2), (Prediction(0.25, 3),))
    assert attention_page(dump) == attention_page(dump)
    assert content_of(attention_page(dump))["generated"] == [{"probability": 0.25, "rank": 3}]


def test_the_page_holds_every_score_and_from_which_one_on_a_label_applies() -> None:
    scores = scores_of(2, 3)
    content = content_of(attention_page(replace(dump_of(["x"] * 4, random_weights(2, 3, 4)), scores=scores)))["scores"]
    assert content["columns"] == list(COLUMNS)
    numbers = unpacked(content["numbers"], "<f4").reshape(1, 2, 3, len(COLUMNS))
    for place, column in enumerate(COLUMNS):
        np.testing.assert_allclose(numbers[0, ..., place], scores.columns[column], rtol=1e-7)
    assert content["roles"] == [[column, least] for column, _, least in ROLES]


def test_the_page_holds_what_heads_write() -> None:
    writes, texts = writes_of(2, 3, 4, 50), {token: f"token {token}" for token in range(50)}
    dump = replace(dump_of(["x"] * 4, random_weights(2, 3, 4)), writes=writes, texts=texts)
    content = content_of(attention_page(dump))["writes"]
    found = np.array(content["texts"])[unpacked(content["tokens"], "<u4")].reshape(2, 2, 3, 4, 3)
    logits = (unpacked(content["logits"], "<i2") * content["unit"]).reshape(found.shape)
    for half, (ids, by) in enumerate([(writes.raised, writes.raised_by), (writes.lowered, writes.lowered_by)]):
        assert found[half].tolist() == np.vectorize(texts.get)(ids).tolist()
        assert np.abs(logits[half] - by).max() <= np.abs(writes.lowered_by).max() / 65000


def test_heads_that_write_nothing_have_logits_of_zero() -> None:
    ids, zeros = np.zeros((1, 1, 2, 1), int), np.zeros((1, 1, 2, 1), np.float32)
    dump = replace(dump_of(["x"] * 2, random_weights(1, 1, 2)), writes=Writes(ids, zeros, ids, zeros), texts={0: "a"})
    assert unpacked(content_of(attention_page(dump))["writes"]["logits"], "<i2").tolist() == [0] * 4


def test_all_heads_of_the_default_model_fit_in_a_megabyte_and_what_they_write_in_one_and_a_half() -> None:
    dump = dump_of(["expression"] * 128, random_weights(12, 8, 128))
    writes = writes_of(12, 8, 128, 8192, num_written(96, 128))
    texts = {token: f"token {token}" for token in range(8192)}
    size = len(attention_page(dump))
    more = len(attention_page(replace(dump, writes=writes, texts=texts))) - size
    assert size < 1_000_000
    assert 0 < more < min(1_500_000, 96 * written_bytes(96, 128)[1])
    assert num_written(96, 128) == 5
