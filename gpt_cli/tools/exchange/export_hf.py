"""Write a model as a directory that transformers loads: its card, config, weights and tokenizer."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gpt_cli.checkpoints.checkpoint import Checkpoint, bytes_of, type_of
from gpt_cli.common.files import Buffer, remove, write_directory, write_durably
from gpt_cli.common.safetensors_header import header_bytes
from gpt_cli.config import Config
from gpt_cli.text.tokenizers import Tokenizer
from gpt_cli.tools.exchange.export_tensors import Fit, Part, Recipe
from gpt_cli.tools.exchange.families import fit
from gpt_cli.tools.exchange.model_card import model_card, shareable
from gpt_cli.tools.exchange.request import FILES
from gpt_cli.tools.exchange.tokenizer_json import chat_template, json_bytes, padding_id, tokenizer_files

FORMAT_VERSION = 1  # of the key gpt_cli in config.json and in GGUF


def write_for_transformers(out: Path, checkpoint: Checkpoint, prompt: str = "The") -> Fit:
    """Write a directory that AutoModelForCausalLM and AutoTokenizer load; return its class and tensors as a `Fit`.

    The model card's example continues `prompt`. The key `gpt_cli` of config.json holds the gpt_cli config, and the
    tokenizer's kind and pattern. Raises UsageError if no class fits, CheckpointError for weights that do not fit their
    config, EnvironmentFailure if a file cannot be written.
    """
    tokenizer, progress, config = checkpoint.tokenizer, checkpoint.progress, shareable(checkpoint.config)
    stock = fit(config.model, tokenizer.vocab_size)
    ours = dict(checkpoint.weights) | dict(checkpoint.build_model().named_buffers())
    stored = {name: (type_of(dtype_of(recipe, ours)), recipe.shape) for name, recipe in stock.tensors.items()}
    number_type = str(ours["token_embedding.weight"].dtype).removeprefix("torch.")
    ends, pad = {"bos_token_id": tokenizer.begin([])[0], "eos_token_id": tokenizer.end_of_text}, padding_id(tokenizer)
    # the embedding of what pads has no gradient there, so end-of-text is not named
    padding = {} if pad == tokenizer.end_of_text else {"pad_token_id": pad}
    # generation begins where padding on the left ends, but training counts learned positions from the very first token
    padding_side = "left" if config.model.positions in ("rope", "none") else "right"
    template = chat_template(config, tokenizer)
    card = model_card(
        os.path.basename(os.path.realpath(out)),
        config,
        stock,
        progress,
        prompt=prompt,
        end_pads=pad == tokenizer.end_of_text,
    )
    contents = (
        [card.encode("utf-8")],
        [json_bytes({**stock.config, **ends, **padding, "dtype": number_type, "gpt_cli": own_keys(config, tokenizer)})],
        [json_bytes({**ends, "pad_token_id": pad})],
        # several libraries look for this key; one tensor at a time is in memory beside the model
        chain(
            [header_bytes(stored, {"format": "pt"})],
            (bytes_of(computed(recipe, ours)) for recipe in stock.tensors.values()),
        ),
        *([content] for content in tokenizer_files(tokenizer, config.model.context_length, template, padding_side)),
    )
    write_export(out, dict(zip(FILES, contents, strict=True)), FILES)
    return stock


def write_export(out: Path, files: Mapping[str, Iterable[Buffer]], ours: Collection[str]) -> None:
    """Write `files` as the directory `out`; if it has names beyond `ours`, replace the files in `ours` one by one."""
    if not out.is_dir() or set(os.listdir(out)) <= set(ours):
        write_directory(out, files)
    else:
        for name in ours:
            write_durably(out / name, files[name]) if name in files else remove(out / name)


def own_keys(config: Config, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the content of an export's key `gpt_cli`: config, and the tokenizer's kind and pattern, without tokens."""
    about_tokenizer = {key: value for key, value in tokenizer.to_dict().items() if key in ("kind", "pattern")}
    return {"format": FORMAT_VERSION, "config": config.model_dump(mode="json"), "tokenizer": about_tokenizer}


@torch.no_grad()
def computed(recipe: Recipe, ours: Mapping[str, Tensor]) -> Tensor:
    """Compute the tensor that a recipe describes from `ours`, the gpt_cli parameters and buffers by name."""
    dtype = dtype_of(recipe, ours)
    if not recipe.parts:
        return torch.zeros(recipe.shape, dtype=dtype)
    rows = torch.cat([_rows(part, ours) for part in recipe.parts])
    tensor = (rows.T if recipe.transposed else rows).contiguous()
    assert (tensor.shape, tensor.dtype) == (recipe.shape, dtype)
    return tensor


def dtype_of(recipe: Recipe, ours: Mapping[str, Tensor]) -> torch.dtype:
    """Return the dtype of an exported tensor: that of copied weights, or float32 for products and scaled weights."""
    copies = [ours[part.names[0]].dtype if _is_copy(part) else torch.float32 for part in recipe.parts]
    return reduce(torch.promote_types, copies) if copies else next(iter(ours.values())).dtype


def _is_copy(part: Part) -> bool:
    return len(part.names) == 1 and part.factor == 1


def _rows(part: Part, ours: Mapping[str, Tensor]) -> Tensor:
    """Return the rows of a part; products are computed in float64 and rounded once, to float32."""
    first, *others = (ours[name] for name in part.names)
    if _is_copy(part):
        return first
    product = first.double()
    for other in others:
        product = product @ other.double()
    return (product * part.factor).float()
