"""Stock classes of transformers that compute what a model of ours computes, and their tensors. Needs no torch.

| our settings, all with norm_position pre                                    | class                 |
| --------------------------------------------------------------------------- | --------------------- |
| layernorm; positions learned, sinusoidal or none; any attention             | GPT2LMHeadModel       |
| the same with windows                                                       | GPTNeoForCausalLM     |
| layernorm, rope                                                             | Starcoder2ForCausalLM |
| layernorm, rope; parallel branches, or rope on a part of each head          | GPTNeoXForCausalLM    |
| rmsnorm, rope                                                               | ArceeForCausalLM      |
| rmsnorm, rope and a gate; all biases or none                                | LlamaForCausalLM      |
| the same without biases, one window for all blocks                          | MistralForCausalLM    |
| the same with biases of q, k and v, or with windows in some blocks          | Qwen2ForCausalLM      |
| the same with norms of queries and keys                                     | Qwen3ForCausalLM      |

GPT-2 and GPT-Neo have multi-head attention alone, so other forms are written out: keys and values of a group once for
each of its heads, the matrices of latent attention as their products.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpt_cli.config import ModelConfig
from gpt_cli.config.model import unknown_form
from gpt_cli.errors import UsageError, together
from gpt_cli.tools.exchange.export_tensors import Fit
from gpt_cli.tools.exchange.families import nearest_family
from gpt_cli.tools.exchange.families.family import Family

_HINT = (
    "‹format=safetensors› ‹out=model.safetensors› exports it for use with gpt, ‹format=html› ‹out=model.html› as a page"
)


def fit(model: ModelConfig, vocab_size: int) -> Fit:
    """Return the stock class that computes `model`; raises UsageError that names every unsupported setting."""
    family = nearest_family(model)
    if model.attention not in ("multi_head", "grouped_query", "latent"):
        raise unknown_form("transformers", model.attention, "‹format=safetensors› exports every model for use with gpt")
    if wrong := list(_misfits(model, family)):
        raise together([UsageError(f"model.{key}", sentence, hint=_HINT) for key, sentence in wrong])
    config = family.common_keys(model, vocab_size) | family.config(model)
    tensors, notes = family.tensors(model, vocab_size), [*family.notes(model)]
    zeros = [re.sub(r".*\.\d+\.", "", name) for name, recipe in tensors.items() if not recipe.parts]
    if names := ", ".join(dict.fromkeys(zeros)):
        notes.append(f"this model has none of {names}: they are zeros, which further training there may change")
    return Fit(family.class_name, config, tensors, notes)


def _misfits(model: ModelConfig, family: Family) -> Iterator[tuple[str, str]]:
    """Yield each unsupported setting, and a sentence that names a value which exports."""
    if model.norm_position != "pre":
        yield "norm_position", "transformers has no such post-norm model; norm_position=pre can be exported"
    if model.ngram_embedding is not None:
        sentence = (
            "no class of transformers has embeddings of n-grams; train with ‹model.ngram_embedding=null› to export"
        )
        yield "ngram_embedding", sentence
    if model.attention == "latent" and model.positions == "rope":
        others = "multi_head and grouped_query export"
        if model.norm == "layernorm":
            others += ", and so does latent with positions learned, sinusoidal or none"
        yield "attention", f"no class of transformers has this form of latent attention with rope; {others}"
        return
    if model.norm == "rmsnorm" and model.positions != "rope":
        sentence = f"no class of transformers has rmsnorm with positions {model.positions}"
        yield "norm", f"{sentence} and this feed-forward part; layernorm exports"
    yield from family.misfits(model)
