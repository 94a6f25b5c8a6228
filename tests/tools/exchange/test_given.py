"""What a config.json means as settings of ours, in the words of versions 4 and 5, and what is refused by its name."""

from typing import Any

import pytest

from gpt_cli.config.load import validate
from gpt_cli.errors import together
from gpt_cli.tools.exchange.families import FAMILIES, fit
from gpt_cli.tools.exchange.families.config_fields import ConfigFields

SIZES = {"hidden_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4}
SIZES |= {"intermediate_size": 96, "max_position_embeddings": 64}
NEO = {"hidden_size": 48, "num_layers": 4, "num_heads": 4, "max_position_embeddings": 64}
GPT2 = {"n_embd": 48, "n_layer": 4, "n_head": 4, "n_positions": 64}
OF = {"gpt2": GPT2, "gpt_neo": NEO}
WINDOWS = {"use_sliding_window": True, "sliding_window": 8}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
SCALED = {"rope_base": 5e5, "rope_scaling": 8.0, "rope_original_length": 16, "rope_high_frequency": 4.0}


def given(kind: str, **keys: Any) -> tuple[dict[str, Any], list[str]]:
    """The settings that a config.json means, and the sentences about what is wrong."""
    found = ConfigFields({"model_type": kind, **OF.get(kind, SIZES), **keys}, "config.json", "")
    settings, problems = FAMILIES[kind].settings(found), found.problems()
    lines = together(problems).lines() if problems else []
    return settings, [line.removeprefix("error: config.json: ") for line in lines]


@pytest.mark.parametrize(
    ("kind", "keys", "settings"),
    [
        ("gpt2", {"layer_norm_epsilon": 1e-5}, {"norm_epsilon": None, "qkv_bias": True, "activation": "gelu_tanh"}),
        ("gpt2", {"n_ctx": 64, "summary_type": "cls_index", "torch_dtype": "float32"}, {"tie_embeddings": True}),
        ("gpt_neo", {"attention_types": [[["global", "local"], 2]]}, {"attention_window": [None, 256]}),
        ("gpt_neo", {"attention_layers": ["local", "global"] * 2, "window_size": 3}, {"attention_window": [3, None]}),
        ("gpt_neo", {"attention_types": [[["global"], 4]]}, {"attention_window": [None], "scale": "none"}),
        ("gpt_neox", {"rotary_pct": 0.5, "rotary_emb_base": 500}, {"rotary_size": 6, "rope_base": 500}),
        ("gpt_neox", {"rope_parameters": {"rope_theta": 9, "partial_rotary_factor": 0.5}}, {"rotary_size": 6}),
        ("gpt_neox", {"rotary_pct": 0.34}, {"rotary_size": 4, "parallel_branches": True, "tie_embeddings": False}),
        ("llama", {"num_key_value_heads": None}, {"attention": "multi_head", "norm_epsilon": None}),
        ("llama", {"rope_theta": 5e5, "rope_scaling": None, "is_causal": True}, {"rope_base": 5e5}),
        ("llama", {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", **LLAMA3}}, SCALED),
        ("llama", {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3}}, SCALED),
        # of SmolLM2, which has both
        ("llama", {"is_llama_config": True, "rope_interleaved": False, "pretraining_tp": 1}, {"head_size": None}),
        ("llama", {"head_dim": 12}, {"head_size": None}),
        ("llama", {"head_dim": 16}, {"head_size": 16}),
        ("llama", {"attention_bias": True, "mlp_bias": True}, {"bias": True, "qkv_bias": True}),
        ("llama", {"mlp_bias": True}, {"bias": True, "qkv_bias": False}),
        ("mistral", {"num_key_value_heads": 2}, {"attention_window": [4096], "num_key_value_heads": 2}),
        ("mistral", {"num_key_value_heads": 2, "sliding_window": None}, {"attention_window": [None]}),
        ("qwen2", {"num_key_value_heads": 2}, {"qkv_bias": True, "bias": False, "attention_window": None}),
        ("qwen2", {"use_mrope": False, "num_key_value_heads": 4}, {"attention": "multi_head"}),
        ("qwen2", {**WINDOWS, "max_window_layers": 3}, {"attention_window": [None, None, None, 8]}),
        (
            "qwen3",
            {**WINDOWS, "num_key_value_heads": 2, "layer_types": ["full_attention", "sliding_attention"] * 2},
            {"attention_window": [None, 8], "qk_norm": True, "head_size": 128, "qkv_bias": False},
        ),
        ("starcoder2", {}, {"norm": "layernorm", "norm_epsilon": None, "attention_window": None, "bias": True}),
        ("arcee", {}, {"norm_epsilon": 1e-5, "activation": "relu2", "bias": False}),
    ],
)  # fmt: skip
def test_keys_are_settings(kind: str, keys: dict[str, Any], settings: dict[str, Any]) -> None:
    found, problems = given(kind, **keys)
    assert problems == []
    assert {key: found[key] for key in settings} == settings
    if kind not in ("qwen2", "starcoder2") or "num_key_value_heads" in keys:  # whose default is 32 and 2
        assert fit(validate({"model": found}, "x").model, 300).class_name


@pytest.mark.parametrize(
    ("kind", "keys", "sentences"),
    [
        ("llama", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, ['its rope is of type "yarn", but']),
        ("llama", {"rope_scaling": {"type": "linear", "factor": 2.0}}, ['its rope is of type "linear", but']),
        ("llama", {"rope_parameters": {"rope_type": "longrope"}}, ['its rope is of type "longrope", but']),
        ("llama", {"rope_parameters": {"mrope_section": [8, 4]}}, ["mrope_section is [8, 4], which gpt does not"]),
        ("llama", {"rope_parameters": {"partial_rotary_factor": 0.5}}, ["partial_rotary_factor is 0.5, which gpt"]),
        ("llama", {"rope_scaling": {"rope_type": "llama3"}}, ["it has no factor", "it has no low_", "it has no high_"]),
        ("llama", {"rope_theta": 1e4, "rope_parameters": {"rope_theta": 5e5}}, ["rope_theta disagree: 500000.0, 10"]),
        ("llama", {"rope_scaling": [1]}, ["its rope has [1], which is not a JSON object"]),
        ("llama", {"rope_theta": [1]}, ["rope_theta: [1] is not a number"]),
        ("llama", {"rope_interleaved": True}, ["rope_interleaved is true, which gpt"]),
        ("llama", {"hidden_act": "gelu_pytorch_tanh"}, ['hidden_act is "gelu_pytorch_tanh", but gpt supports swish, silu, gelu']),
        ("llama", {"attention_bias": "yes"}, ['attention_bias: "yes" is neither true nor false']),
        ("llama", {"clip_qkv": 8, "num_local_experts": 8}, ["clip_qkv is 8, which", "num_local_experts is 8, which"]),
        ("llama", {"quantization_config": {"bits": 4}}, ['quantization_config is {"bits": 4}, which gpt does not']),
        ("llama", {"logit_scale": 0}, ["logit_scale is 0, which gpt"]),
        ("llama", {"num_attention_heads": None, "hidden_size": True}, ["hidden_size: true is not a", "it has no num_at"]),
        ("llama", {f"odd_{n:02}": n for n in range(1, 20)}, [f"odd_{n:02} is {n}" for n in range(1, 13)] + ["7 more keys"]),
        ("llama", {"odd": "x" * 100}, [f'odd is "{"x" * 59}…, which gpt does not support']),
        ("mistral", {"layer_types": ["full_attention"] * 4}, ["layer_types is ["]),
        ("qwen2", {"use_mrope": True}, ["use_mrope is true, which gpt"]),
        ("qwen2", {"layer_types": ["full_attention"] * 3}, ["layer_types is ["]),
        ("qwen2", {"layer_types": [["full_attention"]] * 4}, ["layer_types is [["]),
        ("qwen2", {"layer_types": ["sliding_attention"] * 4}, ["layer_types has sliding_attention, but"]),
        ("qwen2", {"use_sliding_window": 1}, ["use_sliding_window: 1 is neither"]),
        ("qwen3", {"max_window_layers": "all"}, ['max_window_layers: "all" is not a whole number']),
        *((kind, {"is_causal": False}, ["is_causal is false, which gpt does not"]) for kind in ("gpt2", "llama", "gpt_neox")),
        ("gpt_neox", {"rotary_pct": 0}, ["rotary_pct: 0 is not a share of a head"]),
        ("gpt_neox", {"rotary_pct": 1.5}, ["rotary_pct: 1.5 is not a share of a head"]),
        ("gpt_neox", {"rotary_emb_base": 1e4, "rope_theta": 1e5}, ["rope_theta and rotary_emb_base disagree: 1"]),
        ("gpt_neox", {"hidden_act": "silu"}, ['hidden_act is "silu", but gpt supports gelu, gelu_pytorch_tanh, gelu_new, relu']),
        ("gpt_neo", {}, ["attention_types is [[[\"global\", \"local\"], 12]], which does not give its 4 blocks"]),
        ("gpt_neo", {"attention_types": [[["global"], 10**12]]}, ["attention_types is [[["]),
        ("gpt_neo", {"attention_types": [[["global"], -1]]}, ["attention_types is [[["]),
        ("gpt_neo", {"attention_types": [[[["a"]], 4]]}, ["attention_layers is [[", ]),
        ("gpt_neo", {"num_layers": 10**12, "attention_types": [[["global"], 10**12]]}, ["attention_types is [[["]),
        ("gpt_neo", {"attention_types": 7}, ["attention_types is 7, which"]),
        ("gpt_neo", {"attention_layers": ["near"] * 4}, ['attention_layers is ["near", "near", "near", "near"], but']),
        ("gpt_neo", {"attention_layers": ["local"] * 100_000}, ["attention_layers is ["]),
        ("gpt_neo", {"attention_layers": ["local"] * 4, "attention_types": [[["global"], 4]]}, ["attention_types is"]),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, ["scale_attn_by_inverse_layer_idx is true, which gpt"]),
        ("starcoder2", {"use_bias": None, "mlp_type": "gated"}, ['mlp_type is "gated", which gpt']),
    ],
)  # fmt: skip
def test_what_ours_cannot_compute_is_refused_by_its_name(kind: str, keys: dict[str, Any], sentences: list[str]) -> None:
    _, problems = given(kind, **keys)
    assert len(problems) == len(sentences), problems
    for problem, sentence in zip(problems, sentences, strict=True):
        assert sentence in problem
