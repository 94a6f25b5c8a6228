"""Computations on a GPU stay there: most operations refuse a tensor that a mistake left on the CPU.

These tests need no GPU. torch's meta device takes its place: it computes shapes only, and has no numbers to read.
"""

from __future__ import annotations

import pytest
import torch
from support.helpers import small_config

from gpt_cli.model import GPT
from gpt_cli.sampling.decoder import Decoder

VARIANTS = {
    "default": (),
    "rope": ("model.positions=rope", "model.activation=relu2", "model.bias=false", "model.norm=rmsnorm"),
    "sinusoidal": ("model.positions=sinusoidal", "model.norm_position=post", "model.tie_embeddings=true"),
    "no positions": ("model.positions=none", "model.ngram_embedding=3", "model.scale=none"),
    "grouped_query": ("model.attention=grouped_query", "model.positions=rope"),
    "latent": ("model.attention=latent", "model.positions=rope", "model.query_latent_size=4"),
}


def test_the_meta_device_refuses_a_tensor_of_the_cpu() -> None:
    with pytest.raises(RuntimeError, match="device"):
        _ = torch.ones(3, device="meta") + torch.ones(3)


@pytest.fixture(params=list(VARIANTS.values()), ids=list(VARIANTS))
def model(request: pytest.FixtureRequest) -> GPT:
    settings = small_config("model.dropout=0", "model.context_length=8", *request.param).model
    return GPT(settings, 257, torch.Generator().manual_seed(0)).to("meta").eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_decoding_stays_on_its_device_past_the_window_with_rows_of_different_length(
    model: GPT, dtype: torch.dtype
) -> None:
    decoder = Decoder(model, dtype)
    assert decoder.prefill([[1, 2, 3], [4]]).is_meta
    for token in range(20):
        assert decoder.decode([token, token]).shape == (2, 257)


def test_every_stage_of_attention_stays_on_its_device(model: GPT) -> None:
    ids = torch.zeros(2, 8, dtype=torch.int64, device="meta")
    for stages in model.attention_stages(ids):
        assert all(stage.is_meta for stage in stages)
    for fused in (True, False):
        assert model.use_fused(fused)(ids).shape == (2, 8, 257)
