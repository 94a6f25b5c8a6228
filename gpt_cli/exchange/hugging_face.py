"""Which stock class of transformers computes what a model of ours computes, and its tensors. Needs no torch.

| our settings, all with norm_position pre                        | class                |
| --------------------------------------------------------------- | -------------------- |
| layernorm; positions learned, sinusoidal or none; any attention | GPT2LMHeadModel      |
| layernorm, rope; multi_head or grouped_query                    | Starcoder2ForCausalLM |
| rmsnorm, rope; multi_head or grouped_query                      | ArceeForCausalLM     |

GPT-2 has multi-head attention alone, so other forms are written out: keys and values of a group once for each of its
heads, the matrices of latent attention as their products.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gpt_cli.config import ModelConfig
from gpt_cli.config.model import unknown_form
from gpt_cli.errors import GptError, UsageError, together

# their names there
ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu", "relu2": "relu2"}
_HINT = "--format safetensors exports every model for use with gpt"


class Part(NamedTuple):
    """Some rows of a tensor: one tensor of ours, or the product of several from left to right, times a factor."""

    names: tuple[str, ...]
    factor: float = 1.0


@dataclass(frozen=True)
class Recipe:
    """How a tensor of a stock class is made of ours: parts one below another, then transposed; without parts, zeros.

    `shape` is that of the stock class. Where each part is one tensor of ours and its factor 1, the recipe can be read
    backwards: each part is then the rows of the tensor that it names.
    """

    shape: tuple[int, ...]
    parts: tuple[Part, ...] = ()
    transposed: bool = False


@dataclass(frozen=True)
class Fit:
    """A stock class that computes the same logits: its config.json, and each of its tensors made of ours.

    `notes` say in words where it gets the same result in another way.
    """

    class_name: str
    config: Mapping[str, Any]
    tensors: Mapping[str, Recipe]
    notes: Sequence[str]

    @property
    def num_parameters(self) -> int:
        """Numbers in all tensors, zeros and copies included."""
        return sum(math.prod(recipe.shape) for recipe in self.tensors.values())


def fit(model: ModelConfig, vocab_size: int) -> Fit:
    """The stock class for a model of ours; raises UsageError that names every setting which none of them has."""
    if wrong := list(_misfits(model)):
        raise together(wrong)
    return _gpt2(model, vocab_size) if model.positions != "rope" else _llama_like(model, vocab_size)


def _misfits(model: ModelConfig) -> Iterator[GptError]:
    """The settings that no stock class has, each with a value that would export."""

    def misfit(key: str, sentence: str) -> UsageError:
        return UsageError(f"model.{key}", sentence, hint=_HINT)

    if model.norm_position != "pre":
        yield misfit("norm_position", "transformers has no such post-norm model; norm_position=pre can be exported")
    if model.ngram_embedding is not None:
        yield misfit("ngram_embedding", "no class of transformers has embeddings of n-grams; null exports")
    if model.attention not in ("multi_head", "grouped_query", "latent"):
        yield unknown_form("transformers", model.attention, _HINT)
    if model.attention == "latent" and model.positions == "rope":
        others = "multi_head and grouped_query export"
        if model.norm == "layernorm":
            others += ", and so does latent with positions learned, sinusoidal or none"
        yield misfit("attention", f"no class of transformers has this form of latent attention with rope; {others}")
    if model.norm == "rmsnorm" and model.positions != "rope":
        sentence = f"no class of transformers has rmsnorm with positions {model.positions}"
        yield misfit("norm", f"{sentence} and this feed-forward part; layernorm exports")


def _gpt2(model: ModelConfig, V: int) -> Fit:
    """Radford et al. 2019. Its matrices are [in, out], the transposed ones of ours; q, k and v are one matrix."""
    D, F = model.d_model, model.hidden_size
    positions = {"learned": "position_embedding.weight", "sinusoidal": "position_embedding.table"}.get(model.positions)
    tensors = {
        "transformer.wte.weight": _copy((V, D), "token_embedding.weight"),
        "transformer.wpe.weight": Recipe((model.context_length, D), () if positions is None else (Part((positions,)),)),
    }
    for i in range(model.num_blocks):
        ours, theirs = f"blocks.{i}", f"transformer.h.{i}"
        attention = tuple(part for parts in _projections(model, i, per_head=True) for part in parts)
        tensors |= _norm(f"{theirs}.ln_1", f"{ours}.norm_1", model)
        tensors[f"{theirs}.attn.c_attn.weight"] = Recipe((D, 3 * D), attention, transposed=True)
        tensors[f"{theirs}.attn.c_attn.bias"] = Recipe((3 * D,), _biases(attention, model))
        tensors |= _conv1d(f"{theirs}.attn.c_proj", f"{ours}.attention.projection_layer", D, D, model)
        tensors |= _norm(f"{theirs}.ln_2", f"{ours}.norm_2", model)
        tensors |= _conv1d(f"{theirs}.mlp.c_fc", f"{ours}.feed_forward.expand", D, F, model)
        tensors |= _conv1d(f"{theirs}.mlp.c_proj", f"{ours}.feed_forward.contract", F, D, model)
    tensors |= _norm("transformer.ln_f", "final_norm", model)
    config = _config("GPT2LMHeadModel", "gpt2", model, V) | {
        "n_positions": model.context_length,
        "n_embd": D,
        "n_layer": model.num_blocks,
        "n_head": model.num_heads,
        "n_inner": F,
        "activation_function": ACTIVATIONS[model.activation],
        "layer_norm_epsilon": 1e-5,
        "attn_pdrop": model.dropout,
        "resid_pdrop": model.dropout,
        "embd_pdrop": 0.0,
    }
    return Fit(
        "GPT2LMHeadModel", config, tensors | _output_layer(model, V), [*_gpt2_notes(model), *_notes(model, tensors)]
    )


def _gpt2_notes(model: ModelConfig) -> Iterator[str]:
    if model.attention == "grouped_query":
        copies = model.num_heads // model.key_value_heads
        yield f"GPT-2 has no groups: keys and values are there {copies} times, in its cache too"
    if model.attention == "latent":
        yield "GPT-2 has no latents: matrices are written as their products, and its cache has keys and values"
    if model.positions == "sinusoidal":
        yield "the table of sinusoidal positions is a weight, which further training may change"


def _llama_like(model: ModelConfig, V: int) -> Fit:
    """Starcoder2 (Lozhkov et al. 2024) has layernorm, Arcee rmsnorm; both have rope and a plain feed-forward part."""
    D, F, K = model.d_model, model.hidden_size, model.value_size
    arcee = model.norm == "rmsnorm"
    # Starcoder2 has all biases or none, Arcee those of a whole attention or none
    of_attention = model.bias or model.qkv_bias
    of_feed_forward = model.bias if arcee else of_attention
    expand, contract = ("up_proj", "down_proj") if arcee else ("c_fc", "c_proj")
    rows = {"q_proj": model.num_heads * K, "k_proj": model.key_value_heads * K, "v_proj": model.key_value_heads * K}
    tensors = {"model.embed_tokens.weight": _copy((V, D), "token_embedding.weight")}
    for i in range(model.num_blocks):
        ours, theirs = f"blocks.{i}", f"model.layers.{i}"
        tensors |= _norm(f"{theirs}.input_layernorm", f"{ours}.norm_1", model)
        for (name, size), parts in zip(rows.items(), _projections(model, i), strict=True):
            tensors[f"{theirs}.self_attn.{name}.weight"] = Recipe((size, D), parts)
            if of_attention:
                tensors[f"{theirs}.self_attn.{name}.bias"] = Recipe((size,), _biases(parts, model))
        projection_layer = f"{ours}.attention.projection_layer"
        tensors |= _linear(f"{theirs}.self_attn.o_proj", projection_layer, D, D, model, of_attention)
        tensors |= _norm(f"{theirs}.post_attention_layernorm", f"{ours}.norm_2", model)
        tensors |= _linear(f"{theirs}.mlp.{expand}", f"{ours}.feed_forward.expand", D, F, model, of_feed_forward)
        tensors |= _linear(f"{theirs}.mlp.{contract}", f"{ours}.feed_forward.contract", F, D, model, of_feed_forward)
    tensors |= _norm("model.norm", "final_norm", model)
    class_name, model_type = ("ArceeForCausalLM", "arcee") if arcee else ("Starcoder2ForCausalLM", "starcoder2")
    config = _config(class_name, model_type, model, V) | {
        "hidden_size": D,
        "intermediate_size": F,
        "num_hidden_layers": model.num_blocks,
        "num_attention_heads": model.num_heads,
        "num_key_value_heads": model.key_value_heads,
        "head_dim": K,
        "hidden_act": ACTIVATIONS[model.activation],
        "max_position_embeddings": model.context_length,
        "attention_dropout": model.dropout,
        # the first is what transformers 4 reads, the second what 5 reads
        "rope_theta": 10000.0,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    }
    if arcee:
        config |= {"rms_norm_eps": 1e-6, "attention_bias": of_attention, "mlp_bias": of_feed_forward}
    else:
        config |= {"norm_epsilon": 1e-5, "use_bias": of_attention, "sliding_window": None}
        config |= {"residual_dropout": model.dropout, "embedding_dropout": 0.0}
    return Fit(class_name, config, tensors | _output_layer(model, V), list(_notes(model, tensors)))


def _notes(model: ModelConfig, tensors: Mapping[str, Recipe]) -> Iterator[str]:
    if model.scale == "none":
        yield f"scores are divided by √{model.query_size} there, so Wq is written {_unscaled(model):.7g} times as large"
    zeros = dict.fromkeys(re.sub(r".*\.\d+\.", "", name) for name, recipe in tensors.items() if not recipe.parts)
    if zeros:
        yield f"this model has none of {', '.join(zeros)}: they are zeros, which further training there may change"


def _config(class_name: str, model_type: str, model: ModelConfig, vocab_size: int) -> dict[str, Any]:
    """The keys that all classes share; defaults are written too, where versions of transformers have different ones."""
    return {
        "architectures": [class_name],
        "model_type": model_type,
        "vocab_size": vocab_size,
        "bos_token_id": vocab_size - 1,
        "eos_token_id": vocab_size - 1,
        "tie_word_embeddings": model.tie_embeddings,
        "initializer_range": 0.02,
        "use_cache": True,
        "dtype": "float32",
    }


def _projections(model: ModelConfig, block: int, *, per_head: bool = False) -> tuple[tuple[Part, ...], ...]:
    """Wq, Wk and Wv of all heads, one head below another; `per_head` repeats Wk and Wv of a group for its heads."""
    at, H, G = f"blocks.{block}.attention", model.num_heads, model.key_value_heads
    if model.attention == "latent":
        source = (f"{at}.W_DQ.weight",) if model.query_latent_size else ()
        queries = [(f"{at}.heads.{j}.W_UQ.weight", *source) for j in range(H)]
        keys = [(f"{at}.heads.{j}.W_UK.weight", f"{at}.W_DKV.weight") for j in range(H)]
        values = [(f"{at}.heads.{j}.W_UV.weight", f"{at}.W_DKV.weight") for j in range(H)]
    else:
        queries = [(f"{at}.heads.{j}.Wq.weight",) for j in range(H)]
        owners = [f"heads.{j}" for j in range(H)]
        if model.attention == "grouped_query":
            owners = [f"groups.{j * G // H if per_head else j}" for j in range(H if per_head else G)]
        keys = [(f"{at}.{owner}.Wk.weight",) for owner in owners]
        values = [(f"{at}.{owner}.Wv.weight",) for owner in owners]
    scaled = tuple(Part(names, _unscaled(model)) for names in queries)
    return scaled, tuple(map(Part, keys)), tuple(map(Part, values))


def _biases(parts: tuple[Part, ...], model: ModelConfig) -> tuple[Part, ...]:
    """The biases of the matrices in these parts; nothing, which means zeros, where the model has none."""
    if not model.qkv_bias:
        return ()
    return tuple(Part((name.removesuffix("weight") + "bias",), factor) for (name,), factor in parts)


def _unscaled(model: ModelConfig) -> float:
    """What undoes the division of scores by the square root of their width, which stock classes always do."""
    return math.sqrt(model.query_size) if model.scale == "none" else 1.0


def _copy(shape: tuple[int, ...], name: str) -> Recipe:
    return Recipe(shape, (Part((name,)),))


def _norm(theirs: str, ours: str, model: ModelConfig) -> dict[str, Recipe]:
    """The weight of a norm, and the bias that each layernorm has there, zeros where ours has none."""
    D = model.d_model
    found = {f"{theirs}.weight": _copy((D,), f"{ours}.weight")}
    if model.norm == "layernorm":
        found[f"{theirs}.bias"] = _copy((D,), f"{ours}.bias") if model.bias else Recipe((D,))
    return found


def _linear(theirs: str, ours: str, num_in: int, num_out: int, model: ModelConfig, biased: bool) -> dict[str, Recipe]:
    """A linear layer, `biased` there; the bias is zeros where ours has none."""
    found = {f"{theirs}.weight": _copy((num_out, num_in), f"{ours}.weight")}
    if biased:
        found[f"{theirs}.bias"] = _copy((num_out,), f"{ours}.bias") if model.bias else Recipe((num_out,))
    return found


def _conv1d(theirs: str, ours: str, num_in: int, num_out: int, model: ModelConfig) -> dict[str, Recipe]:
    """A linear layer as GPT-2 has it: [in, out], always with a bias."""
    weight = Recipe((num_in, num_out), (Part((f"{ours}.weight",)),), transposed=True)
    return _linear(theirs, ours, num_in, num_out, model, biased=True) | {f"{theirs}.weight": weight}


def _output_layer(model: ModelConfig, vocab_size: int) -> dict[str, Recipe]:
    """Nothing where the output layer is the token embedding."""
    if model.tie_embeddings:
        return {}
    return {"lm_head.weight": _copy((vocab_size, model.d_model), "output_layer.weight")}
