"""A directory of transformers as a model of ours: GPT-2, or what `gpt export` wrote. Needs no torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gpt_cli.config import Config, ModelConfig
from gpt_cli.config.reading import validate
from gpt_cli.config.strangers import of_a_stranger
from gpt_cli.errors import CheckpointError, GptError, shown, together
from gpt_cli.exchange.backwards import Weights, misfits, places_of, require_tensors
from gpt_cli.exchange.directory import READABLE, Directory, Stored, as_json, read_directory
from gpt_cli.exchange.hugging_face import ACTIVATIONS, Recipe, fit
from gpt_cli.exchange.read_tokenizer import read_tokenizer
from gpt_cli.text.tokenizer import Tokenizer

# the names of activations there; the last is the same function by another name
_ACTIVATIONS = {theirs: ours for ours, theirs in ACTIVATIONS.items()} | {"gelu_pytorch_tanh": "gelu_tanh"}
_SIZES = {
    "n_positions": "context_length",
    "n_embd": "d_model",
    "n_head": "num_heads",
    "n_layer": "num_blocks",
    "n_inner": "feed_forward_size",
}
# what ours has in one way alone: the value that fits, which GPT-2 also has by default, and why no other does
_FIXED: dict[str, tuple[Any, str]] = {
    "layer_norm_epsilon": (1e-5, "norms of gpt have 1e-05"),
    "scale_attn_by_inverse_layer_idx": (False, "gpt divides scores by the same number in all blocks"),
    "add_cross_attention": (False, "gpt has no encoder"),
}
_HINT = "gpt imports GPT-2, and the directories that gpt export wrote"
_EMBEDDING, _OUTPUT = "transformer.wte.weight", "lm_head.weight"
_MASKS = (".attn.bias", ".attn.masked_bias")  # constants that older versions stored


@dataclass(frozen=True)
class Foreign:
    """A model of transformers as one of ours: config and tokenizer now, each weight when it is asked for."""

    where: str
    config: Config
    tokenizer: Tokenizer
    weights: Weights
    notices: list[str]


def read_foreign(path: Path) -> Foreign:
    """The model in a directory, which is checked as far as possible without reading all weights.

    An export of ours comes back as it was. Where that is impossible (matrices were multiplied, or trained elsewhere)
    it comes back as the class that it was written as. Raises CheckpointError for what ours cannot have.
    """
    directory = read_directory(path)
    kind = directory.config.get("model_type")
    own = _own(directory.config)
    if kind != "gpt2" and own is None:
        wrong = "its config.json has no model_type" if kind is None else f"it is a model of type {as_json(kind)}"
        raise CheckpointError(directory.where, f"{wrong}, where gpt2 would be right", hint=_HINT)
    if kind == "gpt2":
        directory = _with_names_of_the_class(directory)
    end_of_text = directory.config.get("eos_token_id")
    read = read_tokenizer(path, end_of_text, {} if own is None else own["tokenizer"])
    num_rows = _num_rows(directory, max(read.rows))
    notices = list(read.notices)
    exported = None if own is None else _config_of(own, read.tokenizer, directory)
    config, places = exported, None
    if exported is not None:
        recipes = _recipes(exported.model, num_rows, directory)
        if recipes is not None and not any(misfits(recipes, directory)):
            places = places_of(recipes, directory)
        if places is None:
            notices.append("it cannot come back as it was before gpt export, so it is read as the class that it is now")
    if config is None or places is None:
        model, changed = _of_class(directory, exported)
        notices += changed
        recipes = _recipes(model.changed(scale="head"), num_rows, directory)
        if recipes is None:
            raise CheckpointError(directory.where, "its config does not fit its tensors", hint=_HINT)
        require_tensors(recipes, directory)
        places = places_of(recipes, directory)
        if places is None:
            sentence = "it was trained elsewhere, and has biases now that gpt would leave out"
            raise CheckpointError(directory.where, sentence, hint=_HINT)
        config = (exported or _defaults_with(read.tokenizer)).changed(model=model.model_dump())
    if (unused := num_rows - len(read.rows)) > 0 and not read.notices:
        notices.append(f"left out: {unused:,} rows of embeddings that no token has")
    return Foreign(directory.where, config, read.tokenizer, Weights(directory, places, read.rows), notices)


def _own(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What `gpt export` has written about a model in its config.json; None for one of others."""
    own = config.get("gpt_cli")
    is_ours = isinstance(own, dict) and own.get("format") == 1 and isinstance(own.get("tokenizer"), dict)
    return own if is_ours else None


def _config_of(own: Mapping[str, Any], tokenizer: Tokenizer, directory: Directory) -> Config:
    """What an export says of how the model learned, and the kind of tokenizer that it has."""
    where, content = f"{directory.where}: config.json", own.get("config")
    if not isinstance(content, dict):
        raise CheckpointError(where, "its key gpt_cli has no valid config, which is an object of JSON")
    try:
        config = of_a_stranger(validate(content, "gpt_cli"))
    except GptError as error:
        raise CheckpointError(where, f"its key gpt_cli has no valid config, {shown(error)}") from error
    if config.tokenizer.kind == tokenizer.kind:
        return config
    return config.model_copy(update={"tokenizer": _defaults_with(tokenizer).tokenizer})


def _defaults_with(tokenizer: Tokenizer) -> Config:
    """The default settings, with those of a tokenizer."""
    kind: dict[str, Any] = {"kind": tokenizer.kind}
    if tokenizer.kind == "bpe":
        kind["vocab_size"] = tokenizer.vocab_size
    return validate({"tokenizer": kind}, "tokenizer")


def _with_names_of_the_class(directory: Directory) -> Directory:
    """The same without masks, without a copy of tied embeddings, and with the names of GPT2LMHeadModel.

    GPT2Model has the same tensors without the first word of their names.
    """
    tensors: dict[str, Stored] = {}
    for name, stored in directory.tensors.items():
        full = name if name.startswith("transformer.") or name == _OUTPUT else f"transformer.{name}"
        if full in tensors:
            raise CheckpointError(directory.where, f"it has {shown(full)} twice, with and without its first word")
        if not name.endswith(_MASKS):
            tensors[full] = stored
    found = replace(directory, tensors=tensors)
    if directory.config.get("tie_word_embeddings", True) and _OUTPUT in tensors:
        pair = [name for name in (_OUTPUT, _EMBEDDING) if name in tensors and tensors[name].dtype in READABLE]
        if len(pair) == 2 and not np.array_equal(found.read(_OUTPUT), found.read(_EMBEDDING)):
            sentence = "its output layer is not its token embedding, although tie_word_embeddings says so"
            hint = 'if it was trained so, write "tie_word_embeddings": false into config.json'
            raise CheckpointError(directory.where, sentence, hint=hint)
        del tensors[_OUTPUT]
    return found


def _num_rows(directory: Directory, largest: int) -> int:
    """The rows of the token embedding, which must have one for the largest id of the tokenizer."""
    name = _EMBEDDING if directory.config.get("model_type") == "gpt2" else "model.embed_tokens.weight"
    if name not in directory.tensors or not directory.tensors[name].shape:
        raise CheckpointError(directory.where, f"it has no token embedding, {shown(name)}", hint=_HINT)
    num_rows = directory.tensors[name].shape[0]
    if largest >= num_rows:
        sentence = f"its tokenizer has a token {largest:,}, but its embedding has {num_rows:,} rows"
        raise CheckpointError(directory.where, sentence, hint="save a model together with its own tokenizer")
    return num_rows


def _of_class(directory: Directory, exported: Config | None) -> tuple[ModelConfig, list[str]]:
    """The sizes of a stock class without anything that only ours has, and notices."""
    if directory.config.get("model_type") != "gpt2":
        assert exported is not None
        model = exported.model
        return model.changed(scale="head", qkv_bias=model.bias or model.qkv_bias), []
    given, where = directory.config, f"{directory.where}: config.json"
    wrong = [
        CheckpointError(where, f"{key} is {as_json(given[key])}, but {why}", hint=_HINT)
        for key, (fitting, why) in _FIXED.items()
        if given.get(key, fitting) != fitting
    ]
    name = given.get("activation_function", "gelu_new")
    if not isinstance(name, str) or name not in _ACTIVATIONS:
        sentence = f"activation_function is {as_json(name)}, but gpt has {', '.join(_ACTIVATIONS)}"
        wrong.append(CheckpointError(where, sentence, hint=_HINT))
    missing = [theirs for theirs in _SIZES if given.get(theirs) is None and theirs != "n_inner"]
    wrong += [CheckpointError(where, f"it has no {key}", hint=_HINT) for key in missing]
    if wrong:
        raise together(wrong)
    content = {ours: given.get(theirs) for theirs, ours in _SIZES.items()} | {
        "activation": _ACTIVATIONS[name],
        "dropout": given.get("resid_pdrop", 0.1),
        "scale": "head" if given.get("scale_attn_weights", True) else "none",
        "tie_embeddings": bool(given.get("tie_word_embeddings", True)),
        "qkv_bias": True,
    }
    try:
        model = validate({"model": content}, "config.json").model
    except GptError as error:
        raise together([_in_their_words(problem, where) for problem in (error, *error.others)]) from error
    notices = []
    if given.get("attn_pdrop", 0.1) != model.dropout:
        notices.append(f"dropout is {model.dropout:g} everywhere, as resid_pdrop is")
    return model, notices


def _in_their_words(problem: GptError, where: str) -> CheckpointError:
    """A problem with a setting of ours, told with the keys of config.json that it came from."""
    theirs = {ours: key for key, ours in _SIZES.items()} | {"dropout": "resid_pdrop"}
    key = problem.where.rpartition(".")[2]
    sentence = re.sub("|".join(theirs), lambda found: theirs[found[0]], problem.sentence)
    return CheckpointError(f"{where}: {theirs[key]}", sentence, hint=_HINT)


def _recipes(model: ModelConfig, num_rows: int, directory: Directory) -> Mapping[str, Recipe] | None:
    """How the tensors there are made of ours; None where that is another class than this."""
    # a hostile config may name a million heads
    if model.num_blocks > len(directory.tensors) or model.num_blocks * model.num_heads > 2**16:
        return None
    try:
        found = fit(model, num_rows)
    except GptError:
        return None
    config = directory.config
    there = config.get("activation_function", config.get("hidden_act", "gelu_new"))
    same = found.config["model_type"] == config["model_type"] and _ACTIVATIONS.get(str(there)) == model.activation
    return found.tensors if same else None
