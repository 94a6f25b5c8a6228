"""Decoding with a cache gives the logits of decoding without one."""

import pytest
import torch
from support.helpers import sharp_model
from torch import Tensor

from gpt_cli.model import GPT
from gpt_cli.model.attention import attend, attention_weights
from gpt_cli.sampling import kv_cache
from gpt_cli.sampling.decoder import Decoder

V = 11
C = 8
PROMPTS = [[1, 2, 3, 4, 5, 6, 7, 8], [3], [4, 5, 6], [9, 9, 1, 0, 2]]


LLAMA = ["model.positions=rope", "model.attention=grouped_query", "model.norm=rmsnorm", "model.activation=swiglu"]
SLOWED = ["model.rope_scaling=8", "model.rope_original_length=64", "model.rope_base=500"]
FAMILIES = [
    ["model.positions=learned", "model.scale=none", "model.attention_window=[null,3]"],  # GPT-Neo
    ["model.positions=rope", "model.rotary_size=2", "model.parallel_branches=true", "model.qkv_bias=true"],  # GPT-NeoX
    [*LLAMA, *SLOWED, "model.norm_epsilon=0.01"],  # Llama 3
    [*LLAMA, "model.attention_window=3", "model.num_heads=4", "model.num_key_value_heads=2"],  # Mistral
    [*LLAMA, "model.qk_norm=true", "model.head_size=12"],  # Qwen3
]


def make_model(*settings: str) -> GPT:
    return sharp_model(V, f"model.context_length={C}", "model.dropout=0.5", *settings)


def continuation(row: int, number: int) -> int:
    """A token that differs by row and step."""
    return (7 * row + 5 * number + number * number) % V


def cropped_logits(model: GPT, tokens: list[int], prompt_length: int) -> Tensor:
    """Without a cache, after each token from the end of the prompt on [steps, V].

    A window that grows beyond C starts again with its last C // 2 tokens.
    """
    found, start, end = [], 0, prompt_length
    while end <= len(tokens):
        if end - start > C:
            start = end - C // 2
        window = tokens[start : start + C]
        found.append(model(torch.tensor([window]))[0, end - start - 1 :])
        end = start + len(window) + 1
    return torch.cat(found)


def banded_logits(model: GPT, tokens: list[int], prompt_length: int) -> Tensor:
    """The same with all tokens at once, each head by itself, where each token sees C, or those of its window."""
    T = len(tokens)
    rotation = model.rotary.at(torch.arange(T)).double() if model.rotary else None
    distance = torch.arange(T)[:, None] - torch.arange(T)
    ids = torch.tensor([tokens])
    x = model.token_embedding(ids)
    if model.ngram_embedding is not None:
        x = model.ngram_embedding(x, ids)
    for block in model.blocks:
        seen = block.attention_input(x)
        mask = (distance < 0) | (distance >= min(C, block.attention.window or C))
        heads = []
        for number in range(model.config.num_heads):
            stages = block.attention.head_stages(number, seen, rotation)
            scale = 1.0 if model.config.scale == "none" else model.config.query_size**-0.5
            heads.append(attention_weights(stages.scores, mask, scale) @ stages.values)
        x = block.after_attention(x, block.attention.projection_layer(torch.cat(heads, dim=-1)))
    return model.logits(x)[0, prompt_length - 1 :]


@pytest.mark.parametrize(
    "settings",
    [
        ["model.positions=none", "model.qk_norm=true", "model.attention_window=7", "model.tie_embeddings=true"],
        ["model.positions=learned", "model.attention=latent", "model.query_latent_size=6", "model.scale=none"],
        ["model.positions=learned", "model.ngram_embedding=3", "model.activation=gelu_tanh"],
        ["model.positions=rope", "model.ngram_embedding=4", "model.ngram_rows=50", "model.activation=relu2"],
        *FAMILIES,
        ["model.positions=rope", "model.attention=latent", "model.attention_window=[2,null]", "model.head_size=6"],
        ["model.positions=sinusoidal", "model.norm_position=post", "model.activation=geglu", "model.head_size=5"],
    ],
    ids=lambda settings: ",".join(setting.removeprefix("model.") for setting in settings),
)
@torch.no_grad()
def test_logits_agree_with_and_without_a_cache_up_to_three_windows(settings: list[str]) -> None:
    model = make_model(*settings)
    reference = cropped_logits if model.position_embedding else banded_logits
    decoder = Decoder(model, torch.float64)
    added = [[continuation(row, number) for row in range(len(PROMPTS))] for number in range(3 * C)]
    found = torch.stack([decoder.prefill(PROMPTS), *map(decoder.decode, added)], dim=1)
    for prompt, rest, logits in zip(PROMPTS, zip(*added, strict=True), found, strict=True):
        torch.testing.assert_close(logits, reference(model, [*prompt, *rest], len(prompt)), rtol=0, atol=1e-10)


@pytest.mark.parametrize("settings", FAMILIES)
@torch.no_grad()
def test_parts_of_a_prompt_give_what_the_whole_gives(settings: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A part has as many queries as have SCORES_AT_ONCE scores, here 100 / (2 or 4 heads * 20 tokens)."""
    model = make_model("model.context_length=20", *settings)
    prompts = [[continuation(row, number) for number in range(length)] for row, length in enumerate((20, 3, 11))]
    found, parts = [], []
    for most in (kv_cache.SCORES_AT_ONCE, 100):
        monkeypatch.setattr(kv_cache, "SCORES_AT_ONCE", most)
        monkeypatch.setattr(kv_cache, "attend", lambda *given: (parts.append(given[0].shape), attend(*given))[1])
        decoder = Decoder(model, torch.float64)
        found.append(torch.stack([decoder.prefill(prompts), decoder.decode([1, 2, 3])]))
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=1e-12)
    assert len(parts) > 4 * len(model.blocks)
    for row, prompt in enumerate(prompts):
        torch.testing.assert_close(found[1][0, row], model.next_logits(torch.tensor([prompt]))[0], rtol=0, atol=1e-10)


@torch.no_grad()
def test_a_cache_has_room_for_the_tokens_to_come() -> None:
    """Three of them after one, and then twenty, more than two windows; each sees the same as with the largest cache."""
    model = make_model(*FAMILIES[4])
    whole, small, sizes = Decoder(model, torch.float64), Decoder(model, torch.float64), []
    for num_tokens in (3, 2 * C + 4):
        prompts = [[1], [2]]
        assert torch.equal(small.prefill(prompts, num_tokens), whole.prefill(prompts))
        for number in range(num_tokens):
            chosen = [continuation(row, number) for row in range(2)]
            torch.testing.assert_close(small.decode(chosen), whole.decode(chosen), rtol=0, atol=1e-12)
        sizes.append(small.layers[0].cache.slots.shape[-2])
    assert sizes == [4, 2 * C]


@torch.no_grad()
def test_bfloat16_is_near() -> None:
    model = make_model().float()
    full, half = Decoder(model, torch.float32), Decoder(model, torch.bfloat16)
    wanted, got = full.prefill(PROMPTS), half.prefill(PROMPTS)
    assert got.dtype == torch.float32
    assert (got - wanted).abs().max() < 0.05 * wanted.abs().max()
    assert half.layers[0].cache.slots.dtype == torch.float32


def test_the_model_and_its_decoder_do_not_touch_each_other() -> None:
    """It owns copies, and adds nothing to the model."""
    model = make_model()
    names = set(model.state_dict())
    decoder = Decoder(model.train(), torch.float64)
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())
    before = decoder.prefill([[1]])
    assert torch.equal(decoder.prefill([[1]]), before), "no dropout, although the model is training"
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert torch.equal(decoder.prefill([[1]]), before)
    assert set(model.state_dict()) == names
