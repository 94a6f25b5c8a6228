from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from support.exchange import close, sharp_checkpoint
from support.exchange import greedy as written_by
from support.families import exact
from support.faults import some_of
from support.helpers import small_config

from gpt_cli.checkpoints.checkpoint import Checkpoint
from gpt_cli.errors import UsageError
from gpt_cli.tools.exchange.export_hf import write_for_transformers
from gpt_cli.tools.exchange.families import fit

GPT2, STARCODER2, ARCEE = "GPT2LMHeadModel", "Starcoder2ForCausalLM", "ArceeForCausalLM"
NEO, NEOX, LLAMA = "GPTNeoForCausalLM", "GPTNeoXForCausalLM", "LlamaForCausalLM"
MISTRAL, QWEN2, QWEN3 = "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"
ROPE, RMS = "positions=rope", "norm=rmsnorm"
GROUPED, LATENT = "attention=grouped_query num_key_value_heads=2", "attention=latent latent_size=20"
SLOWED = "rope_scaling=8 rope_original_length=20"
NUM_WRITTEN = 6
# what each class must express, the settings of the model in words
CASES = [
    ("", GPT2),
    ("bias=false activation=relu tie_embeddings=true", GPT2),
    ("positions=sinusoidal activation=relu2 feed_forward_size=100", GPT2),
    (f"positions=none activation=gelu_tanh {GROUPED} qkv_bias=true", GPT2),
    (f"{LATENT} query_latent_size=30", GPT2),
    (f"{LATENT} scale=none positions=none bias=false", GPT2),
    (f"{ROPE} {GROUPED} bias=false tie_embeddings=true activation=relu", STARCODER2),
    (f"{ROPE} {RMS} {GROUPED} bias=false qkv_bias=true feed_forward_size=100 activation=relu2", ARCEE),
    ("attention_window=[null,5] scale=none", NEO),
    (f"attention_window=7 {GROUPED} bias=false activation=relu tie_embeddings=true", NEO),
    (f"{ROPE} parallel_branches=true rotary_size=4 rope_base=500", NEOX),
    (f"{ROPE} rotary_size=10 bias=false qkv_bias=true activation=relu2 scale=none", NEOX),
    (f"{ROPE} {GROUPED} norm_epsilon=0.001 attention_window=9 rope_base=300 head_size=8", STARCODER2),
    (f"{ROPE} {RMS} {SLOWED} head_size=14 activation=relu", ARCEE),
    (f"{ROPE} {RMS} activation=swiglu {SLOWED}", LLAMA),
    (f"{ROPE} {RMS} activation=geglu bias=false {GROUPED} tie_embeddings=true norm_epsilon=0.01", LLAMA),
    (f"{ROPE} {RMS} activation=swiglu bias=false num_heads=5 head_size=6", MISTRAL),
    (f"{ROPE} {RMS} activation=geglu bias=false qkv_bias=true qk_norm=true {GROUPED} scale=none", QWEN3),
]
# what others beside them say too, and the whole table: all settings crossed
TABLE = [
    ("attention_window=[3,null,null] positions=sinusoidal norm_epsilon=0.001", NEO),
    (f"{ROPE} parallel_branches=true bias=false tie_embeddings=true norm_epsilon=0.01", NEOX),
]
TABLE += [
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
def test_a_stock_class_computes_what_ours_does(words: str, class_name: str, transformers: Any, tmp_path: Path) -> None:
    stored = sharp_checkpoint(*settings_of(words))
    # scores that nothing divides are larger, and softmax more sensitive
    tolerance = 2e-5 if "scale=none" in words else 1e-5
    # products are rounded once, and GPT-Neo computes its scores in float32 in any case
    rounded = class_name == NEO or "scale=none" in words or "latent" in words
    compare(stored, class_name, transformers, tmp_path / "hf", tolerance, tolerance if rounded else 1e-10)


@pytest.mark.long
@pytest.mark.parametrize(("words", "class_name"), some_of(TABLE))
def test_the_whole_table(words: str, class_name: str, transformers: Any, tmp_path: Path) -> None:
    test_a_stock_class_computes_what_ours_does(words, class_name, transformers, tmp_path)


def compare(stored: Checkpoint, class_name: str, transformers: Any, to: Path, float32: float, float64: float) -> None:
    """Load the export as a user does, and compare greedy tokens, logits and attention, these within tolerances."""
    found = write_for_transformers(to, stored)
    load = transformers.AutoModelForCausalLM.from_pretrained
    theirs, loading = load(to, output_loading_info=True, dtype=torch.float32)
    assert (type(theirs).__name__, found.class_name) == (class_name, class_name)
    assert not any(loading.values())
    assert sum(parameter.numel() for parameter in theirs.parameters()) == found.num_parameters
    ours = stored.build_model()
    ids = torch.randint(0, 256, (2, 80), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        assert ours(ids).abs().max() > 2  # a model that says something
        close(theirs(ids).logits, ours(ids), float32)
        assert greedy(theirs, ids[:1, :8]) == written_by(ours, ids[0, :8].tolist(), NUM_WRITTEN)
        theirs.set_attn_implementation("eager")
        seen = theirs(ids, output_attentions=True)
        close(seen.logits, ours(ids), float32)
        close(torch.stack(seen.attentions), ours.attention_weights(ids), float32)
        ours.double()
        exact(theirs, ours.rotary)
        close(theirs(ids).logits, ours(ids), float64)


def greedy(model: Any, ids: torch.Tensor) -> list[int]:
    """Tokens through the cache of the stock class."""
    model.generation_config.eos_token_id = None
    model.config.pad_token_id = None  # which untrained weights write too, and the library then warns
    mask = torch.ones_like(ids)
    return model.generate(ids, attention_mask=mask, max_new_tokens=NUM_WRITTEN, do_sample=False)[
        0, ids.shape[1] :
    ].tolist()


def test_what_is_written_otherwise_there_is_noted() -> None:
    found = fit(small_config("model.num_blocks=1", "model.scale=none").model, 257)  # 2 heads of 8
    assert found.notes == [
        "GPT2LMHeadModel divides scores by √8, so gpt writes Wq 2.828427 times as large",
        "this model has none of attn.c_attn.bias: gpt writes zeros, which further training may change",
    ]


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        ("norm_position=post", ["norm_position: transformers has no such post-norm model"]),
        ("ngram_embedding=2 norm_position=post norm=rmsnorm", ["norm_position: ", "ngram_embedding: ", "norm: "]),
        ("activation=swiglu parallel_branches=true", ["activation: GPT2LMHeadModel, the", "parallel_branches"]),
        ("qk_norm=true head_size=10", ["qk_norm: ", "head_size: "]),
        ("attention_window=[3,4] qkv_bias=true", ["qkv_bias: ", "attention_window: GPTNeoForCausalLM, the"]),
        (f"{ROPE} rotary_size=4 {GROUPED} attention_window=3", ["attention: GPTNeoX", "attention_window: "]),
        (f"{ROPE} activation=geglu attention_window=[null,3]", ["activation: Starco", "attention_window: "]),
        (f"{ROPE} {RMS} activation=swiglu attention_window=3", ["attention_window: LlamaForCausalLM"]),
        (f"{ROPE} {RMS} activation=swiglu qk_norm=true", ["bias: Qwen3ForCausalLM"]),
        (f"{ROPE} {RMS} rotary_size=4 parallel_branches=true", ["parallel_branches: Arcee", "rotary_size: "]),
        (f"{ROPE} {RMS} num_heads=3 head_size=6", ["head_size: ArceeForCausalLM"]),
        (f"{LATENT} {ROPE}", ["attention: no class of transformers has this form of latent attention with rope"]),
        ("norm=rmsnorm positions=none", ["norm: no class of transformers has rmsnorm with positions none"]),
    ],
)
def test_every_setting_in_the_way_is_named(words: str, lines: list[str]) -> None:
    with pytest.raises(UsageError) as raised:
        fit(small_config(*settings_of(words)).model, 257)
    *errors, hint = raised.value.lines()
    assert len(errors) == len(lines)
    for error, line in zip(errors, lines, strict=True):
        assert error.startswith(f"error: model.{line}")
        assert "export" in error  # with which value it would
    assert hint.startswith(
        "hint: --format safetensors --out model.safetensors exports it for use with gpt, --format html"
    )
