"""Converters for GPT-2 (Radford et al. 2019), GPT-Neo (Black et al. 2021) and GPT-NeoX (Black et al. 2022).

GPT-2 and GPT-Neo have learned position embeddings; GPT-NeoX, the class of Pythia, has rope. Needs no torch.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from gpt_cli.config import ModelConfig
from gpt_cli.tools.exchange.export_tensors import Recipe, attention_output, projection_recipes
from gpt_cli.tools.exchange.families.config_fields import ConfigFields, brief, read_rope, rope_keys
from gpt_cli.tools.exchange.families.family import Family, pattern


class GPT2(Family):
    """Converter for GPT-2: its matrices are [in, out], the transpose of gpt_cli's; one matrix holds q, k and v."""

    model_type, class_name, short = "gpt2", "GPT2LMHeadModel", "GPT-2"
    prefix, embedding, tied = "transformer.", "transformer.wte.weight", True
    names: Mapping[str, str] = {
        "n_positions": "context_length",
        "n_embd": "d_model",
        "n_head": "num_heads",
        "n_layer": "num_blocks",
        "n_inner": "feed_forward_size",
    }
    optional = ("n_inner",)
    dropout_key, dropout, epsilon_key = "resid_pdrop", 0.1, "layer_norm_epsilon"
    activation_key, activation = "activation_function", "gelu_new"
    position_table, blocks, norms, final_norm = "wpe.weight", "h", ("ln_1", "ln_2"), "ln_f"
    transposes = True
    has = frozenset({"attention", "qkv_bias", "bias"})

    def settings(self, fields: ConfigFields) -> dict[str, Any]:
        fields.ignore("n_ctx", "reorder_and_upcast_attn")
        settings = self.common(fields)
        if fields.number("attn_pdrop", 0.1) != settings["dropout"]:
            fields.notices.append(f"gpt uses the value of resid_pdrop, {settings['dropout']:g}, for all dropout")
        return settings | {"scale": "head" if fields.switch("scale_attn_weights", True) else "none", "qkv_bias": True}

    def config(self, model: ModelConfig) -> dict[str, Any]:
        return {"attn_pdrop": model.dropout, "embd_pdrop": 0.0}

    def attention(self, theirs: str, block: int, model: ModelConfig) -> dict[str, Recipe]:
        D, at = model.d_model, f"{theirs}.attn"
        parts = tuple(chain(*projection_recipes(model, block, self.query_factor(model), per_head=True)))
        recipes = self.linear(f"{at}.c_attn", parts, D, 3 * D, model.qkv_bias)
        return recipes | self.linear(f"{at}.c_proj", attention_output(block), D, D, model.bias)

    def notes(self, model: ModelConfig) -> Iterator[str]:
        if model.attention == "grouped_query":
            copies = model.num_heads // model.key_value_heads
            yield f"{self.short} has no groups: it holds keys and values {copies} times, in its cache too"
        if model.attention == "latent":
            how = "gpt writes products of the matrices, and its cache holds keys and values"
            yield f"{self.short} has no latents: {how}"
        if model.positions == "sinusoidal":
            yield "the table of sinusoidal positions is a weight, which further training may change"
        yield from super().notes(model)


class GPTNeo(GPT2):
    """Converter for GPT-Neo: scores are never scaled, blocks may have local attention, and matrices are [out, in]."""

    model_type, class_name, short = "gpt_neo", "GPTNeoForCausalLM", "GPT-Neo"
    names: Mapping[str, str] = {
        "max_position_embeddings": "context_length",
        "hidden_size": "d_model",
        "num_heads": "num_heads",
        "num_layers": "num_blocks",
        "intermediate_size": "feed_forward_size",
    }
    optional = ("intermediate_size",)
    dropout_key, dropout, window_key = "resid_dropout", 0.0, "window_size"
    transposes = False
    has = frozenset({"attention", "bias"})
    windows, divides = "any", False

    def settings(self, fields: ConfigFields) -> dict[str, Any]:
        fields.ignore("attention_dropout")
        settings = self.common(fields)
        return settings | {"scale": "none", "attention_window": _windows(fields, settings["num_blocks"])}

    def config(self, model: ModelConfig) -> dict[str, Any]:
        kinds = ["global" if window is None else "local" for window in model.windows]
        shortest = pattern(kinds)
        return {
            "attention_types": [[shortest, len(kinds) // len(shortest)]],
            "attention_layers": kinds,
            "window_size": next((window for window in model.windows if window), 256),
            "attention_dropout": model.dropout,
            "embed_dropout": 0.0,
        }

    def attention(self, theirs: str, block: int, model: ModelConfig) -> dict[str, Recipe]:
        D, at, recipes = model.d_model, f"{theirs}.attn.attention", dict[str, Recipe]()
        by_name = projection_recipes(model, block, self.query_factor(model), per_head=True)
        for name, parts in zip("qkv", by_name, strict=True):
            recipes |= self.linear(f"{at}.{name}_proj", parts, D, D, model.qkv_bias, biased=False)
        return recipes | self.linear(f"{at}.out_proj", attention_output(block), D, D, model.bias)

    def notes(self, model: ModelConfig) -> Iterator[str]:
        yield from super().notes(model)
        if model.scale == "head":
            yield f"{self.short} does not divide scores, so gpt writes Wq {self.query_factor(model):.7g} times as large"


def _windows(fields: ConfigFields, num_blocks: Any) -> list[int | None] | None:
    """Return the shortest list of windows that, repeated, covers all blocks; None if `fields` recorded an error."""
    width = fields.whole("window_size", 256)
    types = fields.get("attention_types") or [[["global", "local"], 12]]
    kinds = fields.get("attention_layers")
    if kinds is None or fields.content.get("attention_types") is not None:
        if (spread := _spread(types, num_blocks)) is None or (kinds is not None and kinds != spread):
            there = f"{brief(types)}, which does not give its {brief(num_blocks)} blocks one kind of attention each"
            fields.refuse(f"attention_types is {there}")
            return None
        kinds = spread
    valid = isinstance(kinds, list) and all(kind in ("global", "local") for kind in kinds)
    if not valid or len(kinds) != num_blocks:
        fields.refuse(f"attention_layers is {brief(kinds)}, but gpt supports global, local, one for each block")
        return None
    return pattern([width if kind == "local" else None for kind in kinds])


def _spread(types: Any, num_blocks: Any) -> list[str] | None:
    """Expand attention_types, like [[["global", "local"], 6]], to a list; None if its length is not `num_blocks`."""
    spread = list[str]()
    if not isinstance(types, list) or not isinstance(num_blocks, int):
        return None
    for item in types:
        kinds, times = item if isinstance(item, list) and len(item) == 2 else (None, None)
        # a hostile file may ask for millions
        most = min(num_blocks - len(spread), 1024)
        if not isinstance(kinds, list) or type(times) is not int or len(kinds) * times > most:
            return None
        spread += kinds * times
    return spread if len(spread) == num_blocks else None


class GPTNeoX(Family):
    """Converter for GPT-NeoX: rope turns part of each head, branches are parallel, one matrix has q0 k0 v0 q1 ..."""

    model_type, class_name = "gpt_neox", "GPTNeoXForCausalLM"
    prefix, embedding = "gpt_neox.", "gpt_neox.embed_in.weight"
    output, other_output = "embed_out.weight", "lm_head.weight"
    dropout_key, epsilon_key = "hidden_dropout", "layer_norm_eps"
    blocks, final_norm = "layers", "final_layer_norm"
    layers: Mapping[str, str] = {"dense_h_to_4h": "expand", "dense_4h_to_h": "contract"}
    has = frozenset({"parallel_branches", "rotary_size", "qkv_bias", "bias"})

    def settings(self, fields: ConfigFields) -> dict[str, Any]:
        fields.ignore("attention_dropout")
        settings = self.common(fields)
        rope, share = read_rope(fields, settings["context_length"], of_neox=True)
        if not 0 < share <= 1:
            fields.refuse(f"{share:g} is not a share of a head", "rotary_pct")
            share = 1
        # transformers truncates the rotated part of a head in the same way
        width, heads = settings["d_model"], settings["num_heads"]
        return {
            **settings,
            **rope,
            "rotary_size": int(width // heads * share) if width is not None and heads and heads > 0 else None,
            "parallel_branches": fields.switch("use_parallel_residual", True),
            "qkv_bias": fields.switch("attention_bias", True),
        }

    def config(self, model: ModelConfig) -> dict[str, Any]:
        share = model.rotated_size / model.value_size
        if int(model.value_size * share) != model.rotated_size:
            share = (model.rotated_size + 0.5) / model.value_size  # which transformers truncates
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
        by_head = tuple(chain(*zip(*projection_recipes(model, block, self.query_factor(model)), strict=True)))
        at, output = f"{theirs}.attention", attention_output(block)
        recipes = self.linear(f"{at}.query_key_value", by_head, D, 3 * D, model.qkv_bias, biased=biased)
        return recipes | self.linear(f"{at}.dense", output, D, D, model.bias, biased=biased)

    def absent(self, fields: ConfigFields) -> re.Pattern[str] | None:
        biased = fields.switch("attention_bias", True)
        return None if biased else re.compile(r"\.attention\.(query_key_value|dense)\.bias$")
