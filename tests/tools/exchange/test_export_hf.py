from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from support.exchange import sharp_checkpoint
from support.faults import SCALE, some_of
from support.helpers import small_config

from gpt_cli.checkpoints.checkpoint import Checkpoint
from gpt_cli.errors import UsageError
from gpt_cli.model import GPT
from gpt_cli.model.positions import RotaryPositions
from gpt_cli.sampling.decoder import Decoder
from gpt_cli.sampling.generate import generate
from gpt_cli.sampling.next_token import SamplingParameters
from gpt_cli.tools.exchange.export_hf import fit
from gpt_cli.tools.exchange.export_model import write_for_transformers
from gpt_cli.tools.exchange.export_tensors import Part, Recipe

GPT2, STARCODER2, ARCEE = "GPT2LMHeadModel", "Starcoder2ForCausalLM", "ArceeForCausalLM"
NEO, NEOX, LLAMA = "GPTNeoForCausalLM", "GPTNeoXForCausalLM", "LlamaForCausalLM"
MISTRAL, QWEN2, QWEN3 = "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"
ROPE, RMS = "positions=rope", "norm=rmsnorm"
GROUPED, LATENT = "attention=grouped_query num_key_value_heads=2", "attention=latent latent_size=20"
SLOWED = "rope_scaling=8 rope_original_length=20"
# what each class must express, the settings of the model in words
CASES = [
    ("", GPT2),
    ("bias=false activation=relu tie_embeddings=true", GPT2),
    ("positions=sinusoidal activation=relu2 feed_forward_size=100", GPT2),
    ("positions=none activation=gelu_tanh qkv_bias=true", GPT2),
    ("scale=none", GPT2),
    (f"{GROUPED} qkv_bias=true", GPT2),
    (f"{LATENT} query_latent_size=30", GPT2),
    (f"{LATENT} scale=none positions=none bias=false", GPT2),
    (ROPE, STARCODER2),
    (f"{ROPE} {GROUPED} bias=false tie_embeddings=true activation=relu", STARCODER2),
    (f"{ROPE} bias=false qkv_bias=true scale=none activation=gelu_tanh", STARCODER2),
    (f"{ROPE} {RMS} activation=relu2", ARCEE),
    (f"{ROPE} {RMS} {GROUPED} bias=false tie_embeddings=true", ARCEE),
    (f"{ROPE} {RMS} bias=false qkv_bias=true feed_forward_size=100 activation=relu2", ARCEE),
    ("norm_epsilon=0.01", GPT2),
    ("attention_window=[null,5] scale=none", NEO),
    (f"attention_window=7 {GROUPED} bias=false activation=relu tie_embeddings=true", NEO),
    ("attention_window=[3,null,null] positions=sinusoidal norm_epsilon=0.001", NEO),
    (f"{ROPE} parallel_branches=true rotary_size=4 rope_base=500", NEOX),
    (f"{ROPE} rotary_size=10 bias=false qkv_bias=true activation=relu2 scale=none", NEOX),
    (f"{ROPE} parallel_branches=true bias=false tie_embeddings=true norm_epsilon=0.01", NEOX),
    (f"{ROPE} {GROUPED} norm_epsilon=0.001 attention_window=9 rope_base=300 head_size=8", STARCODER2),
    (f"{ROPE} {RMS} {SLOWED} head_size=14 activation=relu", ARCEE),
    (f"{ROPE} {RMS} activation=swiglu {SLOWED}", LLAMA),
    (f"{ROPE} {RMS} activation=geglu bias=false {GROUPED} tie_embeddings=true norm_epsilon=0.01", LLAMA),
    (f"{ROPE} {RMS} activation=swiglu bias=false attention_window=5", MISTRAL),
    (f"{ROPE} {RMS} activation=swiglu bias=false num_heads=5 head_size=6", MISTRAL),
    (f"{ROPE} {RMS} activation=swiglu bias=false qkv_bias=true {GROUPED}", QWEN2),
    (f"{ROPE} {RMS} activation=swiglu bias=false attention_window=[null,null,4]", QWEN2),
    (f"{ROPE} {RMS} activation=swiglu bias=false qk_norm=true head_size=20", QWEN3),
    (f"{ROPE} {RMS} activation=geglu bias=false qkv_bias=true qk_norm=true {GROUPED} scale=none", QWEN3),
]
# the whole table: all settings crossed
TABLE = [
    (" ".join(words), {ROPE: STARCODER2, f"{ROPE} {RMS}": ARCEE}.get(words[0], GPT2))
    for words in product(
        ["positions=learned", "positions=sinusoidal", "positions=none", ROPE, f"{ROPE} {RMS}"],
        ["activation=gelu", "activation=relu2"],
        ["bias=true", "bias=false"],
        ["tie_embeddings=true", "tie_embeddings=false"],
        ["", "scale=none", "qkv_bias=true", GROUPED, LATENT],
    )
    if not (ROPE in words[0] and words[-1] == LATENT)
]


def settings_of(words: str) -> list[str]:
    return [f"model.{word}" for word in words.split()]


@pytest.mark.parametrize(("words", "class_name"), CASES)
def test_a_stock_class_computes_what_our_model_computes(
    words: str, class_name: str, transformers: Any, tmp_path: Path
) -> None:
    stored = sharp_checkpoint(*settings_of(words))
    # scores that nothing divides are larger, and softmax more sensitive
    tolerance = 2e-5 if "scale=none" in words else 1e-5
    compare(stored, class_name, transformers, tmp_path / "hf", tolerance, 1e-10 if is_exact(words) else tolerance)


class OurAngles(torch.nn.Module):
    """Return our cosines and sines in the form of the rotary embedding of transformers."""

    def __init__(self, size: int):
        super().__init__()
        self.rotary = RotaryPositions(128, size)

    def forward(self, x: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        cosines, sines = self.rotary.at(position_ids)
        return cosines.to(x.dtype), sines.to(x.dtype)


@pytest.mark.parametrize("words", [ROPE, f"{ROPE} {RMS} activation=relu2"])
def test_with_rope_nothing_but_the_angles_is_rounded_otherwise(words: str, transformers: Any, tmp_path: Path) -> None:
    """Its angles are a hundred times less exact than ours; of a trained model, logits are then 3e-5 apart."""
    stored = sharp_checkpoint(*settings_of(words))
    write_for_transformers(tmp_path / "hf", stored)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf", dtype=torch.float32)
    theirs.set_attn_implementation("eager")
    model, ids = stored.config.model, torch.arange(100, 180)[None]
    angles = OurAngles(model.d_model // model.num_heads)
    places = torch.arange(80)[None]
    cosines, ours = theirs.model.rotary_emb(torch.zeros(1), places)[0], angles(torch.zeros(1), places)[0]
    assert 1e-6 < (cosines - ours).abs().max() < 1e-5
    theirs.model.rotary_emb = angles
    with torch.no_grad():
        close(theirs(ids).logits, stored.build_model()(ids), 3e-6)


@pytest.mark.long
@pytest.mark.skipif(SCALE < 1, reason="the whole table takes minutes")
@pytest.mark.parametrize(("words", "class_name"), some_of(TABLE))
def test_the_whole_table(words: str, class_name: str, transformers: Any, tmp_path: Path) -> None:
    test_a_stock_class_computes_what_our_model_computes(words, class_name, transformers, tmp_path)


@pytest.mark.filterwarnings("default")  # those of a library that is not ours
@pytest.mark.parametrize(
    "words",
    [
        "",
        f"{ROPE} {GROUPED}",
        f"{ROPE} {RMS}",
        f"{ROPE} {RMS} activation=swiglu bias=false {GROUPED}",
        f"{ROPE} parallel_branches=true rotary_size=4",
    ],
)
def test_transformer_lens_sees_the_same_attention(words: str, transformers: Any, tmp_path: Path) -> None:
    lens = pytest.importorskip("transformer_lens.model_bridge", reason="TransformerLens is not installed")
    stored = sharp_checkpoint(*settings_of(words))
    write_for_transformers(tmp_path / "hf", stored)
    ids = torch.arange(60, 100)[None]
    _, cache = lens.TransformerBridge.boot_transformers(str(tmp_path / "hf")).run_with_cache(ids)
    for layer, weights in enumerate(stored.build_model().attention_weights(ids)):
        close(cache[f"blocks.{layer}.attn.hook_pattern"], weights, 1e-5)


def is_exact(words: str) -> bool:
    """Whether nothing is rounded: rope's angles and GPT-Neo's scores are float32 there, products are rounded once."""
    return not any(word in words for word in (ROPE, "scale=none", "latent", "attention_window"))


def compare(
    stored: Checkpoint, class_name: str, transformers: Any, directory: Path, in_float32: float, in_float64: float
) -> None:
    """Load the export as a user does, and compare greedy tokens, logits and attention, these within tolerances."""
    found = write_for_transformers(directory, stored)
    load = transformers.AutoModelForCausalLM.from_pretrained
    theirs, loading = load(directory, output_loading_info=True, dtype=torch.float32)
    assert (type(theirs).__name__, found.class_name) == (class_name, class_name)
    assert not any(loading.values())
    assert sum(parameter.numel() for parameter in theirs.parameters()) == found.num_parameters
    ours = stored.build_model()
    ids = torch.randint(0, 256, (2, 80), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        assert ours(ids).abs().max() > 2  # a model that says something
        close(theirs(ids).logits, ours(ids), in_float32)
        assert greedy(theirs, ids[:1, :8]) == our_greedy(ours, ids[0, :8].tolist())
        theirs.set_attn_implementation("eager")
        seen = theirs(ids, output_attentions=True)
        close(seen.logits, ours(ids), in_float32)
        close(torch.stack(seen.attentions), ours.attention_weights(ids), in_float32)
        close(theirs.double()(ids).logits, ours.double()(ids), in_float64)


def close(found: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)


def greedy(model: Any, ids: torch.Tensor) -> list[int]:
    """64 tokens through the cache of the stock class."""
    model.generation_config.eos_token_id = None
    model.config.pad_token_id = None  # which untrained weights write too, and the library then warns
    mask = torch.ones_like(ids)
    return model.generate(ids, attention_mask=mask, max_new_tokens=64, do_sample=False)[0, ids.shape[1] :].tolist()


def our_greedy(model: GPT, ids: list[int]) -> list[int]:
    steps = generate(Decoder(model), [ids], SamplingParameters(temperature=0), max_new_tokens=64)
    return [draw.token for (draw,) in steps if draw]


def test_the_tensors_of_a_class_name_ours() -> None:
    found = fit(small_config("model.num_blocks=1", "model.scale=none").model, 257)  # 2 heads of 8
    heads = "blocks.0.attention.heads"
    assert found.tensors["transformer.h.0.attn.c_attn.weight"] == Recipe(
        (16, 48),
        (
            Part((f"{heads}.0.Wq.weight",), 8**0.5),
            Part((f"{heads}.1.Wq.weight",), 8**0.5),
            *(Part((f"{heads}.{j}.{name}.weight",)) for name in ("Wk", "Wv") for j in (0, 1)),
        ),
        transposed=True,
    )
    assert found.tensors["transformer.h.0.attn.c_attn.bias"] == Recipe((48,))  # zeros
    assert found.notes == [
        "scores are divided by √8 there, so Wq is written 2.828427 times as large",
        "this model has none of attn.c_attn.bias: they are zeros, which further training there may change",
    ]


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        ("norm_position=post", ["model.norm_position: transformers has no such post-norm model"]),
        (
            "ngram_embedding=2 norm_position=post norm=rmsnorm",
            ["model.norm_position: ", "model.ngram_embedding: ", "model.norm: "],
        ),
        (
            "activation=swiglu parallel_branches=true",
            ["model.activation: GPT2LMHeadModel, the", "model.parallel_branches"],
        ),
        ("qk_norm=true head_size=10", ["model.qk_norm: ", "model.head_size: "]),
        (
            "attention_window=[3,4] qkv_bias=true",
            ["model.qkv_bias: ", "model.attention_window: GPTNeoForCausalLM, the"],
        ),
        (
            f"{ROPE} rotary_size=4 {GROUPED} attention_window=3",
            ["model.attention: GPTNeoX", "model.attention_window: "],
        ),
        (
            f"{ROPE} activation=geglu attention_window=[null,3]",
            ["model.activation: Starco", "model.attention_window: "],
        ),
        (f"{ROPE} {RMS} activation=swiglu attention_window=3", ["model.attention_window: LlamaForCausalLM"]),
        (f"{ROPE} {RMS} activation=swiglu qk_norm=true", ["model.bias: Qwen3ForCausalLM"]),
        (
            f"{ROPE} {RMS} rotary_size=4 parallel_branches=true",
            ["model.parallel_branches: Arcee", "model.rotary_size: "],
        ),
        (f"{ROPE} {RMS} num_heads=3 head_size=6", ["model.head_size: ArceeForCausalLM"]),
        (f"{LATENT} {ROPE}", ["model.attention: no class of transformers has this form of latent attention with rope"]),
        ("norm=rmsnorm positions=none", ["model.norm: no class of transformers has rmsnorm with positions none"]),
    ],
)
def test_every_setting_in_the_way_is_named(words: str, lines: list[str]) -> None:
    with pytest.raises(UsageError) as raised:
        fit(small_config(*settings_of(words)).model, 257)
    *errors, hint = raised.value.lines()
    assert len(errors) == len(lines)
    for error, line in zip(errors, lines, strict=True):
        assert error.startswith(f"error: {line}")
        assert "export" in error  # with which value it would
    assert hint.startswith(
        "hint: --format safetensors --out model.safetensors exports it for use with gpt, --format html"
    )
