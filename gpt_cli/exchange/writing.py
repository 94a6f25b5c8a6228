"""Writes a model of ours for others: a directory that transformers loads, or one file that `gpt` loads."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gpt_cli.checkpoints.checkpoint import Checkpoint, save_checkpoint
from gpt_cli.checkpoints.header import header_bytes
from gpt_cli.exchange.card import model_card, shareable
from gpt_cli.exchange.destination import FILES
from gpt_cli.exchange.hugging_face import Fit, Part, Recipe, fit
from gpt_cli.exchange.tokenizer_json import tokenizer_config, tokenizer_json
from gpt_cli.files import Buffer, write_directory

FORMAT_VERSION = 1  # of the key gpt_cli in config.json


def write_file(out: Path, checkpoint: Checkpoint) -> None:
    """Write weights, config and tokenizer as one checkpoint: what only training needs, and paths, are left out.

    Raises EnvironmentFailure when the system refuses.
    """
    progress = replace(checkpoint.progress, environment={})
    save_checkpoint(out, replace(checkpoint, config=shareable(checkpoint.config), progress=progress, moments={}))


def write_for_transformers(out: Path, checkpoint: Checkpoint) -> Fit:
    """Write the directory that AutoModelForCausalLM and AutoTokenizer load; returns what it contains.

    The key `gpt_cli` of config.json has our config, and the tokenizer without its tokens, which tokenizer.json has.
    Raises UsageError where no class fits, CheckpointError for weights that do not fit their config, EnvironmentFailure
    when the system refuses.
    """
    tokenizer, progress, config = checkpoint.tokenizer, checkpoint.progress, shareable(checkpoint.config)
    found = fit(config.model, tokenizer.vocab_size)
    model = checkpoint.build_model()
    ours = dict(model.named_parameters()) | dict(model.named_buffers())
    about_tokenizer = {key: value for key, value in tokenizer.to_dict().items() if key in ("kind", "pattern")}
    own = {"format": FORMAT_VERSION, "config": config.model_dump(mode="json"), "tokenizer": about_tokenizer}
    end_of_text = {"bos_token_id": tokenizer.end_of_text, "eos_token_id": tokenizer.end_of_text}
    card = model_card(
        os.path.basename(os.path.realpath(out)),
        config,
        found,
        num_steps=progress.step,
        num_tokens=progress.num_training_tokens,
        loss=progress.loss,
        best=progress.best_loss,
        began_from=progress.began_from,
    )
    contents = (
        [card.encode("utf-8")],
        _json({**found.config, "gpt_cli": own}),
        _json({**end_of_text, "pad_token_id": tokenizer.end_of_text}),
        _safetensors(found.tensors, ours),
        _json(tokenizer_json(tokenizer)),
        _json(tokenizer_config(config.model.context_length)),
    )
    write_directory(out, dict(zip(FILES, contents, strict=True)))
    return found


@torch.no_grad()
def computed(recipe: Recipe, ours: Mapping[str, Tensor]) -> Tensor:
    """A tensor of a stock class made of our parameters and buffers, float32."""
    if not recipe.parts:
        return torch.zeros(recipe.shape)
    rows = torch.cat([_rows(part, ours) for part in recipe.parts])
    tensor = (rows.T if recipe.transposed else rows).contiguous()
    assert tensor.shape == recipe.shape
    return tensor


def _rows(part: Part, ours: Mapping[str, Tensor]) -> Tensor:
    """The rows of a part; products are computed in float64 and rounded once."""
    first, *others = (ours[name] for name in part.names)
    if not others and part.factor == 1:
        return first
    product = first.double()
    for other in others:
        product = product @ other.double()
    return (product * part.factor).float()


def _safetensors(tensors: Mapping[str, Recipe], ours: Mapping[str, Tensor]) -> Iterator[Buffer]:
    """The content of model.safetensors; one tensor at a time is in memory beside the model."""
    shapes = {name: recipe.shape for name, recipe in tensors.items()}
    yield header_bytes(shapes, {"format": "pt"})  # several libraries look for this key
    for recipe in tensors.values():
        yield computed(recipe, ours).numpy().reshape(-1).view("uint8").data


def _json(content: Mapping[str, Any]) -> list[Buffer]:
    return [json.dumps(content, ensure_ascii=False, indent=2, allow_nan=False).encode("utf-8") + b"\n"]
