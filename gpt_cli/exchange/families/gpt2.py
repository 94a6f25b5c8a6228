"""GPT-2 (Radford et al. 2019) and GPT-Neo (Black et al. 2021), which have tables of positions. Needs no torch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain
from typing import Any

from gpt_cli.config import ModelConfig
from gpt_cli.exchange.families.family import Family, own_epsilon, pattern
from gpt_cli.exchange.families.given import Given, brief
from gpt_cli.exchange.recipes import (
    Part,
    Recipe,
    biases,
    copy,
    linear,
    norm,
    positions,
    projected,
    projections,
    unscaled,
)

# activations there; of two names for one function, the usual one is the last
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu2",
}
_NAMES_OF_GPT2 = {
    "n_positions": "context_length",
    "n_embd": "d_model",
    "n_head": "num_heads",
    "n_layer": "num_blocks",
    "n_inner": "feed_forward_size",
}
_NAMES_OF_GPT_NEO = {
    "max_position_embeddings": "context_length",
    "hidden_size": "d_model",
    "num_heads": "num_heads",
    "num_layers": "num_blocks",
    "intermediate_size": "feed_forward_size",
}
NAMES = {ours: theirs for theirs, ours in ACTIVATIONS.items()}


class GPT2(Family):
    """Its matrices are [in, out], the transposed ones of ours; q, k and v are one matrix."""

    model_type, class_name, short = "gpt2", "GPT2LMHeadModel", "GPT-2"
    prefix, embedding, tied = "transformer.", "transformer.wte.weight", True
    names = _NAMES_OF_GPT2
    optional = ("n_inner",)
    dropout_key, epsilon_key = "resid_pdrop", "layer_norm_epsilon"
    has = frozenset({"attention", "qkv_bias", "bias"})

    def settings(self, given: Given) -> dict[str, Any]:
        given.ignore("n_ctx", "reorder_and_upcast_attn")
        dropout = given.number("resid_pdrop", 0.1)
        if given.number("attn_pdrop", 0.1) != dropout:
            given.notices.append(f"dropout is {dropout:g} everywhere, as resid_pdrop is")
        return self.sizes(given) | {
            "activation": given.choice("activation_function", ACTIVATIONS, "gelu_new"),
            "dropout": dropout,
            "norm_epsilon": own_epsilon(given, self.epsilon_key, 1e-5),
            "scale": "head" if given.switch("scale_attn_weights", True) else "none",
            "qkv_bias": True,
        }

    def config(self, model: ModelConfig) -> dict[str, Any]:
        return {
            "n_positions": model.context_length,
            "n_embd": model.d_model,
            "n_layer": model.num_blocks,
            "n_head": model.num_heads,
            "n_inner": model.hidden_size,
            "activation_function": NAMES[model.activation],
            "layer_norm_epsilon": model.epsilon,
            "attn_pdrop": model.dropout,
            "resid_pdrop": model.dropout,
            "embd_pdrop": 0.0,
        }

    def tensors(self, model: ModelConfig, vocab_size: int) -> dict[str, Recipe]:
        D, F = model.d_model, model.hidden_size
        tensors = {self.embedding: copy((vocab_size, D), "token_embedding.weight")}
        tensors |= positions("transformer.wpe.weight", model)
        for i in range(model.num_blocks):
            ours, theirs = f"blocks.{i}", f"transformer.h.{i}"
            tensors |= norm(f"{theirs}.ln_1", f"{ours}.norm_1", model)
            tensors |= self.attention(f"{theirs}.attn", i, model)
            tensors |= norm(f"{theirs}.ln_2", f"{ours}.norm_2", model)
            tensors |= self.linear(f"{theirs}.mlp.c_fc", f"{ours}.feed_forward.expand", D, F, model)
            tensors |= self.linear(f"{theirs}.mlp.c_proj", f"{ours}.feed_forward.contract", F, D, model)
        return tensors | norm("transformer.ln_f", "final_norm", model)

    def attention(self, theirs: str, i: int, model: ModelConfig) -> dict[str, Recipe]:
        """The tensors of the attention of block i."""
        D = model.d_model
        attention = tuple(chain(*projections(model, i, unscaled(model), per_head=True)))
        return {
            f"{theirs}.c_attn.weight": Recipe((D, 3 * D), attention, transposed=True),
            f"{theirs}.c_attn.bias": Recipe((3 * D,), biases(attention, model)),
            **self.linear(f"{theirs}.c_proj", f"blocks.{i}.attention.projection_layer", D, D, model),
        }

    def linear(self, theirs: str, ours: str, num_in: int, num_out: int, model: ModelConfig) -> dict[str, Recipe]:
        """A linear layer, which always has a bias."""
        weight = Recipe((num_in, num_out), (Part((f"{ours}.weight",)),), transposed=True)
        return linear(theirs, ours, num_in, num_out, model, biased=True) | {f"{theirs}.weight": weight}

    def notes(self, model: ModelConfig) -> Iterator[str]:
        if model.attention == "grouped_query":
            copies = model.num_heads // model.key_value_heads
            yield f"{self.short} has no groups: keys and values are there {copies} times, in its cache too"
        if model.attention == "latent":
            how = "matrices are written as their products, and its cache has keys and values"
            yield f"{self.short} has no latents: {how}"
        if model.positions == "sinusoidal":
            yield "the table of sinusoidal positions is a weight, which further training may change"
        yield from super().notes(model)


class GPTNeo(GPT2):
    """It never divides scores; in some blocks, a token sees only the last ones. Its matrices are as ours."""

    model_type, class_name, short = "gpt_neo", "GPTNeoForCausalLM", "GPT-Neo"
    names = _NAMES_OF_GPT_NEO
    optional = ("intermediate_size",)
    dropout_key, window_key = "resid_dropout", "window_size"
    has = frozenset({"attention", "bias"})
    windows, divides = "any", False

    def settings(self, given: Given) -> dict[str, Any]:
        given.ignore("attention_dropout")
        sizes = self.sizes(given)
        return sizes | {
            "activation": given.choice("activation_function", ACTIVATIONS, "gelu_new"),
            "dropout": given.number(self.dropout_key, 0.0),
            "norm_epsilon": own_epsilon(given, self.epsilon_key, 1e-5),
            "scale": "none",
            "attention_window": _windows(given, sizes["num_blocks"]),
        }

    def config(self, model: ModelConfig) -> dict[str, Any]:
        kinds = ["global" if window is None else "local" for window in model.windows]
        shortest = pattern(kinds)
        return {
            "max_position_embeddings": model.context_length,
            "hidden_size": model.d_model,
            "num_layers": model.num_blocks,
            "num_heads": model.num_heads,
            "intermediate_size": model.hidden_size,
            "attention_types": [[shortest, len(kinds) // len(shortest)]],
            "attention_layers": kinds,
            "window_size": next((window for window in model.windows if window), 256),
            "activation_function": NAMES[model.activation],
            "layer_norm_epsilon": model.epsilon,
            "attention_dropout": model.dropout,
            "resid_dropout": model.dropout,
            "embed_dropout": 0.0,
        }

    def attention(self, theirs: str, i: int, model: ModelConfig) -> dict[str, Recipe]:
        D, at = model.d_model, f"{theirs}.attention"
        found = dict[str, Recipe]()
        for name, parts in zip("qkv", projections(model, i, _undivided(model), per_head=True), strict=True):
            found |= projected(f"{at}.{name}_proj", parts, D, model, biased=False)
        return found | self.linear(f"{at}.out_proj", f"blocks.{i}.attention.projection_layer", D, D, model)

    def linear(self, theirs: str, ours: str, num_in: int, num_out: int, model: ModelConfig) -> dict[str, Recipe]:
        return linear(theirs, ours, num_in, num_out, model, biased=True)

    def notes(self, model: ModelConfig) -> Iterator[str]:
        yield from super().notes(model.changed(scale="head"))
        if model.scale == "head":
            yield f"scores are not divided there, so Wq is written {_undivided(model):.7g} times as large"


def _undivided(model: ModelConfig) -> float:
    """What divides scores by the square root of their width, where ours does."""
    return 1 / math.sqrt(model.query_size) if model.scale == "head" else 1.0


def _windows(given: Given, num_blocks: Any) -> list[int | None] | None:
    """The window of each block, from attention_layers, or from attention_types: [[kinds, how often], ...]."""
    width = given.whole("window_size", 256)
    types = given.get("attention_types") or [[["global", "local"], 12]]
    kinds = given.get("attention_layers")
    if kinds is None or given.content.get("attention_types") is not None:
        spread = _spread(types, num_blocks)
        if spread is None or (kinds is not None and kinds != spread):
            there = f"{brief(types)}, which does not give its {brief(num_blocks)} blocks one kind of attention each"
            given.refuse(f"attention_types is {there}")
            return None
        kinds = spread
    known = isinstance(kinds, list) and all(kind in ("global", "local") for kind in kinds)
    if not known or len(kinds) != num_blocks:
        given.refuse(f"attention_layers is {brief(kinds)}, but gpt has global, local, one for each block")
        return None
    return pattern([width if kind == "local" else None for kind in kinds])


def _spread(types: Any, num_blocks: Any) -> list[str] | None:
    """The kinds of all blocks; None where there are not as many as blocks."""
    spread = list[str]()
    if not isinstance(types, list) or not isinstance(num_blocks, int):
        return None
    for item in types:
        kinds, times = item if isinstance(item, list) and len(item) == 2 else (None, None)
        # a hostile file may ask for millions
        if not isinstance(kinds, list) or type(times) is not int or len(kinds) * times > min(num_blocks, 1024):
            return None
        spread += kinds * times
        if len(spread) > num_blocks:
            return None
    return spread if len(spread) == num_blocks else None
