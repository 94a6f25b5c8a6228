import json
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.forms import FORMS, kept_bytes, main, with_form
from gpt_cli.config import ModelConfig
from gpt_cli.model import GPT
from gpt_cli.model.costs import estimate


def count(config: ModelConfig) -> int:
    return sum(parameter.numel() for parameter in GPT(config, 50).parameters())


def test_the_feed_forward_part_takes_what_a_form_saves() -> None:
    sizes = ModelConfig(d_model=32, num_heads=4, num_blocks=2, bias=False, norm="rmsnorm", positions="rope")
    # two of Wk and Wv of 32 x 32 become 8 x 32: 1,536 fewer in a block, and a unit of width is 2 x 32
    assert with_form(sizes, "grouped_query").feed_forward_size == 128 + 1536 // 64
    # W_DKV 8 x 32, W_KR 4 x 32, W_UK and W_UV 32 x 8, W_QR 16 x 32 in place of two of 32 x 32: 640 fewer
    assert with_form(sizes, "latent").feed_forward_size == 128 + 640 // 64
    assert with_form(sizes, "multi_head") == sizes.changed(feed_forward_size=128)
    for form in FORMS:
        assert count(with_form(sizes, form)) == count(sizes)
        odd = with_form(ModelConfig(d_model=24, num_heads=4, num_blocks=2), form)
        assert abs(count(odd) - count(ModelConfig(d_model=24, num_heads=4, num_blocks=2))) <= 2 * 24 + 1


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_the_estimate_of_memory_is_near_what_is_kept(form: str, dropout: float) -> None:
    sizes = ModelConfig(d_model=64, num_heads=4, num_blocks=3, dropout=dropout, positions="rope", attention=form)  # type: ignore[arg-type]
    found = kept_bytes(GPT(sizes, 300), 4, "float32")
    expected = estimate(sizes, 300, micro_batch_size=4, dtype="float32")
    assert 0.95 * found < expected.training_bytes - 16 * expected.parameters < 1.6 * found


def test_what_is_kept_can_be_counted_by_hand() -> None:
    """Of a linear layer and a square: the input, and the output that is squared; weights are not counted."""
    layer = torch.nn.Linear(3, 5)

    class Squared(torch.nn.Module):
        config = ModelConfig(context_length=2, dropout=0.0)
        token_embedding = torch.nn.Embedding(4, 3)

        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, ids: torch.Tensor, masks: object) -> torch.Tensor:
            return self.layer(self.token_embedding(ids)).square()

    found = kept_bytes(Squared(), 7, "float32")  # type: ignore[arg-type]
    tokens = 7 * 2
    # the ids, of which one more stands before the targets, and the targets by themselves; in float32 the embeddings, the
    # layer's output, and of the loss the logarithms of the probabilities and their total weight
    assert found == 8 * (7 * 3 + tokens) + 4 * (tokens * 3 + tokens * 5 + tokens * 5 + 1)


@pytest.mark.long
def test_the_figures_have_the_cache_of_every_form(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "--config smoke --rounds 1 --tokens 3 --set train.max_steps=2 --set model.positions=rope --json"
    monkeypatch.setattr(sys, "argv", ["forms", *words.split()])
    main()
    *_, found = capsys.readouterr().out.splitlines()
    # two blocks of width 32 in float32, two heads of which one is shared, a latent of 8 beside 8 that turn
    caches = [model["cache_bytes_per_token"] for model in json.loads(found)["models"]]
    assert caches == [2 * 64 * 4, 2 * 32 * 4, 2 * (8 + 8) * 4]
    assert list(here.iterdir()) == []
