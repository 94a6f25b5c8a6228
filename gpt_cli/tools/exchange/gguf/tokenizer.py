"""Convert tokenizers to the GGUF metadata `tokenizer.ggml.*` and back, as byte pair encodings that llama.cpp runs.

Character and byte tokenizers become byte pair encodings that merge the bytes of each character; llama.cpp drops unknown
characters. Needs no torch.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gpt_cli.common.limits import TOKENIZER_BYTES
from gpt_cli.common.strict_json import plainly
from gpt_cli.errors import CheckpointError, UsageError, shown
from gpt_cli.text.hf_tokenizer import HuggingFaceTokenizer
from gpt_cli.text.hf_tokenizer_rules import TEKKEN_PATTERN, steps, token_names
from gpt_cli.text.split_patterns import (
    CL100K_PATTERN,
    GPT2_PATTERN,
    O200K_PATTERN,
    OLD_CL100K_PATTERN,
    OLD_R50K_PATTERN,
    QWEN2_PATTERN,
    R50K_PATTERN,
    WORD_PATTERN,
    as_oniguruma,
)
from gpt_cli.text.tokenizers import END_OF_TEXT, BytePairTokenizer, CharTokenizer, Tokenizer, byte_letters
from gpt_cli.tools.exchange.tokenizer_json import BYTE_LEVEL, checked, merges, pipeline, rebuilt, split

_KEY = "tokenizer.ggml."
CHAT_TEMPLATE = "tokenizer.chat_template"
_NORMAL, _CONTROL, _OF_USERS, _UNUSED = 1, 3, 4, 5  # types of tokens
_TRANSFORMERS = "‹format=hf› exports it"
_IMPORT = "import the directory of transformers from which the file was made"
_DIGIT = r"\p{N}"


class _Cut(NamedTuple):
    """The rule by which llama.cpp splits a text before it merges bytes, for one value of `tokenizer.ggml.pre`."""

    patterns: tuple[str, ...]  # applied one after another
    whole: bool = False  # whether a word that is in the vocabulary becomes that token without merges
    others: tuple[str, ...] = ()  # other names of the same rule


_CUTS = {
    "gpt-2": _Cut((GPT2_PATTERN,), others=("phi-2", "olmo", "mpt", "mellum")),
    "llama-bpe": _Cut((OLD_CL100K_PATTERN,), True, ("llama3", "llama-v3", "falcon3", "pixtral", "lfm2")),
    "dbrx": _Cut((OLD_CL100K_PATTERN,), others=("smaug-bpe",)),
    "qwen2": _Cut((QWEN2_PATTERN,), others=("stablelm2", "deepseek-r1-qwen", "megrez")),
    "smollm": _Cut((_DIGIT, GPT2_PATTERN), others=("starcoder", "refact", "command-r", "codeshell", "exaone")),
}
# pattern -> a pattern of _CUTS; both give the same tokens if the vocabulary was learned with the first
_SAME = {R50K_PATTERN: GPT2_PATTERN, OLD_R50K_PATTERN: GPT2_PATTERN, as_oniguruma(CL100K_PATTERN): OLD_CL100K_PATTERN}
_MARKS = "llama.cpp may cut words with combining marks or letters beyond ASCII into other tokens than gpt"
# patterns that llama.cpp lacks -> the name of the nearest rule, and a notice on what that rule splits differently
_NEAREST = {
    WORD_PATTERN: (
        "gpt-2",
        "llama.cpp may cut numbers of more than three digits, and words that begin with an apostrophe, into other "
        "tokens than gpt; a model trained with ‹tokenizer.pattern=gpt2› has the same tokens there",
    ),
    O200K_PATTERN: ("gpt-4o", _MARKS),
    TEKKEN_PATTERN: ("tekken", _MARKS),
}


def metadata_of(tokenizer: Tokenizer) -> tuple[dict[str, Any], list[str]]:
    """Return a tokenizer as GGUF metadata, and sentences on texts that llama.cpp encodes differently from gpt.

    The key `add_bos_token` is true if a token begins every text. Raises UsageError if GGUF cannot hold this tokenizer.
    """
    if isinstance(tokenizer, HuggingFaceTokenizer):
        return _of_kept(tokenizer)
    letters = byte_letters()
    names = {content: "".join(map(letters.__getitem__, content)) for content in tokenizer.token_bytes}
    pre, notices = "gpt-2", list[str]()
    if isinstance(tokenizer, BytePairTokenizer):
        pairs = [f"{names[one]} {names[two]}" for one, two in merges(tokenizer.token_bytes)]
        pre, notices = _pre((as_oniguruma(tokenizer.pattern),), None)
    else:
        pair_of = {one[:n]: f"{one[: n - 1]} {one[n - 1]}" for one in names.values() for n in range(2, len(one) + 1)}
        pairs = list(pair_of.values())
        if isinstance(tokenizer, CharTokenizer):
            notices = ["llama.cpp leaves out characters of a prompt that this tokenizer lacks; gpt refuses them"]
    types = [*[_NORMAL] * len(names), _CONTROL]
    return _keys(pre, [*names.values(), END_OF_TEXT], types, pairs, tokenizer), notices


def _of_kept(tokenizer: HuggingFaceTokenizer) -> tuple[dict[str, Any], list[str]]:
    content, names, added = tokenizer.content, tokenizer.names, {t["id"]: t for t in tokenizer.added.values()}
    model, notices = content["model"], list[str]()
    if (kind := model.get("type", "BPE")) != "BPE" or model.get("byte_fallback"):
        raise _refused("SentencePiece" if kind == "BPE" else kind)
    for step in steps(content, "normalizer"):
        if step["type"] != "NFC":
            raise _refused(step["type"])
        notices.append("unlike this tokenizer, llama.cpp does not compose characters (NFC)")
    pre, others = _pre(_patterns(content), bool(model.get("ignore_merges")))
    if any(token.get(flag) for token in added.values() for flag in ("single_word", "lstrip", "rstrip")):
        others.append("unlike this tokenizer, llama.cpp does not include spaces beside added tokens in them")
    tokens, types = list[str](), list[int]()
    for number in range(tokenizer.vocab_size):
        tokens.append(names.get(number, f"[PAD{number}]"))
        special = added[number].get("special", False) if number in added else None
        types.append(_UNUSED if number not in names else {None: _NORMAL, True: _CONTROL, False: _OF_USERS}[special])
    pairs = [one if isinstance(one, str) else " ".join(one) for one in model["merges"]]
    if len(set(tokens)) < len(tokens) or len(tokenizer.starts_with) > 1:
        raise _refused("two tokens of the same name, or two tokens before every text")
    return _keys(pre, tokens, types, pairs, tokenizer), notices + others


def _keys(pre: str, tokens: list[str], types: list[int], pairs: list[str], tokenizer: Tokenizer) -> dict[str, Any]:
    end = tokenizer.end_of_text
    values = {
        # not rwkv: with it, llama.cpp loops forever on a character of which only the first byte is a token
        "model": "gpt2",
        "pre": pre,
        "tokens": tokens,
        "token_type": types,
        # llama.cpp requires merges; no text contains this pair
        "merges": pairs or [f"{tokens[end]} {tokens[end]}"],
        "bos_token_id": tokenizer.begin([])[0],
        "eos_token_id": end,
        "add_bos_token": bool(tokenizer.starts_with),
    }
    return {_KEY + key: value for key, value in values.items()}


def _pre(patterns: tuple[str, ...], whole: bool | None) -> tuple[str, list[str]]:
    """Return llama.cpp's name (`tokenizer.ggml.pre`) of these split patterns, and notices on how llama.cpp differs.

    `whole` says whether a word in the vocabulary becomes one token without merges; None if this makes no difference.
    Raises UsageError for patterns that llama.cpp does not know.
    """
    alike = tuple(_SAME.get(pattern, pattern) for pattern in patterns)
    fitting = [name for name, cut in _CUTS.items() if cut.patterns == alike]
    if exact := [name for name in fitting if whole in (None, _CUTS[name].whole)]:
        return exact[0], []
    if fitting:
        return fitting[0], ["llama.cpp may split words whose tokens no merges produce"]
    for pattern, (name, notice) in _NEAREST.items():
        if alike == (pattern,):
            return name, [notice]
    raise _refused("a pattern that llama.cpp does not support")


def _patterns(content: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the split patterns of a tokenizer.json's pre-tokenizer; UsageError for steps that llama.cpp lacks."""
    patterns, last = list[str](), None
    for step in steps(content, "pre_tokenizer"):
        last = step["type"]
        if last == "ByteLevel" and not step["add_prefix_space"]:
            patterns += [GPT2_PATTERN] if step.get("use_regex", True) else []
        elif last == "Digits" and step["individual_digits"]:
            patterns.append(_DIGIT)
        elif last == "Split" and "Regex" in step["pattern"]:
            patterns.append(step["pattern"]["Regex"])
        else:
            raise _refused(last)
    if last != "ByteLevel":
        raise _refused("letters that are not bytes")
    return tuple(patterns)


def _refused(what: str) -> UsageError:
    return UsageError("tokenizer", f"GGUF cannot store a tokenizer with {what}", hint=_TRANSFORMERS)


def tokenizer_from(keys: Mapping[str, Any], where: str, info: Mapping[str, Any]) -> Tokenizer:
    """Build the tokenizer of a GGUF file from its metadata `keys`; errors call the file `where`.

    `info` has the kind and pattern of the tokenizer that `gpt export` stored, or is {}. The result is that tokenizer if
    it has exactly these `keys`, else a HuggingFaceTokenizer. Raises CheckpointError if gpt cannot read `keys`.
    """
    if (model := _text(keys, "model", where)) != "gpt2":
        kinds = {"llama": "SentencePiece", "bert": "WordPiece", "t5": "Unigram", "rwkv": "RWKV"}
        sentence = f"its tokenizer is of kind {kinds.get(model, shown(model))}, but gpt reads only byte pairs from GGUF"
        raise CheckpointError(where, sentence, hint=_IMPORT)
    tokens, pairs = (_strings(keys, key, where) for key in ("tokens", "merges"))
    tokenizer = rebuilt(info, tokens[:-1], by_letters=True)
    if tokenizer and all(keys.get(key) == value for key, value in metadata_of(tokenizer)[0].items()):
        return tokenizer
    pre = _text(keys, "pre", where)
    cut = next((cut for name, cut in _CUTS.items() if pre in (name, *cut.others)), None)
    if cut is None:
        sentence = f"it splits texts by {shown(pre)}, but gpt reads only {', '.join(_CUTS)} from GGUF"
        raise CheckpointError(where, sentence, hint=_IMPORT)
    types = keys.get(f"{_KEY}token_type", [_NORMAL] * len(tokens))
    valid = isinstance(types, list) and len(types) == len(tokens)
    if not valid or not all(type(one) is int and one in (_NORMAL, _CONTROL, _OF_USERS, _UNUSED) for one in types):
        raise CheckpointError(where, "not all of its tokens are normal, control, user-defined or unused")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if len(vocabulary) < len(tokens) or "" in vocabulary or len(set(pairs)) < len(pairs):
        raise CheckpointError(where, "it has an empty token, or names a token or a merge twice")
    if not all(merge.count(" ") == 1 and " " not in (merge[0], merge[-1]) for merge in pairs):
        raise CheckpointError(where, "a merge is not two tokens with a space between them")
    end_twice = f"{tokens[-1]} {tokens[-1]}"
    pairs = [merge for merge in pairs if merge != end_twice]  # the placeholder of an export without merges
    end, begin = (_id(keys, key, tokens, where) for key in ("eos_token_id", "bos_token_id"))
    if end is None:
        raise CheckpointError(where, "it has no end-of-text token, which joins documents and starts texts")
    adds = keys.get(f"{_KEY}add_bos_token", cut.whole)
    numbered = enumerate(zip(tokens, types, strict=True))
    added = [(number, token, kind == _CONTROL) for number, (token, kind) in numbered if kind in (_CONTROL, _OF_USERS)]
    content = pipeline(
        {"type": "BPE", "ignore_merges": cut.whole, "vocab": vocabulary, "merges": pairs},
        {"type": "Sequence", "pretokenizers": [*map(split, cut.patterns), BYTE_LEVEL]},
        BYTE_LEVEL,
        added,
        _beginning(begin, tokens, where) if adds else None,
    )
    try:
        text = json.dumps(content, ensure_ascii=False)
        if len(text.encode("utf-8")) > TOKENIZER_BYTES:
            raise ValueError("it is too large")
        template = keys.get(CHAT_TEMPLATE)
        settings = {"chat_template": template} if isinstance(template, str) else {}
        return checked(text, settings, end, token_names(content), where)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(where, f"this is not a tokenizer: {plainly(error)}") from None


def _text(keys: Mapping[str, Any], key: str, where: str) -> str:
    if not isinstance(value := keys.get(_KEY + key), str):
        raise CheckpointError(where, f"tokenizer.ggml.{key} is not a text")
    return value


def _strings(keys: Mapping[str, Any], key: str, where: str) -> list[str]:
    values = keys.get(_KEY + key)
    if not isinstance(values, list) or not values or not all(isinstance(one, str) for one in values):
        raise CheckpointError(where, f"tokenizer.ggml.{key} is not a list of texts")
    return values


def _id(keys: Mapping[str, Any], key: str, tokens: Sequence[str], where: str) -> int | None:
    number = keys.get(_KEY + key)
    if number is not None and (type(number) is not int or not 0 <= number < len(tokens)):
        sentence = f"tokenizer.ggml.{key} is {shown(number)}, which is not one of its {len(tokens):,} tokens"
        raise CheckpointError(where, sentence)
    return number


def _beginning(begin: int | None, tokens: Sequence[str], where: str) -> dict[str, Any]:
    """Return the tokenizer.json step that puts the token id `begin` before each text; CheckpointError for None."""
    if begin is None:
        raise CheckpointError(where, "it puts a token before every text, but does not name it")
    name = tokens[begin]
    return {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": name, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {name: {"id": name, "ids": [begin], "tokens": [name]}},
    }
