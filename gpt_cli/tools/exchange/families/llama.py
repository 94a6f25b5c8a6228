"""Converters for Llama (Touvron et al. 2023) and classes with mostly the same tensor names. Needs no torch."""

import re
from collections.abc import Mapping
from typing import Any

from gpt_cli.config import ModelConfig
from gpt_cli.tools.exchange.export_tensors import Part, Recipe, attention_output, copy, projection_recipes
from gpt_cli.tools.exchange.families.config_fields import ConfigFields, brief, read_rope, rope_keys
from gpt_cli.tools.exchange.families.family import ACTIVATIONS, PLAIN_LAYERS, Family, pattern


class Llama(Family):
    """Converter for Llama: RMSNorm, rope, grouped-query attention, a gated feed-forward part."""

    model_type, class_name = "llama", "LlamaForCausalLM"
    prefix, embedding = "model.", "model.embed_tokens.weight"
    dropout_key, epsilon_key = "attention_dropout", "rms_norm_eps"
    has = frozenset({"attention", "head_size", "bias", "qkv_bias"})
    whole_heads = True
    blocks, final_norm = "layers", "norm"
    activations: Mapping[str, str] = {"swish": "swiglu", "silu": "swiglu", "gelu": "geglu"}  # last: usual
    # the defaults of config.json
    activation = "silu"
    epsilon = 1e-6
    head_dim: int | None = None
    num_key_value_heads: int | None = None
    always_qkv = False  # whether q, k and v have biases in any case
    layers: Mapping[str, str] = {"gate_proj": "gate", "up_proj": "expand", "down_proj": "contract"}

    def biased(self, fields: ConfigFields) -> tuple[bool, bool]:
        """Return, from a config.json, whether attention has biases and whether the feed-forward part has biases."""
        return fields.switch("attention_bias", False), fields.switch("mlp_bias", False)

    def bias_keys(self, model: ModelConfig) -> dict[str, Any]:
        """Return config.json keys, with values for `model`, that only some classes here have, such as mlp_bias."""
        return {"attention_bias": model.bias or model.qkv_bias, "mlp_bias": model.bias}

    def window(self, fields: ConfigFields, num_blocks: int | None) -> list[int | None] | None:
        """Return a list of attention windows that, repeated, covers all blocks; None or [None] means full attention."""
        return None

    def settings(self, fields: ConfigFields) -> dict[str, Any]:
        sizes = self.common(fields)
        rope, _ = read_rope(fields, sizes["context_length"])
        heads, width = sizes["num_heads"], fields.whole("head_dim", self.head_dim, optional=True)
        shared = fields.whole("num_key_value_heads", self.num_key_value_heads, optional=True)
        grouped = shared not in (None, heads)
        of_attention, of_feed_forward = self.biased(fields)
        rms = self.epsilon_key == "rms_norm_eps"
        return {
            **sizes,
            **rope,
            "attention": "grouped_query" if grouped else "multi_head",
            "num_key_value_heads": shared if grouped else None,
            "head_size": None if heads is None or width is None or width * heads == sizes["d_model"] else width,
            "norm": "rmsnorm" if rms else "layernorm",
            "qk_norm": "qk_norm" in self.has,
            "attention_window": self.window(fields, sizes["num_blocks"]),
            # each layernorm has a bias
            "bias": of_attention or of_feed_forward or not rms,
            "qkv_bias": of_attention or self.always_qkv,
        }

    def absent(self, fields: ConfigFields) -> re.Pattern[str] | None:
        of_attention, of_feed_forward = self.biased(fields)
        if of_attention == of_feed_forward and (of_attention or self.epsilon_key == "rms_norm_eps"):
            return None
        parts = ["self_attn"] * (not of_attention) + ["mlp"] * (not of_feed_forward)
        return re.compile(rf"\.({'|'.join(parts)})\.\w+\.bias$")

    def config(self, model: ModelConfig) -> dict[str, Any]:
        sizes = {"num_key_value_heads": model.key_value_heads, "head_dim": model.value_size}
        return {**sizes, **rope_keys(model), **self.bias_keys(model)}

    def attention(self, theirs: str, block: int, model: ModelConfig) -> dict[str, Recipe]:
        D, K, H, G = model.d_model, model.value_size, model.num_heads, model.key_value_heads
        of_qkv, of_output, _ = self.written_biases(model)
        ours, at = f"blocks.{block}.attention", f"{theirs}.self_attn"
        # the factor that undoes the scale of scores belongs to the last layer that changes the length of queries
        factor, tensors = self.query_factor(model), dict[str, Recipe]()
        parts = projection_recipes(model, block, 1.0 if model.qk_norm else factor)
        for name, heads, of_name in zip("qkv", (H, G, G), parts, strict=True):
            tensors |= self.linear(f"{at}.{name}_proj", of_name, D, heads * K, model.qkv_bias, biased=of_qkv)
        tensors |= self.linear(f"{at}.o_proj", attention_output(block), H * K, D, model.bias, biased=of_output)
        if model.qk_norm:
            tensors[f"{at}.q_norm.weight"] = Recipe((K,), (Part((f"{ours}.query_norm.weight",), factor),))
            tensors[f"{at}.k_norm.weight"] = copy((K,), f"{ours}.key_norm.weight")
        return tensors

    def written_biases(self, model: ModelConfig) -> tuple[bool, bool, bool]:
        of_attention = model.bias or model.qkv_bias
        return of_attention or self.always_qkv, of_attention and not self.always_qkv, model.bias


class Mistral(Llama):
    """Converter for Mistral (Jiang et al. 2023): Llama without biases, with the same attention window in all blocks."""

    model_type, class_name = "mistral", "MistralForCausalLM"
    has = frozenset({"attention", "head_size"})
    windows, whole_heads = "same", False
    num_key_value_heads = 8
    sliding_window: int | None = 4096

    def biased(self, fields: ConfigFields) -> tuple[bool, bool]:
        return False, False

    def bias_keys(self, model: ModelConfig) -> dict[str, Any]:
        return {"sliding_window": model.windows[0]}

    def window(self, fields: ConfigFields, num_blocks: int | None) -> list[int | None] | None:
        # [null] means no window either, and marks a model that was not exported as Llama
        return [fields.whole("sliding_window", self.sliding_window, optional=True)]


class Starcoder2(Mistral):
    """Converter for Starcoder2 (Lozhkov et al. 2024): layernorm, no gate, biases in all linear layers or in none."""

    model_type, class_name, tied = "starcoder2", "Starcoder2ForCausalLM", True
    has = frozenset({"attention", "head_size", "bias", "qkv_bias"})
    activations, activation = ACTIVATIONS, "gelu_pytorch_tanh"
    epsilon_key, epsilon = "norm_epsilon", 1e-5
    num_key_value_heads, sliding_window = 2, None
    layers = PLAIN_LAYERS

    def biased(self, fields: ConfigFields) -> tuple[bool, bool]:
        fields.ignore("residual_dropout")
        biased = fields.switch("use_bias", True)
        return biased, biased

    def bias_keys(self, model: ModelConfig) -> dict[str, Any]:
        keys = {"use_bias": model.bias or model.qkv_bias, **super().bias_keys(model)}
        return {**keys, "residual_dropout": model.dropout, "embedding_dropout": 0.0}

    def window(self, fields: ConfigFields, num_blocks: int | None) -> list[int | None] | None:
        windows = super().window(fields, num_blocks)
        return None if windows == [None] else windows

    def written_biases(self, model: ModelConfig) -> tuple[bool, bool, bool]:
        biased = model.bias or model.qkv_bias
        return biased, biased, biased


class Arcee(Llama):
    """Converter for Arcee (Arcee AI 2025): Llama without a gate in the feed-forward part."""

    model_type, class_name = "arcee", "ArceeForCausalLM"
    activations, activation, epsilon = ACTIVATIONS, "relu2", 1e-5
    layers: Mapping[str, str] = {"up_proj": "expand", "down_proj": "contract"}


class Qwen2(Mistral):
    """Converter for Qwen2 (Yang et al. 2024): biases only in q, k and v; some blocks may have attention windows."""

    model_type, class_name = "qwen2", "Qwen2ForCausalLM"
    has = frozenset({"attention", "head_size", "qkv_bias"})
    windows, always_qkv = "any", True
    num_key_value_heads = 32

    def bias_keys(self, model: ModelConfig) -> dict[str, Any]:
        kinds = ["full_attention" if window is None else "sliding_attention" for window in model.windows]
        width = next((window for window in model.windows if window), None)
        keys = {"use_sliding_window": width is not None, "sliding_window": width, "layer_types": kinds}
        return {**keys, "max_window_layers": kinds.count("full_attention")}

    def window(self, fields: ConfigFields, num_blocks: int | None) -> list[int | None] | None:
        used = fields.switch("use_sliding_window", False)
        width = fields.whole("sliding_window", self.sliding_window, optional=True)
        first, kinds = fields.whole("max_window_layers", 28), fields.get("layer_types")
        width = width if used else None
        if num_blocks is None or not 0 < num_blocks <= 1024 or first is None:
            return None  # which is refused elsewhere
        if kinds is None:
            kinds = ["sliding_attention" if width and i >= first else "full_attention" for i in range(num_blocks)]
        valid = isinstance(kinds, list) and all(kind in ("full_attention", "sliding_attention") for kind in kinds)
        if not valid or len(kinds) != num_blocks:
            needed = "but gpt supports full_attention, sliding_attention, one for each block"
            fields.refuse(f"layer_types is {brief(kinds)}, {needed}")
            return None
        if width is None and "sliding_attention" in kinds:
            fields.refuse("layer_types has sliding_attention, but no sliding_window is used")
        windows = [width if kind == "sliding_attention" else None for kind in kinds]
        return None if set(windows) == {None} else pattern(windows)


class Qwen3(Qwen2):
    """Converter for Qwen3 (Yang et al. 2025): RMSNorm of each head's queries and keys; head_dim is 128 by default."""

    model_type, class_name = "qwen3", "Qwen3ForCausalLM"
    has = frozenset({"attention", "head_size", "qk_norm", "qkv_bias"})
    head_dim, always_qkv = 128, False

    def biased(self, fields: ConfigFields) -> tuple[bool, bool]:
        return fields.switch("attention_bias", False), False

    def bias_keys(self, model: ModelConfig) -> dict[str, Any]:
        return {"attention_bias": model.qkv_bias, **super().bias_keys(model)}
