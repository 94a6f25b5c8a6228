"""Read the tokenizer of a transformers directory, one that `gpt export` wrote or a Hugging Face one. Needs no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpt_cli.common.limits import FOREIGN_CONFIG_BYTES, TOKENIZER_BYTES
from gpt_cli.common.strict_json import plainly, strict_json
from gpt_cli.common.untrusted_files import read_bytes
from gpt_cli.errors import CheckpointError, GptError, shown
from gpt_cli.text.hf_tokenizer import HuggingFaceTokenizer, token_text
from gpt_cli.text.hf_tokenizer_rules import steps, token_names
from gpt_cli.text.tokenizers import END_OF_TEXT, Tokenizer, byte_letters
from gpt_cli.tools.exchange.export_tokenizer import PADDING, pipeline, rebuilt, tokenizer_json
from gpt_cli.tools.exchange.hf_directory import read_json

_HINT = "save its tokenizer beside it: AutoTokenizer.from_pretrained(NAME).save_pretrained(DIR)"
_STEPS_HINT = (
    "gpt reads byte pairs, SentencePiece with byte fallback, and WordPiece, each with the steps that published models "
    "have; docs/exchange.md lists them"
)


def read_tokenizer(directory: Path, end_of_text: int | list[int] | None, info: Mapping[str, Any] | None) -> Tokenizer:
    """Return the tokenizer of a directory, from tokenizer.json, or from vocab.json and merges.txt.

    `end_of_text` is eos_token_id of config.json, `info` the tokenizer's kind and pattern that `gpt export` stored.
    Raises CheckpointError for a tokenizer that would encode a text to other ids in gpt than in transformers.
    """
    path, settings = directory / "tokenizer.json", dict[str, Any]()
    if (directory / "tokenizer_config.json").exists():
        settings = read_json(directory / "tokenizer_config.json", "the config of a tokenizer", FOREIGN_CONFIG_BYTES)
        settings.pop("auto_map", None)  # code of others, which is not kept
    if (directory / "chat_template.jinja").exists():  # as transformers writes it since version 4.52
        settings["chat_template"] = _text(directory / "chat_template.jinja", "a chat template")
    if path.exists():
        text, where = _text(path, "a tokenizer"), shown(path)
    else:
        text, where = _of_files(directory, settings), shown(directory / "vocab.json")
    try:
        content = strict_json(text)
        ours = _ours(content, info or {})
        names = {} if ours else token_names(content)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise CheckpointError(where, f"this is not a tokenizer: {plainly(error)}") from error
    if ours:
        return ours
    return checked(text, settings, _end_of_text(names, end_of_text, settings, where), names, where)


def checked(
    text: str, settings: Mapping[str, Any], end_of_text: int, names: Mapping[int, str], where: str
) -> HuggingFaceTokenizer:
    """Return the tokenizer that `text`, a tokenizer.json, describes; `names` has the token of each id.

    Raises one CheckpointError for all features that gpt does not support, or for a file that the library cannot read.
    """
    tokenizer = HuggingFaceTokenizer(text, settings, end_of_text, max(names) + 1)
    try:
        _, after = tokenizer.template
        _ = tokenizer.library
    except GptError as error:
        for problem in (error, *error.others):
            problem.where, problem.hint = where, _STEPS_HINT
        raise
    except (AttributeError, KeyError, TypeError) as error:
        raise CheckpointError(where, f"this is not a tokenizer: {plainly(error)}") from error
    if others := [number for number in after if number != end_of_text]:
        raise CheckpointError(where, f"it puts {shown(names[others[0]])} after every text, which gpt does not do")
    return tokenizer


def _text(path: Path, what: str) -> str:
    try:
        return read_bytes(path, CheckpointError, most=(what, TOKENIZER_BYTES)).decode("utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointError(shown(path), "this is not UTF-8 text") from error


def _of_files(directory: Path, settings: Mapping[str, Any]) -> str:
    """Return a tokenizer.json built from GPT-2's older files: vocab.json with ids, merges.txt with merges."""
    if not (directory / "vocab.json").exists() or not (directory / "merges.txt").exists():
        sentence = "it has no tokenizer: neither tokenizer.json nor vocab.json with merges.txt"
        raise CheckpointError(shown(directory), sentence, hint=_HINT)
    vocabulary = read_json(directory / "vocab.json", "a vocabulary", TOKENIZER_BYTES)
    lines = _text(directory / "merges.txt", "a list of merges").split("\n")
    pairs = [line.rstrip("\r") for line in lines if line.strip() and not line.startswith("#version")]
    added = {}
    if (directory / "added_tokens.json").exists():
        added = read_json(directory / "added_tokens.json", "a list of tokens", FOREIGN_CONFIG_BYTES)
    if END_OF_TEXT in vocabulary:
        added = {END_OF_TEXT: vocabulary[END_OF_TEXT], **added}
    by_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    cut = by_bytes | {"add_prefix_space": settings.get("add_prefix_space") is True}
    tokens = ((number, name, name == END_OF_TEXT) for name, number in added.items())
    content = pipeline({"type": "BPE", "vocab": vocabulary, "merges": pairs}, cut, by_bytes, tokens)
    return json.dumps(content, ensure_ascii=False)


def _end_of_text(
    names: Mapping[int, str], configured: int | list[int] | None, settings: Mapping[str, Any], where: str
) -> int:
    """Return the id of end-of-text: config.json's (`configured`), tokenizer `settings`' eos_token, or <|endoftext|>."""
    for number in configured if isinstance(configured, list) else [configured]:
        if type(number) is int and number in names:
            return number
    ids = {name: number for number, name in names.items()}
    for name in (token_text(settings.get("eos_token")), END_OF_TEXT):
        if name in ids:
            return ids[name]
    hint = "name one of its tokens as eos_token_id in config.json"
    raise CheckpointError(where, "it has no end-of-text token, which joins documents and starts texts", hint=hint)


def _ours(content: Mapping[str, Any], info: Mapping[str, Any]) -> Tokenizer | None:
    """Return the gpt_cli tokenizer that `gpt export` wrote as the tokenizer.json `content`; None for any other."""
    model = content["model"]
    if not isinstance(model.get("vocab"), dict):
        return None
    names = sorted(model["vocab"], key=model["vocab"].__getitem__)
    if (padded := PADDING in names) and len(spare := set(byte_letters()).difference(names)) == 1:
        names[names.index(PADDING)] = spare.pop()  # in whose place it stands
    tokenizer = rebuilt(info, names, by_letters=info.get("kind") != "char")
    # save_pretrained of transformers writes a template that adds nothing
    adds = any("Sequence" not in piece for step in steps(content, "post_processor") for piece in step.get("single", ()))
    same = tokenizer and not adds and tokenizer_json(tokenizer, padded) == {**content, "post_processor": None}
    return tokenizer if same else None
