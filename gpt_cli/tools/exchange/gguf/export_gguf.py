"""Write a model as GGUF, and a Modelfile with which Ollama imports the file."""

import json
import math
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from gpt_cli.checkpoints.checkpoint import Checkpoint, type_of
from gpt_cli.common.files import Buffer, write_durably
from gpt_cli.config import ModelConfig
from gpt_cli.errors import UsageError, visible
from gpt_cli.text.chat_templates import builtin_template, template_for
from gpt_cli.tools.exchange.export_hf import computed, dtype_of, licences, own_keys, shareable
from gpt_cli.tools.exchange.export_tensors import Fit, Recipe
from gpt_cli.tools.exchange.gguf.architectures import (
    ROPE_FACTORS,
    SIZES,
    Architecture,
    architecture_of,
    arranged,
    rope_factors,
    tensors_there,
)
from gpt_cli.tools.exchange.gguf.tokenizer import CHAT_TEMPLATE, metadata_of
from gpt_cli.tools.exchange.hf_directory import IN_BLOCK
from gpt_cli.tools.exchange.request import MODELFILE
from gpt_cli.tools.exchange.tokenizer_json import chat_template

_ALIGNMENT = 32
_FILE_TYPES = {"F32": 0, "F16": 1, "Q8_0": 7, "BF16": 32}  # for programs that list files
_GELU = "llama.cpp takes GELU from a table in float16, so log-probabilities may differ in the third decimal"
_MODELFILE = '''\
# written by gpt export: ollama create {name} -f Modelfile
FROM ./{file}
TEMPLATE """{template}"""
PARAMETER num_ctx {context}
PARAMETER temperature 0.8
PARAMETER top_k 0
PARAMETER top_p 1
PARAMETER repeat_penalty 1
'''


class _Info(NamedTuple):
    """Shape and type of a tensor in the GGUF file."""

    shape: tuple[int, ...]
    type: str


def write_gguf(out: Path, checkpoint: Checkpoint, name: str, kind: str | None) -> tuple[str, int, list[str]]:
    """Write the model `name` as GGUF, with a Modelfile: matrices in type `kind` (None: unchanged), the rest in float32.

    Returns the architecture's name, the number of values in the file, and sentences on how llama.cpp differs from gpt.
    Raises UsageError if no architecture fits, CheckpointError for weights that do not fit their config,
    EnvironmentFailure if a file cannot be written.
    """
    tokenizer, config, progress = checkpoint.tokenizer, shareable(checkpoint.config), checkpoint.progress
    chosen, family, fitted = architecture_of(config.model, tokenizer.vocab_size)
    ours = dict(checkpoint.weights) | dict(checkpoint.build_model().named_buffers())
    (vocabulary, notices), factors = metadata_of(tokenizer), None
    tensors = tensors_there(chosen, family, fitted, config.model.num_blocks)
    infos = {
        there: _info(there, chosen.order(theirs), recipe, ours, kind) for there, (theirs, recipe) in tensors.items()
    }
    keys = {
        "general.type": "model",
        "general.name": visible(name),
        "general.file_type": _FILE_TYPES[infos["token_embd.weight"].type],
        "general.quantization_version": 2,
        **_sizes(chosen, config.model, fitted),
        **vocabulary,
        "gpt_cli": json.dumps({**own_keys(config, tokenizer), "transformers": fitted.config}, ensure_ascii=False),
    }
    if template := chat_template(config, tokenizer) or builtin_template(tokenizer):
        keys[CHAT_TEMPLATE] = template
    if progress.step and progress.num_training_tokens and (licence_text := licences(config)):
        keys["general.description"] = f"Licences of the texts that it learned from: {licence_text}"
    if "rope_scaling" in fitted.config:
        factors = rope_factors(fitted.config, config.model.rotated_size)
        infos = {ROPE_FACTORS: _Info(factors.shape, "F32"), **infos}

    def contents() -> Iterator[Buffer]:
        yield _header(chosen.name, keys, infos)
        if factors is not None:
            yield _padded(factors.tobytes())
        for there, (theirs, recipe) in tensors.items():  # one tensor at a time is in memory beside the model
            heads = config.model.key_value_heads if ".k_proj." in theirs else config.model.num_heads
            rows = arranged(computed(recipe, ours), chosen.order(theirs), heads)
            yield _padded(_bytes(rows, infos[there].type))

    write_durably(out, contents())
    ollama_name = re.sub(r"[^a-z0-9._-]+", "-", out.stem.lower()).strip("-._") or "model"
    template = "{{ .Prompt }}"
    if config.data.loss is not None:  # a model that answers
        chat = template_for(config.data.template, tokenizer)
        before, after = chat.default_turn() + chat.before[1], chat.after[1] + chat.before[2]
        template = _plain(before) + template + _plain(after)
    context = config.model.context_length
    modelfile = _MODELFILE.format(name=ollama_name, file=out.name, template=template, context=context)
    write_durably(out.with_name(MODELFILE), [modelfile.encode("utf-8", "surrogateescape")])
    notes = [*fitted.notes, *notices]
    if config.model.activation in ("gelu", "gelu_tanh"):
        notes.append(_GELU)
    return chosen.name, sum(math.prod(info.shape) for info in infos.values()), notes


def _plain(text: str) -> str:
    """Return a text as part of an Ollama template, quoted if it could end the template or act as its code."""
    return f"{{{{ {json.dumps(text)} }}}}" if '"' in text or "{" in text else text


def _sizes(chosen: Architecture, model: ModelConfig, fitted: Fit) -> dict[str, Any]:
    """Return the GGUF metadata with the sizes, the norm epsilon and the rope settings of `model`."""
    sizes = {**model.model_dump(), "feed_forward_size": model.hidden_size}
    keys: dict[str, Any] = {there: sizes[ours] for ours, there in SIZES.items()}
    keys[chosen.epsilon_key] = float(model.epsilon)
    if model.positions == "rope":
        keys["attention.head_count_kv"] = fitted.config.get("num_key_value_heads", model.num_heads)
        keys["attention.key_length"] = keys["attention.value_length"] = model.value_size
        keys["rope.dimension_count"], keys["rope.freq_base"] = model.rotated_size, float(model.rope_base)
    if chosen.name == "gptneox":
        keys["use_parallel_residual"] = model.parallel_branches
    return {f"{chosen.name}.{key}": value for key, value in keys.items()}


def _info(there: str, order: str, recipe: Recipe, ours: Mapping[str, Tensor], kind: str | None) -> _Info:
    """Return shape and type of the GGUF tensor `there`: F32 for vectors and positions, else `kind` (None: as is)."""
    shape = recipe.shape[::-1] if order == "transposed" else recipe.shape
    if len(shape) == 1 or there == "position_embd.weight":  # as in llama.cpp
        return _Info(shape, "F32")
    if kind == "q8_0":  # rows of other widths have no blocks
        return _Info(shape, "Q8_0" if shape[-1] % IN_BLOCK == 0 else "F16")
    return _Info(shape, kind.upper() if kind else type_of(dtype_of(recipe, ours)))


def _header(architecture: str, keys: Mapping[str, Any], infos: Mapping[str, _Info]) -> bytes:
    """Return the header of a GGUF file (metadata `keys`, tensor `infos`) as bytes, encoded by the package gguf."""
    from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter, quant_shape_to_byte_shape

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "header"
        writer = GGUFWriter(path, architecture)
        for key, value in keys.items():  # llama.cpp requires unsigned whole numbers
            value_type = GGUFValueType.UINT32 if type(value) is int else GGUFValueType.get_type(value)
            writer.add_key_value(key, value, value_type)
        for name, (shape, kind) in infos.items():
            number_type = GGMLQuantizationType[kind]
            size = math.prod(quant_shape_to_byte_shape(shape, number_type))
            writer.add_tensor_info(name, shape, np.dtype(np.float32), size, number_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        writer.close()
        return _padded(path.read_bytes())


def _bytes(rows: Tensor, kind: str) -> bytes:
    """Encode a tensor in the GGUF type `kind`; raises UsageError if float16 cannot hold a weight."""
    from gguf import GGMLQuantizationType, quants

    with np.errstate(over="ignore"):  # refused in the next line
        numbers = quants.quantize(rows.float().numpy(), GGMLQuantizationType[kind])
    if kind == "F16" and not np.isfinite(numbers).all():
        sentence = "a weight is larger than float16 holds"
        raise UsageError("‹quantize›", sentence, hint="‹quantize=bf16› stores it in the same space")
    return numbers.tobytes()


def _padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % _ALIGNMENT)
