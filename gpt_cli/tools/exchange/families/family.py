"""Base class of the converters between transformers classes and gpt_cli models. Needs no torch."""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

from gpt_cli.config import ModelConfig
from gpt_cli.tools.exchange.export_tensors import Part, Recipe, copy, norm
from gpt_cli.tools.exchange.families.config_fields import LLAMA3, ConfigFields

_T = TypeVar("_T")
PLAIN_LAYERS = {"c_fc": "expand", "c_proj": "contract"}  # layers of the feed-forward part -> gpt_cli names
# activations in transformers -> gpt_cli; of two names for one function, the last is the usual one
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu2",
}
# settings of gpt_cli -> keys of config.json in errors, unless a family has another key
_KEYS = {"head_size": "head_dim", "rotary_size": "rotary_pct", "rope_base": "rope_theta", **LLAMA3}


class Family(ABC):
    """Converter for one transformers class; its attributes are the names and default values of that class.

    It translates config.json to gpt_cli settings and back, and has a recipe for each tensor of an export.
    """

    model_type: str
    class_name: str
    prefix: str  # of all tensors but the output layer
    embedding: str
    output = "lm_head.weight"
    other_output: str | None = None  # the name of `output` in other versions
    tied = False  # if config.json does not say
    names: Mapping[str, str] = {  # keys of config.json -> settings of gpt_cli with the same value
        "max_position_embeddings": "context_length",
        "hidden_size": "d_model",
        "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_blocks",
        "intermediate_size": "feed_forward_size",
    }
    optional: tuple[str, ...] = ()  # keys of `names` that may be absent or null
    dropout_key: str
    dropout = 0.0  # this and the values below are the defaults of config.json
    epsilon_key: str
    epsilon = 1e-5
    activation_key = "hidden_act"
    activation = "gelu"
    activations: Mapping[str, str] = ACTIVATIONS
    window_key = "sliding_window"
    # names of tensors, without those of the modules around them
    blocks: str
    norms: tuple[str, str] = ("input_layernorm", "post_attention_layernorm")
    layers: Mapping[str, str] = PLAIN_LAYERS  # of the feed-forward part -> gpt_cli names
    final_norm: str
    position_table: str | None = None
    transposes = False  # its matrices are [in, out]
    # other features that the class has
    has: frozenset[str] = frozenset()
    windows: Literal["none", "same", "any"] = "none"  # of blocks; all windows have one width
    divides = True  # whether scores are divided by the square root of the width of queries
    whole_heads = False  # whether d_model must be a multiple of num_heads

    @abstractmethod
    def settings(self, fields: ConfigFields) -> dict[str, Any]:
        """Convert the config.json in `fields` to gpt_cli model settings; record errors in `fields`."""

    @abstractmethod
    def config(self, model: ModelConfig) -> dict[str, Any]:
        """Return the config.json keys of this family that `common_keys` lacks, with their values for `model`."""

    @abstractmethod
    def attention(self, theirs: str, block: int, model: ModelConfig) -> dict[str, Recipe]:
        """Map attention tensors of a block, `theirs` in transformers, to Recipes that make them of gpt's weights."""

    def tensors(self, model: ModelConfig, vocab_size: int) -> dict[str, Recipe]:
        """Map each tensor's name in transformers to its recipe from gpt_cli weights; a tied output layer has none."""
        D, F = model.d_model, model.hidden_size
        tensors = {self.embedding: copy((vocab_size, D), "token_embedding.weight")}
        if self.position_table is not None:
            table = {"learned": "position_embedding.weight", "sinusoidal": "position_embedding.table"}
            parts = (Part((table[model.positions],)),) if model.positions in table else ()
            tensors[f"{self.prefix}{self.position_table}"] = Recipe((model.context_length, D), parts)
        _, _, biased = self.written_biases(model)
        for i in range(model.num_blocks):
            ours, theirs = f"blocks.{i}", f"{self.prefix}{self.blocks}.{i}"
            tensors |= norm(f"{theirs}.{self.norms[0]}", f"{ours}.norm_1", model)
            tensors |= self.attention(theirs, i, model)
            tensors |= norm(f"{theirs}.{self.norms[1]}", f"{ours}.norm_2", model)
            for name, layer in self.layers.items():
                sizes = (F, D) if layer == "contract" else (D, F)
                parts = (Part((f"{ours}.feed_forward.{layer}.weight",)),)
                tensors |= self.linear(f"{theirs}.mlp.{name}", parts, *sizes, model.bias, biased=biased)
        tensors |= norm(f"{self.prefix}{self.final_norm}", "final_norm", model)
        if not model.tie_embeddings:
            tensors[self.output] = copy((vocab_size, D), "output_layer.weight")
        return tensors

    def linear(
        self, theirs: str, parts: tuple[Part, ...], num_in: int, num_out: int, has_bias: bool, *, biased: bool = True
    ) -> dict[str, Recipe]:
        """Return the recipes of the transformers layer `theirs`: a weight, made of `parts`, and, if `biased`, a bias.

        The bias is that of gpt's layer if `has_bias`, else zeros. The layer maps `num_in` to `num_out` numbers.
        """
        shape = (num_in, num_out) if self.transposes else (num_out, num_in)
        recipes = {f"{theirs}.weight": Recipe(shape, parts, self.transposes)}
        if biased:
            with_bias = parts if has_bias else ()
            ours = tuple(Part((name.removesuffix("weight") + "bias",), factor) for (name,), factor in with_bias)
            recipes[f"{theirs}.bias"] = Recipe((num_out,), ours)
        return recipes

    def written_biases(self, model: ModelConfig) -> tuple[bool, bool, bool]:
        """Return whether exports have biases in q, k and v, in the attention output, and in feed-forward layers."""
        return True, True, True

    def absent(self, fields: ConfigFields) -> re.Pattern[str] | None:
        """Return a pattern for the names of biases that gpt's model has and the file lacks; None if it lacks none."""
        return None

    def query_factor(self, model: ModelConfig) -> float:
        """Factor for queries if only one of `model` and the class divides scores by √query_size; 1.0 otherwise."""
        if self.divides == (model.scale == "head"):
            return 1.0
        return math.sqrt(model.query_size) if self.divides else 1 / math.sqrt(model.query_size)

    def notes(self, model: ModelConfig) -> Iterator[str]:
        """Yield sentences on what the transformers class computes differently from gpt."""
        if self.divides and model.scale == "none":
            size, factor, what = model.query_size, self.query_factor(model), "q_norm" if model.qk_norm else "Wq"
            yield f"{self.class_name} divides scores by √{size}, so gpt writes {what} {factor:.7g} times as large"

    def misfits(self, model: ModelConfig) -> Iterator[tuple[str, str]]:
        """Yield (setting, sentence) for each setting that the class lacks; the sentence names a value that works."""
        windows = set(model.windows)
        activations = [*self.activations.values()]
        features = {
            "activation": (model.activation not in activations, activations[0]),
            "parallel_branches": (model.parallel_branches, "false"),
            "qk_norm": (model.qk_norm, "false"),
            "rotary_size": (model.positions == "rope" and model.rotated_size < model.value_size, "null"),
            "attention": (model.attention != "multi_head", "multi_head"),
            "qkv_bias": (model.qkv_bias, "false"),
            "bias": (model.bias, "false"),
        }
        wrong = {key: value for key, (is_used, value) in features.items() if is_used and key not in self.has}
        has_any_size = "head_size" in self.has and not (self.whole_heads and model.d_model % model.num_heads)
        if model.value_size * model.num_heads != model.d_model and not has_any_size:
            wrong["head_size"] = "null"
        if self.windows == "none" and windows != {None}:
            wrong["attention_window"] = "null"
        elif self.windows == "same" and len(windows) > 1:
            wrong["attention_window"] = "one number"
        elif len(windows - {None}) > 1:
            wrong["attention_window"] = "one number, or a list of it and null,"
        for key, value in wrong.items():
            yield key, f"{self.class_name}, the nearest class of transformers, lacks this; {value} can be exported"

    def key_of(self, setting: str) -> str:
        """Return the config.json key that corresponds to a gpt_cli setting."""
        of_family = {"dropout": self.dropout_key, "norm_epsilon": self.epsilon_key, "attention_window": self.window_key}
        return {**_KEYS, **of_family, **{ours: key for key, ours in self.names.items()}}.get(setting, setting)

    def common(self, fields: ConfigFields) -> dict[str, Any]:
        """Return the gpt_cli settings that every family has, read from a config.json."""
        if not fields.switch("is_causal", True):  # the one key whose false changes logits in every class
            fields.refuse("is_causal is false, which gpt does not support")
        settings = {ours: fields.whole(key, optional=key in self.optional) for key, ours in self.names.items()}
        epsilon = fields.number(self.epsilon_key, self.epsilon)
        usual = 1e-6 if self.epsilon_key == "rms_norm_eps" else 1e-5
        return {
            **settings,
            "tie_embeddings": fields.switch("tie_word_embeddings", self.tied),
            "activation": fields.choice(self.activation_key, self.activations, self.activation),
            "dropout": fields.number(self.dropout_key, self.dropout),
            "norm_epsilon": None if epsilon == usual else epsilon,
        }

    def common_keys(self, model: ModelConfig, vocab_size: int) -> dict[str, Any]:
        """Return the config.json keys that all families have, with the values of `model`, even default values."""
        sizes = {**model.model_dump(), "feed_forward_size": model.hidden_size}
        return {
            "architectures": [self.class_name],
            "model_type": self.model_type,
            "vocab_size": vocab_size,
            "bos_token_id": vocab_size - 1,
            "eos_token_id": vocab_size - 1,
            "tie_word_embeddings": model.tie_embeddings,
            "initializer_range": 0.02,
            "use_cache": True,
            "dtype": "float32",
            **{key: sizes[ours] for key, ours in self.names.items()},
            self.activation_key: {ours: name for name, ours in self.activations.items()}[model.activation],
            self.dropout_key: model.dropout,
            self.epsilon_key: model.epsilon,
        }


def pattern(windows: Sequence[_T]) -> list[_T]:
    """Return the shortest list that, repeated, equals `windows`."""
    for size in range(1, len(windows)):
        if len(windows) % size == 0 and list(windows[:size]) * (len(windows) // size) == list(windows):
            return list(windows[:size])
    return list(windows)
