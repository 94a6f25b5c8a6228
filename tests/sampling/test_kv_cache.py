import pytest
import torch
from support.helpers import sharp_model

from gpt_cli.model import GPT
from gpt_cli.sampling.decoder import Decoder, cache_bytes, row_bytes
from gpt_cli.sampling.kv_cache import QUERIES_AT_ONCE, LatentCache

V, C = 11, 8
FORMS = [
    ["model.attention=multi_head"],
    ["model.attention=grouped_query"],
    ["model.attention=latent", "model.positions=rope"],
    ["model.attention=latent", "model.query_latent_size=6"],
]


def make_model(*settings: str) -> GPT:
    return sharp_model(V, f"model.context_length={C}", "model.num_heads=4", *settings)


def test_a_latent_cache_keeps_only_the_latent_and_the_rotary_key() -> None:
    """A quarter of d_model 16, and half of a head of four, which all heads share."""
    decoder = Decoder(make_model(*FORMS[2]), torch.float64)
    decoder.prefill([[3, 1, 4]])
    assert [layer.cache.slots.shape for layer in decoder.layers] == [(1, 2 * C, 4 + 2)] * 2


def test_a_cache_takes_what_its_tokens_and_windows_need() -> None:
    """Not what the context allows: imported models have contexts of a hundred thousand tokens."""
    settings = "model.positions=none", "model.context_length=65536", "model.attention_window=[null,16]"
    decoder = Decoder(sharp_model(V, *settings), torch.float64)
    for length, slots in ((3, [259, 32]), (1500, [1756, 32])):
        decoder.prefill([[1] * length])
        assert [layer.cache.slots.shape[-2] for layer in decoder.layers] == slots
    assert cache_bytes(decoder.config, 100, decoder.plain_dtype.itemsize) == 2 * 16 * 8 * (100 + 32)
    kept, of_prompt = 4 * 32 * (20_010 + 32), 4 * 20_000 * (8 * 16 + 2 * 64)
    scores = 2 * 4 * 2 * 20_000 * QUERIES_AT_ONCE
    assert row_bytes(decoder.config, V, 20_000, 20_010) == kept + of_prompt + scores + 72 * V


@pytest.mark.parametrize("settings", FORMS, ids=str)
@torch.inference_mode()
def test_weights_on_padding_are_exactly_zero(settings: list[str]) -> None:
    """The slots before a shorter prompt may contain any number, however large: the logits are equal to the last bit."""
    model = make_model(*settings)
    found = []
    for number in (0.0, 1e6):
        decoder = Decoder(model, torch.float64)
        decoder.prefill([[1, 2, 3, 4, 5], [6, 7]])
        for layer in decoder.layers:
            row = layer.cache.slots[1] if isinstance(layer.cache, LatentCache) else layer.cache.slots[:, 1]
            row[..., :3, :] = number
        found.append(torch.stack([decoder.decode([8, 9]), decoder.decode([1, 2])]))
    assert torch.equal(*found)
    assert found[0].isfinite().all()
