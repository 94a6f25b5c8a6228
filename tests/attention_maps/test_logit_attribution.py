"""Logits as sums over the parts of a model, and the tokens that a head raises and lowers."""

import numpy as np
import pytest
import torch
from support.attribution import attribute
from support.heads import FORMS
from support.helpers import sharp_model

from gpt_cli.attention_maps import logit_attribution
from gpt_cli.attention_maps.logit_attribution import head_writes
from gpt_cli.errors import CheckpointError

IDS = np.random.default_rng(1).integers(0, 31, 12).tolist()


@pytest.mark.parametrize("settings", FORMS)
def test_what_a_head_writes_is_its_part_of_the_logits_above_their_mean(settings: str) -> None:
    model = sharp_model(31, *settings.split())
    writes = head_writes(model, IDS, layers=range(2), heads=range(model.config.num_heads), top=3)
    assert writes.raised.shape == writes.lowered_by.shape == (2, model.config.num_heads, 12, 3)
    for query in (0, 7, 11):
        parts = attribute(model, IDS, query)
        torch.testing.assert_close(parts.logits.sum(0), model(torch.tensor([IDS]))[0, query], rtol=0, atol=1e-10)
        for layer in range(2):
            for head in range(model.config.num_heads):
                logits = parts.logits[parts.names.index(f"L{layer} H{head}")]
                above = (logits - logits.mean()).detach().numpy()
                order = np.argsort(-above)
                where = layer, head, query
                np.testing.assert_array_equal(writes.raised[where], order[:3])
                np.testing.assert_array_equal(writes.lowered[where], order[:-4:-1])
                np.testing.assert_allclose(writes.raised_by[where], above[order[:3]], rtol=0, atol=1e-10)
                np.testing.assert_allclose(writes.lowered_by[where], above[order[:-4:-1]], rtol=0, atol=1e-10)


def test_a_choice_of_heads_and_positions_is_a_part_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    model = sharp_model(31, "model.num_blocks=3", "model.norm_position=post")
    every = head_writes(model, IDS, layers=range(3), heads=range(2), top=2)
    monkeypatch.setattr(logit_attribution, "LOGITS_AT_ONCE", 2 * 31)  # two positions at a time
    some = head_writes(model, IDS, queries=[2, 3, 11], layers=[1, 2], heads=[1], top=2)
    np.testing.assert_array_equal(some.raised, every.raised[1:, 1:][:, :, [2, 3, 11]])
    np.testing.assert_allclose(some.lowered_by, every.lowered_by[1:, 1:][:, :, [2, 3, 11]], rtol=0, atol=1e-12)


def test_of_a_small_vocabulary_a_head_writes_all_tokens() -> None:
    writes = head_writes(sharp_model(3), [0, 2, 1], layers=range(2), heads=range(2), top=5)
    assert writes.raised.shape == (2, 2, 3, 3)
    np.testing.assert_array_equal(writes.raised, writes.lowered[..., ::-1])


def test_weights_that_overflow_are_refused() -> None:
    model = sharp_model(31)
    with torch.no_grad():
        model.token_embedding.weight.mul_(1e200)
        model.blocks[0].feed_forward.contract.weight.mul_(torch.inf)
    with pytest.raises(CheckpointError, match="not finite"):
        head_writes(model, IDS, layers=range(2), heads=range(2), top=5)
