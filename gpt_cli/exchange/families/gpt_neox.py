"""GPT-NeoX (Black et al. 2022), of which Pythia is. Needs no torch."""

from __future__ import annotations

import re
from itertools import chain
from typing import Any

from gpt_cli.config import ModelConfig
from gpt_cli.exchange.families.family import USUAL_NAMES, Family, own_epsilon
from gpt_cli.exchange.families.given import Given
from gpt_cli.exchange.families.gpt2 import ACTIVATIONS, NAMES
from gpt_cli.exchange.families.rope import read_rope, rope_keys
from gpt_cli.exchange.recipes import Recipe, copy, linear, norm, projected, projections, unscaled


class GPTNeoX(Family):
    """Rope turns a part of each head, both branches read the same input, and one matrix has q, k and v head by head."""

    model_type, class_name = "gpt_neox", "GPTNeoXForCausalLM"
    prefix, embedding = "gpt_neox.", "gpt_neox.embed_in.weight"
    output, other_output = "embed_out.weight", "lm_head.weight"
    names = USUAL_NAMES
    dropout_key, epsilon_key = "hidden_dropout", "layer_norm_eps"
    has = frozenset({"parallel_branches", "rotary_size", "qkv_bias", "bias"})

    def settings(self, given: Given) -> dict[str, Any]:
        given.ignore("attention_dropout")
        sizes = self.sizes(given)
        rope, share = read_rope(given, sizes["context_length"], of_neox=True)
        if not 0 < share <= 1:
            given.refuse(f"{share:g} is not a share of a head", "rotary_pct")
            share = 1
        return (
            sizes
            | rope
            | {
                "rotary_size": _turned(share, sizes["d_model"], sizes["num_heads"]),
                "activation": given.choice("hidden_act", ACTIVATIONS, "gelu"),
                "dropout": given.number(self.dropout_key, 0.0),
                "norm_epsilon": own_epsilon(given, self.epsilon_key, 1e-5),
                "parallel_branches": given.switch("use_parallel_residual", True),
                "qkv_bias": given.switch("attention_bias", True),
            }
        )

    def config(self, model: ModelConfig) -> dict[str, Any]:
        share = model.turned_size / model.value_size
        if int(model.value_size * share) != model.turned_size:
            share = (model.turned_size + 0.5) / model.value_size  # of which transformers takes the whole part
        rope = rope_keys(model)
        rope["rope_parameters"]["partial_rotary_factor"] = share
        return {
            "hidden_size": model.d_model,
            "intermediate_size": model.hidden_size,
            "num_hidden_layers": model.num_blocks,
            "num_attention_heads": model.num_heads,
            "hidden_act": NAMES[model.activation],
            "max_position_embeddings": model.context_length,
            "attention_dropout": model.dropout,
            self.dropout_key: model.dropout,
            self.epsilon_key: model.epsilon,
            "use_parallel_residual": model.parallel_branches,
            "attention_bias": model.bias or model.qkv_bias,
            "rotary_emb_base": model.rope_base,
            "rotary_pct": share,
            **rope,
        }

    def tensors(self, model: ModelConfig, vocab_size: int) -> dict[str, Recipe]:
        D, F = model.d_model, model.hidden_size
        biased = model.bias or model.qkv_bias
        tensors = {self.embedding: copy((vocab_size, D), "token_embedding.weight")}
        for i in range(model.num_blocks):
            ours, theirs = f"blocks.{i}", f"gpt_neox.layers.{i}"
            tensors |= norm(f"{theirs}.input_layernorm", f"{ours}.norm_1", model)
            tensors |= norm(f"{theirs}.post_attention_layernorm", f"{ours}.norm_2", model)
            by_head = tuple(chain(*zip(*projections(model, i, unscaled(model)), strict=True)))
            tensors |= projected(f"{theirs}.attention.query_key_value", by_head, 3 * D, model, biased=biased)
            projection_layer = f"{ours}.attention.projection_layer"
            tensors |= linear(f"{theirs}.attention.dense", projection_layer, D, D, model, biased=biased)
            tensors |= linear(f"{theirs}.mlp.dense_h_to_4h", f"{ours}.feed_forward.expand", D, F, model, biased=True)
            tensors |= linear(f"{theirs}.mlp.dense_4h_to_h", f"{ours}.feed_forward.contract", F, D, model, biased=True)
        return tensors | norm("gpt_neox.final_layer_norm", "final_norm", model)

    def absent(self, given: Given) -> re.Pattern[str] | None:
        biased = given.switch("attention_bias", True)
        return None if biased else re.compile(r"\.attention\.(query_key_value|dense)\.bias$")


def _turned(share: float, d_model: Any, num_heads: Any) -> int | None:
    """How much of a head rope turns, as transformers rounds it; None where the sizes are wrong."""
    if not (isinstance(d_model, int) and isinstance(num_heads, int) and num_heads > 0):
        return None
    return int(d_model // num_heads * share)
