"""Models compute on an accelerator what they compute on the CPU, and leave nothing behind there."""

import copy

import pytest
import torch
from support.accelerator import Accelerator, on_cpu
from support.helpers import small_config
from torch import Tensor

from gpt_cli.model import GPT, attention
from gpt_cli.sampling.decoder import Decoder

VARIANTS = {
    "default": (),
    "rope": ("model.positions=rope", "model.activation=relu2", "model.bias=false", "model.norm=rmsnorm"),
    "sinusoidal": ("model.positions=sinusoidal", "model.norm_position=post", "model.tie_embeddings=true"),
    "no positions": ("model.positions=none", "model.ngram_embedding=3", "model.scale=none"),
    "grouped_query": ("model.attention=grouped_query", "model.positions=rope"),
    "latent": ("model.attention=latent", "model.positions=rope", "model.query_latent_size=4"),
}


@pytest.fixture(params=list(VARIANTS.values()), ids=list(VARIANTS))
def model(request: pytest.FixtureRequest) -> GPT:
    settings = small_config("model.dropout=0", "model.context_length=8", *request.param).model
    return GPT(settings, 257, torch.Generator().manual_seed(0)).eval()


def test_decoding_past_the_window_has_the_bits_of_the_cpu_and_does_not_wait(
    accelerator: Accelerator, model: GPT
) -> None:
    """With rows of different length; reading the logits is left to the caller."""
    ours = copy.deepcopy(model).to("sim:1")
    for dtype in (torch.float32, torch.bfloat16):
        decoders = Decoder(model, dtype), Decoder(ours, dtype)
        accelerator.copies.syncs.clear()
        for step in range(8):
            expected, found = (d.decode([step, 2 * step]) if step else d.prefill([[1, 2, 3], [4]]) for d in decoders)
            assert found.device == torch.device("sim:1")
            assert torch.equal(on_cpu(found), expected), step
        assert accelerator.syncs == []


def test_every_stage_of_attention_has_the_bits_of_the_cpu(accelerator: Accelerator, model: GPT) -> None:
    ids = torch.arange(16).view(2, 8)
    for fused in (True, False):
        expected = [*_stages(model.use_fused(fused), ids), model(ids)]
        *stages, logits = [*_stages(model.to("sim"), ids.to("sim")), model(ids.to("sim"))]
        assert all(torch.equal(on_cpu(one), other) for one, other in zip(stages, expected, strict=False))
        torch.testing.assert_close(on_cpu(logits), expected[-1])  # devices have a kernel for attention of their own
        model.to("cpu")


def test_a_device_whose_kernel_is_not_used_has_the_bits_of_the_cpu(
    accelerator: Accelerator, model: GPT, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As mps, whose kernel lets queries see later tokens."""
    ids = torch.arange(16).view(2, 8)
    expected = model(ids)
    assert "mps" in attention.WITHOUT_KERNEL
    monkeypatch.setattr(attention, "WITHOUT_KERNEL", ("cpu", "sim"))
    assert torch.equal(on_cpu(model.to("sim")(ids.to("sim"))), expected)


def _stages(model: GPT, ids: Tensor) -> list[Tensor]:
    return [stage for stages in model.attention_stages(ids) for stage in stages]
