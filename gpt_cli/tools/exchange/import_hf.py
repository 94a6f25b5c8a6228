"""Read a transformers directory or a GGUF file, published or from `gpt export`, as a gpt_cli model. Needs no torch.

Several directories can also be one model at several steps of its training, as published for Pythia.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gpt_cli.common.host import Host
from gpt_cli.common.limits import STEPS
from gpt_cli.common.safetensors_numbers import READABLE
from gpt_cli.config import Config, ModelConfig
from gpt_cli.config.load import validate, without_retired, without_untrusted_settings
from gpt_cli.errors import CheckpointError, GptError, UsageError, collecting, counted, shown, together, visible
from gpt_cli.text.tokenizers import Tokenizer
from gpt_cli.tools.exchange.families import FAMILIES, fit
from gpt_cli.tools.exchange.families.config_fields import ConfigFields, brief
from gpt_cli.tools.exchange.families.family import Family
from gpt_cli.tools.exchange.gguf.import_gguf import GGUF, read_gguf
from gpt_cli.tools.exchange.gguf.reader import is_gguf
from gpt_cli.tools.exchange.gguf.tokenizer import tokenizer_from
from gpt_cli.tools.exchange.hf_directory import Directory, HFTensor, read_directory
from gpt_cli.tools.exchange.import_tensors import Rows, Weights, tensor_mismatches, weight_locations
from gpt_cli.tools.exchange.tokenizer_json import read_tokenizer

LONGEST = 8192  # tokens of a default context; a longer one takes more memory than most machines have
_HINT = f"gpt imports models of type {', '.join(FAMILIES)}"
_AS_IT_IS = "look for another version of the model: gpt never imports a model only approximately"
# constants that older versions stored
_BUFFERS = re.compile(r"\.(attn|attention)\.(masked_)?bias$|(^|\.)rotary_emb\.\w+$")
_MOST_NAMED = 5  # tensors that do not fit
_PIECE = 2**22  # numbers of two tensors that are compared at once
# step1000, checkpoint-2000, pythia-14m-step3000, step1000-tokens2B; no match in TinyStories-33M
_STEP = re.compile(r"step[-_]?([0-9]+)(?![0-9])|([0-9]+)$", re.IGNORECASE)
_DIGITS = len(str(STEPS))


class Foreign(NamedTuple):
    """A transformers or GGUF model as a gpt_cli model: config and tokenizer are loaded, weights are read on request."""

    config: Config
    tokenizer: Tokenizer
    weights: Weights
    notices: list[str]


def read_foreign(path: Path, context_length: int | None = None) -> Foreign:
    """Return the model in a directory or GGUF file, checked as far as is possible without reading all weights.

    `context_length` (None: the model's own, for rope at most 8,192) may be shorter than the model's only with rope.
    An export of `gpt export` becomes the original model again, with its full context. If that is impossible (the export
    multiplied matrices, or another program trained it further), it is read like any model of its transformers class.
    Raises CheckpointError for a model that gpt cannot represent, UsageError for a `context_length` that does not fit.
    """
    directory = read_gguf(path) if is_gguf(path) else read_directory(path)
    family, export_info = _family(directory), _export_info(directory.config)
    directory = _with_names_of_the_class(directory, family)
    where = directory.where if isinstance(directory, GGUF) else f"{directory.where}: config.json"
    fields = ConfigFields(directory.config, where, _AS_IT_IS)
    settings = family.settings(fields)
    if problems := fields.problems():
        raise together(problems)
    length = _context_length(settings, context_length)
    about_tokenizer = export_info.get("tokenizer", {})
    if isinstance(directory, GGUF):
        tokenizer = tokenizer_from(directory.keys, directory.where, about_tokenizer)
    else:
        tokenizer = read_tokenizer(path, directory.config.get("eos_token_id"), about_tokenizer)
    num_rows = _num_rows(directory, family, tokenizer.vocab_size - 1)
    notices, zeros = list[str](), dict[str, tuple[int, ...]]()
    config = _config_of(export_info, tokenizer, where) if export_info else None
    places = None if config is None else _places_of_export(config.model, num_rows, directory, family, settings)
    if config is not None and places is None:
        notices.append("gpt cannot restore the form before gpt export, so it reads the model as its present class")
    if config is None or places is None:
        notices += fields.notices
        model = _validated({**settings, "context_length": length}, family, where)
        if _is_too_large(model, directory):
            raise CheckpointError(directory.where, "its config does not fit its tensors", hint=_HINT)
        recipes = family.tensors(model.changed(scale="head" if family.divides else "none"), num_rows)
        if absent := family.absent(fields):
            left_out = [recipes.pop(name) for name in [*filter(absent.search, recipes)]]
            zeros = {part.names[0]: recipe.shape for recipe in left_out for part in recipe.parts}
        if zeros:
            names = ", ".join(dict.fromkeys(re.sub(r"^blocks\.\d+\.", "", name) for name in zeros))
            notices.append(f"it has none of {names}: gpt sets them to zero, and training may change them")
        if wrong := list(islice(tensor_mismatches(recipes, directory), _MOST_NAMED)):
            raise together(wrong)
        places = weight_locations(recipes, directory)
        assert places is not None
        config = (config or _defaults_with(tokenizer)).changed(model=model.model_dump())
    elif context_length is not None:
        config = config.changed(model={"context_length": length})
    if config.model.context_length != settings["context_length"]:
        notices.append(f"context_length is {length:,} here, and {settings['context_length']:,} in the model itself")
    if unused := num_rows - tokenizer.vocab_size:
        notices.append(f"left out: {counted(unused, 'row')} of embeddings without a token")
    return Foreign(config, tokenizer, Weights(directory, places, tokenizer.vocab_size, zeros), notices)


def _export_info(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what `gpt export` stored under the key `gpt_cli` of config.json; an empty dict for other models."""
    info: Any = config.get("gpt_cli")
    is_ours = isinstance(info, dict) and info.get("format") in (1, 2) and isinstance(info.get("tokenizer"), dict)
    return info if is_ours else {}


def _config_of(export_info: Mapping[str, Any], tokenizer: Tokenizer, where: str) -> Config:
    """Return the validated config of an export, with the kind of `tokenizer` if the config has another kind."""
    if not isinstance(content := export_info.get("config"), dict):
        raise CheckpointError(where, "its key gpt_cli must contain a config, as a JSON object")
    try:
        config = without_untrusted_settings(validate(without_retired(content, whole=True), "gpt_cli"))
    except GptError as error:
        raise CheckpointError(where, f"its key gpt_cli has no valid config, {shown(error)}") from error
    if config.tokenizer.kind == tokenizer.kind:
        return config
    return config.model_copy(update={"tokenizer": _defaults_with(tokenizer).tokenizer})


def _defaults_with(tokenizer: Tokenizer) -> Config:
    """Return the default config, with the kind (and for bpe the vocabulary size) of `tokenizer`."""
    kind: dict[str, Any] = {"kind": tokenizer.kind}
    if tokenizer.kind == "bpe":
        kind["vocab_size"] = tokenizer.vocab_size
    return validate({"tokenizer": kind}, "tokenizer")


def _family(directory: Directory) -> Family:
    """Return the Family (converter) for the config's model_type; raises CheckpointError for an unknown model_type."""
    if isinstance(kind := directory.config.get("model_type"), str) and kind in FAMILIES:
        return FAMILIES[kind]
    wrong = f"it is a model of type {brief(kind)}, which gpt does not support"
    raise CheckpointError(directory.where, wrong if kind else "its config.json has no model_type", hint=_HINT)


def _context_length(settings: Mapping[str, Any], requested: int | None) -> int:
    """Return `requested` (UsageError if unsuitable); for None, the model's context length, with rope at most 8,192."""
    there, turned = settings["context_length"], settings.get("positions") == "rope"
    if requested is None:
        return min(there, LONGEST) if turned else there
    if requested > there:
        raise UsageError("‹context_length›", f"the model has a context of {there:,} tokens, fewer than {requested:,}")
    if not turned and requested != there:
        sentence = f"the model has {there:,} learned positions, so this length is fixed"
        hint = "train with ‹init_from› and ‹model.context_length›, which takes the first positions"
        raise UsageError("‹context_length›", sentence, hint=hint)
    return requested


def _with_names_of_the_class(directory: Directory, family: Family) -> Directory:
    """Return the directory with tensor names of the family's class, without constant tensors and a tied output layer.

    Adds the prefix that files of a base model lack. Raises CheckpointError if a tied layer differs from the embedding.
    """
    tensors: dict[str, HFTensor] = {}
    for name, stored in directory.tensors.items():
        full = family.output if name == family.other_output else name
        full = full if full.startswith(family.prefix) or full == family.output else f"{family.prefix}{full}"
        if full in tensors:
            raise CheckpointError(directory.where, f"it has {shown(full)} twice, with and without its prefix")
        if not _BUFFERS.search(name):
            tensors[full] = stored
    renamed = replace(directory, tensors=tensors)
    if renamed.config.get("tie_word_embeddings", family.tied) and family.output in tensors:
        if not _are_equal(renamed, family.output, family.embedding):
            sentence = "its output layer differs from its token embedding, although tie_word_embeddings is true"
            hint = 'if it was trained this way, write "tie_word_embeddings": false into config.json'
            raise CheckpointError(directory.where, sentence, hint=hint)
        del tensors[family.output]
    return renamed


def _are_equal(directory: Directory, first: str, second: str) -> bool:
    """Return whether two tensors are equal; True if they cannot be compared, which `tensor_mismatches` reports."""
    one, two = directory.tensors[first], directory.tensors.get(second)
    if two is not None and one.shape != two.shape:
        return False
    if two is None or len(one.shape) != 2 or not {one.dtype, two.dtype} <= READABLE.keys():
        return True
    step = max(1, _PIECE // max(1, one.shape[1]))
    parts = [slice(row, row + step) for row in range(0, one.shape[0], step)]
    return all(np.array_equal(directory.read(first, rows), directory.read(second, rows)) for rows in parts)


def _num_rows(directory: Directory, family: Family, largest: int) -> int:
    """Return the number of rows of the token embedding; CheckpointError if the `largest` token id has no row."""
    name = family.embedding
    if name not in directory.tensors or not directory.tensors[name].shape:
        raise CheckpointError(directory.where, f"it has no token embedding, {shown(name)}", hint=_HINT)
    num_rows = directory.tensors[name].shape[0]
    if largest >= num_rows:
        sentence = f"its tokenizer has a token {largest:,}, but its embedding has {num_rows:,} rows"
        raise CheckpointError(directory.where, sentence, hint="save a model together with its own tokenizer")
    return num_rows


def _validated(settings: Mapping[str, Any], family: Family, where: str) -> ModelConfig:
    """Return the ModelConfig of `settings`; a CheckpointError names the config.json key of each invalid setting."""

    def in_their_words(problem: GptError) -> CheckpointError:
        key = problem.where.rpartition(".")[2]
        sentence = re.sub(r"\b\w+\b", lambda word: family.key_of(word[0]), problem.sentence)
        return CheckpointError(f"{where}: {family.key_of(key)}", sentence, hint=_HINT)

    try:
        return validate({"model": dict(settings)}, "config.json").model
    except GptError as error:
        raise together([in_their_words(problem) for problem in (error, *error.others)]) from error


def _is_too_large(model: ModelConfig, directory: Directory) -> bool:
    """Return whether a (hostile) config has more blocks than the directory has tensors, or over 65,536 heads in all."""
    return model.num_blocks > len(directory.tensors) or model.num_blocks * model.num_heads > 2**16


def _places_of_export(
    model: ModelConfig, num_rows: int, directory: Directory, family: Family, settings: Mapping[str, Any]
) -> dict[str, Rows] | None:
    """Map weights of `model` to rows in `directory`; None if files or `settings` do not fit an export of `model`."""
    if _is_too_large(model, directory):
        return None
    try:
        fitted = fit(model, num_rows)
    except GptError:
        return None
    fits = fitted.class_name == family.class_name and family.settings(ConfigFields(fitted.config, "", "")) == settings
    if not fits or any(tensor_mismatches(fitted.tensors, directory)):
        return None
    return weight_locations(fitted.tensors, directory)


def directories_by_step(directories: Sequence[Path]) -> dict[int, Path]:
    """Map the training step in the name of each directory to the directory, the earliest step first.

    The step is the number after the word step, else the number at the end of the name. Raises UsageError that lists all
    names without a step, and all names that repeat a step.
    """
    directories_of: dict[int, Path] = {}
    wrong: list[GptError] = []
    for directory in directories:
        match = _place_of_step(directory)
        digits = "" if match is None else (match[1] or match[2]).lstrip("0") or "0"
        if match is None or len(digits) > _DIGITS or int(digits) > STEPS:
            sentence = f"its name contains no step, such as step1000; the largest step is {STEPS:,}"
            wrong.append(UsageError(shown(directory), sentence, hint="rename it, or make a link with such a name"))
        elif (other := directories_of.setdefault(int(digits), directory)) is not directory:
            sentence = f"its name contains step {int(digits):,}, and so does {shown(other)}"
            wrong.append(UsageError(shown(directory), sentence, hint="name one directory for each step"))
    if wrong:
        raise together(wrong)
    return dict(sorted(directories_of.items()))


def shared_name(directory: Path) -> str:
    """Return the directory's name without its step; if nothing is left, the name of its parent directory."""
    match = _place_of_step(directory)
    name = "" if match is None else match.string[: match.start()].rstrip("-_. ")
    return name or Path(os.path.abspath(directory)).parent.name or "steps"


def read_steps(steps: Mapping[int, Path], context_length: int | None, host: Host) -> tuple[Foreign, dict[int, Weights]]:
    """Return the model of the last step, and each step's weights, which are read on request.

    Raises the errors of all directories together, also for models that differ from the model of the last step.
    """
    wrong: list[GptError] = []
    weights: dict[int, Weights] = {}
    last: tuple[Path, Foreign] | None = None
    with host.started("comparing", len(steps), "models") as count:
        for step, path in reversed([*steps.items()]):
            with collecting(wrong):
                foreign = read_foreign(path, context_length)
                last = last or (path, foreign)
                weights[step] = foreign.weights
                wrong += _differences(path, foreign, *last)
            count(1)
    if wrong:
        raise together(wrong)
    assert last is not None, "a request names at least one"
    return last[1], dict(sorted(weights.items()))


def _place_of_step(directory: Path) -> re.Match[str] | None:
    """Match the training step in the name of `directory` (of a link, not of its target); return None without a step."""
    matches = list(_STEP.finditer(os.path.basename(os.path.abspath(directory))))
    named = [match for match in matches if match[1]]
    return (named or matches or [None])[-1]


def _differences(path: Path, foreign: Foreign, last_path: Path, last: Foreign) -> list[GptError]:
    """Return an error for each setting (and the tokenizer) in which `foreign` differs from the last step's model."""
    ours = foreign.config.model.model_dump()
    wrong: list[GptError] = [
        UsageError(shown(path), f"{key} is {visible(ours[key])}, but in {shown(last_path)} it is {visible(value)}")
        for key, value in last.config.model.model_dump().items()
        if ours[key] != value
    ]
    if foreign.tokenizer.digest != last.tokenizer.digest:
        wrong.append(UsageError(shown(path), f"its tokenizer differs from that of {shown(last_path)}"))
    return wrong
