"""The model classes of transformers (families) that gpt imports and exports, by model_type. Needs no torch.

An export chooses the class that computes the same logits as the gpt_cli model:

| settings of the model, all with norm_position pre                           | class                 |
| --------------------------------------------------------------------------- | --------------------- |
| layernorm; positions learned, sinusoidal or none; any attention             | GPT2LMHeadModel       |
| the same with attention windows                                             | GPTNeoForCausalLM     |
| layernorm, rope                                                             | Starcoder2ForCausalLM |
| layernorm, rope; parallel branches, or rope on a part of each head          | GPTNeoXForCausalLM    |
| rmsnorm, rope                                                               | ArceeForCausalLM      |
| rmsnorm, rope, a gate; all biases or none                                   | LlamaForCausalLM      |
| rmsnorm, rope, a gate; no biases, one window for all blocks                 | MistralForCausalLM    |
| rmsnorm, rope, a gate; biases of q, k and v, or windows in some blocks      | Qwen2ForCausalLM      |
| rmsnorm, rope, a gate; norms of queries and keys                            | Qwen3ForCausalLM      |

GPT-2 and GPT-Neo compute only multi-head attention, so an export writes other forms as multi-head: it repeats Wk and Wv
of a group for each head of the group, and multiplies the low-rank matrices of latent attention.
"""

import re
from collections.abc import Iterator

from gpt_cli.config import ModelConfig
from gpt_cli.config.model import unknown_form
from gpt_cli.errors import UsageError, together
from gpt_cli.tools.exchange.export_tensors import Fit
from gpt_cli.tools.exchange.families.family import Family
from gpt_cli.tools.exchange.families.gpt import GPT2, GPTNeo, GPTNeoX
from gpt_cli.tools.exchange.families.llama import Arcee, Llama, Mistral, Qwen2, Qwen3, Starcoder2

_ALL = (GPT2, GPTNeo, GPTNeoX, Llama, Mistral, Qwen2, Qwen3, Starcoder2, Arcee)
FAMILIES: dict[str, Family] = {family.model_type: family() for family in _ALL}
_HINT = (
    "‹format=safetensors› ‹out=model.safetensors› exports it for use with gpt, ‹format=html› ‹out=model.html› as a page"
)


def fit(model: ModelConfig, vocab_size: int) -> Fit:
    """Return the Fit (config.json, recipes) of a transformers class that computes `model`; UsageError if none does."""
    family = _nearest_family(model)
    if model.attention not in ("multi_head", "grouped_query", "latent"):
        raise unknown_form("transformers", model.attention, "‹format=safetensors› exports every model for use with gpt")
    if wrong := list(_misfits(model, family)):
        raise together([UsageError(f"model.{key}", sentence, hint=_HINT) for key, sentence in wrong])
    config = family.common_keys(model, vocab_size) | family.config(model)
    tensors, notes = family.tensors(model, vocab_size), [*family.notes(model)]
    zeros = [re.sub(r".*\.\d+\.", "", name) for name, recipe in tensors.items() if not recipe.parts]
    if names := ", ".join(dict.fromkeys(zeros)):
        notes.append(f"this model has none of {names}: gpt writes zeros, which further training may change")
    return Fit(family.class_name, config, tensors, notes)


def _nearest_family(model: ModelConfig) -> Family:
    """Return the family (converter) whose transformers class is nearest to `model`; it may still lack some settings."""
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


def _misfits(model: ModelConfig, family: Family) -> Iterator[tuple[str, str]]:
    """Yield (setting, sentence) for each setting that prevents the export; the sentence names a value that works."""
    if model.norm_position != "pre":
        yield "norm_position", "transformers has no such post-norm model; norm_position=pre can be exported"
    if model.ngram_embedding is not None:
        how = "train with ‹model.ngram_embedding=null› to export"
        yield "ngram_embedding", f"no class of transformers has embeddings of n-grams; {how}"
    if model.attention == "latent" and model.positions == "rope":
        others = "multi_head and grouped_query can be exported"
        if model.norm == "layernorm":
            others += ", and so can latent with positions learned, sinusoidal or none"
        yield "attention", f"no class of transformers has this form of latent attention with rope; {others}"
        return
    if model.norm == "rmsnorm" and model.positions != "rope":
        sentence = f"no class of transformers has rmsnorm with positions {model.positions}"
        yield "norm", f"{sentence} and this feed-forward part; layernorm can be exported"
    yield from family.misfits(model)
