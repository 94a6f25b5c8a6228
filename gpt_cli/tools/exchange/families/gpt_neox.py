"""GPT-NeoX (Black et al. 2022), the class of the Pythia models. Needs no torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any

from gpt_cli.config import ModelConfig
from gpt_cli.tools.exchange.export_tensors import Recipe, attention_output, projection_recipes, unscaled
from gpt_cli.tools.exchange.families.config_fields import ConfigFields, read_rope, rope_keys
from gpt_cli.tools.exchange.families.family import USUAL_NAMES, Family


class GPTNeoX(Family):
    """GPT-NeoX: rope on a part of each head, parallel branches, and one matrix that holds q, k and v head by head."""

    model_type, class_name = "gpt_neox", "GPTNeoXForCausalLM"
    prefix, embedding = "gpt_neox.", "gpt_neox.embed_in.weight"
    output, other_output = "embed_out.weight", "lm_head.weight"
    names = USUAL_NAMES
    dropout_key, epsilon_key = "hidden_dropout", "layer_norm_eps"
    blocks, final_norm = "layers", "final_layer_norm"
    layers: Mapping[str, str] = MappingProxyType({"dense_h_to_4h": "expand", "dense_4h_to_h": "contract"})
    has = frozenset({"parallel_branches", "rotary_size", "qkv_bias", "bias"})

    def settings(self, fields: ConfigFields) -> dict[str, Any]:
        fields.ignore("attention_dropout")
        settings = self.common(fields)
        rope, share = read_rope(fields, settings["context_length"], of_neox=True)
        if not 0 < share <= 1:
            fields.refuse(f"{share:g} is not a share of a head", "rotary_pct")
            share = 1
        # transformers rounds a part of a head so
        width, heads = settings["d_model"], settings["num_heads"]
        return {
            **settings,
            **rope,
            "rotary_size": int(width // heads * share) if width is not None and heads and heads > 0 else None,
            "parallel_branches": fields.switch("use_parallel_residual", True),
            "qkv_bias": fields.switch("attention_bias", True),
        }

    def config(self, model: ModelConfig) -> dict[str, Any]:
        share = model.turned_size / model.value_size
        if int(model.value_size * share) != model.turned_size:
            share = (model.turned_size + 0.5) / model.value_size  # of which transformers takes the whole part
        rope = rope_keys(model)
        rope["rope_parameters"]["partial_rotary_factor"] = share
        return {
            "attention_dropout": model.dropout,
            "use_parallel_residual": model.parallel_branches,
            "attention_bias": model.bias or model.qkv_bias,
            "rotary_emb_base": model.rope_base,
            "rotary_pct": share,
            **rope,
        }

    def attention(self, theirs: str, block: int, model: ModelConfig) -> dict[str, Recipe]:
        D, biased = model.d_model, model.bias or model.qkv_bias
        by_head = tuple(chain(*zip(*projection_recipes(model, block, unscaled(model)), strict=True)))
        at, output = f"{theirs}.attention", attention_output(block)
        recipes = self.linear(f"{at}.query_key_value", by_head, D, 3 * D, model.qkv_bias, biased=biased)
        return recipes | self.linear(f"{at}.dense", output, D, D, model.bias, biased=biased)

    def absent(self, fields: ConfigFields) -> re.Pattern[str] | None:
        biased = fields.switch("attention_bias", True)
        return None if biased else re.compile(r"\.attention\.(query_key_value|dense)\.bias$")
