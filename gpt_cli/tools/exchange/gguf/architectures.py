"""Architectures of llama.cpp: which gpt_cli models each architecture computes, and how it names and orders tensors.

Each architecture computes what a transformers class computes, so exports reuse the class's recipes. Needs no torch.
"""

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from gpt_cli.config import ModelConfig
from gpt_cli.errors import GptError, UsageError, together
from gpt_cli.tools.exchange.export_tensors import Fit, Recipe
from gpt_cli.tools.exchange.families import FAMILIES, fit
from gpt_cli.tools.exchange.families.family import Family

_HINT = "‹format=hf›, or safetensors for use with gpt, exports other models"
# names of layers -> names in GGUF: of attention from transformers, of the feed-forward part from gpt_cli
_OF_GPT2 = {"attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output"}
_OF_GPT_NEOX = {"attention.query_key_value": "attn_qkv", "attention.dense": "attn_output"}
_OF_LLAMA = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
}
_FEED_FORWARD = {"gate": "ffn_gate", "expand": "ffn_up", "contract": "ffn_down"}
# settings of gpt_cli -> keys of a file, without the architecture before them
SIZES = {
    "context_length": "context_length",
    "d_model": "embedding_length",
    "num_heads": "attention.head_count",
    "num_blocks": "block_count",
    "feed_forward_size": "feed_forward_length",
}
ROPE_FACTORS = "rope_freqs.weight"  # by which the frequencies of Llama 3 are divided


class Architecture(NamedTuple):
    """An architecture of llama.cpp; `types` are the transformers model_types that it computes, the usual type first."""

    name: str
    types: tuple[str, ...]
    attention: Mapping[str, str]  # names of layers in transformers -> in GGUF
    activations: tuple[str, ...]  # names in gpt_cli
    # other settings of gpt_cli that the architecture supports
    has: frozenset[str] = frozenset()
    always_biased: bool = False  # whether each linear layer must have a bias, which may be zeros
    own_output: bool = False  # whether it must have an output layer, which may be a copy of the embedding
    permuted: bool = False  # whether rope rotates pairs of neighbours, for which rows of queries and keys are reordered

    @property
    def epsilon_key(self) -> str:
        """Metadata key of the norms' epsilon, without the architecture's name in front."""
        rms = FAMILIES[self.types[0]].epsilon_key == "rms_norm_eps"
        return f"attention.layer_norm_{'rms_' if rms else ''}epsilon"

    def names(self, family: Family, blocks: Iterable[int | str]) -> dict[str, str]:
        """Map GGUF's name of each tensor that a `family` model can have to that of transformers, for these `blocks`."""
        layers = {**self.attention, **dict(zip(family.norms, ("attn_norm", "ffn_norm"), strict=True))}
        layers |= {f"mlp.{theirs}": _FEED_FORWARD[ours] for theirs, ours in family.layers.items()}
        names = {"token_embd.weight": family.embedding, "output.weight": family.output}
        if family.position_table:
            names["position_embd.weight"] = f"{family.prefix}{family.position_table}"
        for kind in ("weight", "bias"):
            names[f"output_norm.{kind}"] = f"{family.prefix}{family.final_norm}.{kind}"
            for block, (theirs, there) in itertools.product(blocks, layers.items()):
                names[f"blk.{block}.{there}.{kind}"] = f"{family.prefix}{family.blocks}.{block}.{theirs}.{kind}"
        return names

    def order(self, name: str) -> str:
        """Return how GGUF orders transformers' tensor `name`: 'as it is', 'transposed', 'permuted' or 'by_head'.

        'permuted' interleaves the halves of each head: rows 0 1 2 3 become 0 2 1 3. 'by_head' turns the q k v q k v of
        two heads into q q k k v v.
        """
        if self.permuted and re.search(r"\.[qk]_proj\.", name):
            return "permuted"
        if ".query_key_value." in name:
            return "by_head"
        matrix = name.endswith(".weight") and re.search(r"\.(c_attn|c_proj|c_fc)\.", name)
        return "transposed" if matrix and self.name == "gpt2" else "as it is"


_GELU, _BOTH = ("gelu", "gelu_tanh"), frozenset({"bias", "qkv_bias"})
_LLAMA_3 = frozenset({"head_size", "rope_scaling"})
_ALL = (
    Architecture("gpt2", ("gpt2",), _OF_GPT2, _GELU, _BOTH),
    Architecture("starcoder2", ("starcoder2",), _OF_LLAMA, _GELU, _BOTH, always_biased=True),
    Architecture("nemotron", ("starcoder2",), _OF_LLAMA, ("relu2",), _BOTH, always_biased=True, own_output=True),
    Architecture("gptneox", ("gpt_neox",), _OF_GPT_NEOX, _GELU, _BOTH, always_biased=True, own_output=True),
    Architecture("arcee", ("arcee",), _OF_LLAMA, ("relu2",), _LLAMA_3, permuted=True),
    Architecture("llama", ("llama", "mistral"), _OF_LLAMA, ("swiglu",), _BOTH | _LLAMA_3, permuted=True),
    Architecture("qwen2", ("qwen2",), _OF_LLAMA, ("swiglu",), frozenset({"qkv_bias"})),
    Architecture("qwen3", ("qwen3",), _OF_LLAMA, ("swiglu",), frozenset({"head_size"})),
)
ARCHITECTURES = {one.name: one for one in _ALL}


def architecture_of(model: ModelConfig, vocab_size: int) -> tuple[Architecture, Family, Fit]:
    """Return the llama.cpp architecture for `model`, and the Family and Fit of the equivalent transformers class.

    The Fit has the class's config and a recipe per tensor. Raises UsageError that names every unsupported setting.
    """
    fitted = fit(model, vocab_size)
    family = next(one for one in FAMILIES.values() if one.class_name == fitted.class_name)
    if not (fitting := [one for one in _ALL if family.model_type in one.types]):  # GPT-Neo, which is GPT-2 with windows
        raise UsageError("model.attention_window", "llama.cpp has no windows for this kind of model", hint=_HINT)
    activations = [name for one in fitting for name in one.activations]
    chosen = next((one for one in fitting if model.activation in one.activations), fitting[0])
    if wrong := list(_misfits(model, chosen, activations)):
        raise together(wrong)
    return chosen, family, fitted


def _misfits(model: ModelConfig, chosen: Architecture, activations: list[str]) -> Iterator[GptError]:
    if model.activation not in activations:
        sentence = f"{chosen.name}, the nearest architecture of llama.cpp, computes only {', '.join(activations)}"
        yield UsageError("model.activation", sentence, hint=_HINT)
    features = {
        "attention_window": (any(window and window < model.context_length for window in model.windows), "null"),
        "bias": (model.bias and model.norm != "layernorm", "false"),
        "qkv_bias": (model.qkv_bias, "false"),
        "head_size": (model.value_size * model.num_heads != model.d_model, "null"),
        "rope_scaling": (model.positions == "rope" and model.rope_scaling is not None, "null"),
    }
    for key, (is_used, value) in features.items():
        if is_used and key not in chosen.has:
            sentence = f"{chosen.name}, the nearest architecture of llama.cpp, lacks this; {value} can be exported"
            yield UsageError(f"model.{key}", sentence, hint=_HINT)


def tensors_there(chosen: Architecture, family: Family, fitted: Fit, num_blocks: int) -> dict[str, tuple[str, Recipe]]:
    """Map the GGUF name of each exported tensor to its transformers name and its recipe (from gpt_cli weights).

    Biases that only the architecture requires are zeros; an output layer that only it requires is the token embedding.
    """
    names = {theirs: there for there, theirs in chosen.names(family, range(num_blocks)).items()}
    tensors = {names[theirs]: (theirs, recipe) for theirs, recipe in fitted.tensors.items()}
    if chosen.own_output and "output.weight" not in tensors:
        tensors["output.weight"] = tensors["token_embd.weight"]
    if chosen.always_biased:
        for name, (theirs, recipe) in list(tensors.items()):
            bias = name.removesuffix("weight") + "bias"
            if name.startswith("blk.") and name.endswith(".weight") and bias not in tensors:
                tensors[bias] = (theirs.removesuffix("weight") + "bias", Recipe(recipe.shape[:1]))
    return tensors


def rope_factors(config: Mapping[str, Any], rotated_size: int) -> np.ndarray:
    """Compute the factors, [rotated_size / 2], by which Llama 3 divides its rope frequencies, from a config.json."""
    scaling, base = config["rope_scaling"], config["rope_theta"]
    factor, low, high = (scaling[key] for key in ("factor", "low_freq_factor", "high_freq_factor"))
    frequencies = base ** (-np.arange(0, rotated_size, 2) / rotated_size)
    # turns of each pair within the original context
    turns = scaling["original_max_position_embeddings"] * frequencies / (2 * math.pi)
    share = np.clip((turns - low) / (high - low), 0, 1)
    return (1 / ((1 - share) / factor + share)).astype(np.float32)


def arranged(rows: Any, order: str, num_heads: int, *, back: bool = False) -> Any:
    """Reorder a torch or numpy tensor for GGUF; `order` is from `Architecture.order`; `back` undoes the reordering."""
    if order == "transposed":
        return rows.T
    shape, others = tuple(rows.shape), tuple(rows.shape[1:])
    if order == "permuted":  # the halves of a head, which rope rotates as pairs
        halves = (-1, 2) if back else (2, -1)
        return rows.reshape(num_heads, *halves, *others).swapaxes(1, 2).reshape(shape)
    if order == "by_head":  # q, k and v
        first = (3, num_heads) if back else (num_heads, 3)
        return rows.reshape(*first, -1, *others).swapaxes(0, 1).reshape(shape)
    return rows
