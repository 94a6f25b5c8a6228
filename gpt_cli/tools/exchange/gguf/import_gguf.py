"""Read an untrusted GGUF file as if it were the transformers directory from which it was made. Needs no torch."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gpt_cli.common.strict_json import strict_json
from gpt_cli.errors import CheckpointError, shown
from gpt_cli.tools.exchange.families import FAMILIES
from gpt_cli.tools.exchange.families.config_fields import ConfigFields, brief
from gpt_cli.tools.exchange.families.family import Family
from gpt_cli.tools.exchange.gguf.architectures import (
    ARCHITECTURES,
    ROPE_FACTORS,
    SIZES,
    Architecture,
    arranged,
    rope_factors,
)
from gpt_cli.tools.exchange.gguf.reader import read_gguf_header
from gpt_cli.tools.exchange.hf_directory import ALL, Directory, HFTensor, read_numbers

_AS_IT_IS = "import the directory of transformers from which the file was made"
# published scalings of Llama 3's rope, because a file has the resulting factors, but not the scaling
_PUBLISHED = ({"factor": 8.0}, {"factor": 32.0})
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
_BLOCK_NUMBER = re.compile(r"blk\.(0|[1-9]\d{0,5})\.")
_IRRELEVANT = ("vocab_size", "tensor_data_layout")  # keys of an architecture on which no logit depends


@dataclass(frozen=True)
class GGUF(Directory):
    """A GGUF file as a `Directory`, with transformers' tensor names, shapes and row order; `keys`: the metadata."""

    keys: Mapping[str, Any]
    there: Mapping[str, tuple[HFTensor, str]]  # the position and the row order of each
    head_size: int

    def read_stored(self, name: str, rows: slice = ALL) -> np.ndarray:
        """Return `rows` of a tensor, in the row order of transformers; raise CheckpointError for NaN or inf."""
        stored, order = self.there[name]
        if order == "transposed":
            return arranged(read_numbers(stored, name), order, 1)[rows]
        if order == "as it is":
            return read_numbers(stored, name, rows)
        num_heads = stored.shape[0] // self.head_size // (3 if order == "by_head" else 1)
        places = arranged(np.arange(stored.shape[0]), order, num_heads, back=True)[rows]
        begin = places.min()
        return read_numbers(stored, name, slice(begin, places.max() + 1))[places - begin]


def read_gguf(path: Path) -> GGUF:
    """Return a GGUF file as a model directory; CheckpointError if it is damaged or gpt cannot represent the model."""
    keys, stored = read_gguf_header(path)
    where = shown(path)
    if not isinstance(name := keys.get("general.architecture"), str) or name not in ARCHITECTURES:
        sentence = f"it is a model of architecture {brief(name)}, but gpt reads {', '.join(ARCHITECTURES)} from GGUF"
        raise CheckpointError(where, sentence)
    architecture, export_info = ARCHITECTURES[name], _export_info(keys)
    theirs = export_info.get("transformers")
    theirs = theirs if isinstance(theirs, dict) else {}
    kind = theirs.get("model_type")
    family = FAMILIES[kind if kind in architecture.types else architecture.types[0]]
    left = {key: value for key, value in keys.items() if key.startswith(f"{name}.")}
    config = _config(architecture, family, left, stored, theirs, where)
    tensors = {there: tensor for there, tensor in stored.items() if there != ROPE_FACTORS}
    if ROPE_FACTORS in stored:
        config |= _scaling(read_numbers(stored[ROPE_FACTORS], ROPE_FACTORS), theirs, config, where)
    for key, value in left.items():
        if key.removeprefix(f"{name}.") not in _IRRELEVANT:
            raise CheckpointError(where, f"{shown(key)} is {brief(value)}, which gpt does not support", hint=_AS_IT_IS)
    names = architecture.names(family, {match[1] for match in map(_BLOCK_NUMBER.match, tensors) if match})
    if unknown := sorted(tensors.keys() - names.keys()):
        raise CheckpointError(where, f"{shown(unknown[0])} is not a tensor of {name} that gpt supports", hint=_AS_IT_IS)
    if export_info:
        config["gpt_cli"] = export_info
    places = {names[there]: (tensor, architecture.order(names[there])) for there, tensor in tensors.items()}
    size = _head_size(config)
    presented = dict[str, HFTensor]()
    for full, (tensor, order) in places.items():
        rows = size * (3 if order == "by_head" else 1)
        if order in ("permuted", "by_head") and (not tensor.shape or tensor.shape[0] % rows or size % 2):
            raise CheckpointError(where, f"{shown(full)} does not consist of heads of {size:,}")
        dtype = "F32" if tensor.dtype == "Q8_0" else tensor.dtype
        shape = tensor.shape[::-1] if order == "transposed" else tensor.shape
        presented[full] = replace(tensor, dtype=dtype, shape=shape)
    model = GGUF(path, config, presented, keys, places, size)
    if architecture.always_biased and (absent := family.absent(ConfigFields(config, where, _AS_IT_IS))):
        # the biases that llama.cpp requires and the model lacks
        zeros = {one for one in presented if absent.search(one) and not model.read_stored(one).any()}
        model = replace(model, tensors={one: tensor for one, tensor in presented.items() if one not in zeros})
    return model


def _export_info(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object that `gpt export` stored under the key `gpt_cli`; an empty dict if it is missing or invalid."""
    content = keys.get("gpt_cli")
    try:
        export_info = strict_json(content) if isinstance(content, str) else {}
    except (ValueError, RecursionError):
        return {}
    return export_info if isinstance(export_info, dict) else {}


def _config(
    architecture: Architecture,
    family: Family,
    left: dict[str, Any],
    stored: Mapping[str, HFTensor],
    theirs: Mapping[str, Any],
    where: str,
) -> dict[str, Any]:
    """Build a transformers config.json for a GGUF file from the metadata `left` and from an export's config `theirs`.

    Used keys are removed from `left`; `theirs` is {} for a file in which `gpt export` did not store a config.
    """

    def taken(key: str, default: Any = None) -> Any:
        return left.pop(f"{architecture.name}.{key}", default)

    def require(key: str, value: Any) -> None:
        if (there := taken(key, value)) != value:
            sentence = f"{architecture.name}.{key} is {brief(there)}, but gpt supports {brief(value)}"
            raise CheckpointError(where, sentence, hint=_AS_IT_IS)

    config: dict[str, Any] = {key: value for key, value in theirs.items() if "rope" not in key}
    sizes = {ours: taken(key) for ours, key in SIZES.items()}
    config |= {key: sizes[ours] for key, ours in family.names.items()}
    config |= {"model_type": family.model_type, family.epsilon_key: taken(architecture.epsilon_key)}
    activation = config.get(family.activation_key)
    if not isinstance(activation, str) or family.activations.get(activation) not in architecture.activations:
        fits = family.activations[family.activation] in architecture.activations
        names = {ours: name for name, ours in family.activations.items()}
        config[family.activation_key] = family.activation if fits else names[architecture.activations[-1]]
    biased = "blk.0.attn_output.bias" in stored
    said = {
        "starcoder2": {"use_bias": biased},
        "llama": {"attention_bias": biased, "mlp_bias": "blk.0.ffn_up.bias" in stored},
    }
    config = {"tie_word_embeddings": "output.weight" not in stored, **said.get(family.model_type, {}), **config}
    if family.position_table is not None:
        taken("attention.head_count_kv")
        return config
    size = taken("attention.key_length", _quotient(sizes["d_model"], sizes["num_heads"]))
    require("attention.value_length", size)
    require("rope.scaling.type", "none")
    config["rope_theta"] = taken("rope.freq_base", 10000.0)
    if family.model_type != "gpt_neox":
        require("rope.dimension_count", size)
        return config | {"num_key_value_heads": taken("attention.head_count_kv", sizes["num_heads"]), "head_dim": size}
    require("attention.head_count_kv", sizes["num_heads"])
    share = _quotient(taken("rope.dimension_count", size), size, whole=False)
    return config | {"rotary_pct": share, "use_parallel_residual": taken("use_parallel_residual", True)}


def _quotient(one: Any, two: Any, *, whole: bool = True) -> Any:
    """Return the size one // two or, if not `whole`, a fraction f with int(f * two) == one; None for invalid sizes."""
    if not (type(one) is int and type(two) is int and 0 < two <= 2**31 and 0 <= one <= 2**31):
        return None
    if whole:
        return one // two
    return one / two if int(two * (one / two)) == one else (one + 0.5) / two


def _head_size(config: Mapping[str, Any]) -> int:
    """Return the head size of a config.json: head_dim or hidden_size / num_attention_heads; 1 if neither is valid."""
    size = config.get("head_dim") or _quotient(config.get("hidden_size"), config.get("num_attention_heads"))
    return size if type(size) is int and size > 0 else 1


def _scaling(factors: np.ndarray, theirs: Mapping[str, Any], config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the key rope_scaling that gives `factors`, from `theirs` or Llama 3; CheckpointError if neither fits."""
    base, size = config.get("rope_theta"), _head_size(config)
    said = theirs.get("rope_scaling")
    for one in (*([said] if isinstance(said, dict) else []), *({**_LLAMA3, **factor} for factor in _PUBLISHED)):
        scaling = {key: one.get(key) for key in ("factor", *_LLAMA3)}
        valid = all(type(value) in (int, float) and 0 < value < 2**31 for value in [base, *scaling.values()])
        if not valid or one["high_freq_factor"] <= one["low_freq_factor"] or factors.shape != (size // 2,):
            continue
        if np.allclose(rope_factors({"rope_scaling": scaling, "rope_theta": base}, size), factors, rtol=1e-5, atol=0):
            return {"rope_scaling": {"rope_type": "llama3", **scaling}}
    raise CheckpointError(where, "its rope is scaled by factors that are not those of Llama 3", hint=_AS_IT_IS)
