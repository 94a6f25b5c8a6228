"""The model classes of transformers (families) that gpt imports and exports, by model_type. Needs no torch."""

from __future__ import annotations

from gpt_cli.config import ModelConfig
from gpt_cli.tools.exchange.families.family import Family
from gpt_cli.tools.exchange.families.gpt import GPT2, GPTNeo, GPTNeoX
from gpt_cli.tools.exchange.families.llama import Arcee, Llama, Mistral, Qwen2, Qwen3, Starcoder2

_ALL = (GPT2, GPTNeo, GPTNeoX, Llama, Mistral, Qwen2, Qwen3, Starcoder2, Arcee)
FAMILIES: dict[str, Family] = {family.model_type: family() for family in _ALL}


def nearest_family(model: ModelConfig) -> Family:
    """Return the family that supports most settings of `model`; for an imported model, the family that it came from."""
    if model.positions != "rope":
        return FAMILIES["gpt2" if model.attention_window is None else "gpt_neo"]
    if model.norm == "layernorm":
        has_part = model.parallel_branches or model.rotary_size is not None
        return FAMILIES["gpt_neox" if has_part else "starcoder2"]
    if not model.gated:
        return FAMILIES["arcee"]
    if model.qk_norm:
        return FAMILIES["qwen3"]
    if model.bias:
        return FAMILIES["llama"]
    if model.qkv_bias or len(set(model.windows)) > 1:
        return FAMILIES["qwen2"]
    whole = model.d_model % model.num_heads == 0
    return FAMILIES["llama" if model.attention_window is None and whole else "mistral"]
