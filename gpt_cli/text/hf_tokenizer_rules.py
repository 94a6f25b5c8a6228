"""Check a tokenizer.json against an allowlist of features before the library loads it, and decode its tokens.

An untrusted file could name a pattern that takes exponential time, a step that makes texts longer without bound, or an
id that takes gigabytes. gpt refuses all features that are not listed here, and names them in one error.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpt_cli.common.limits import TOKENIZER_ADDED, TOKENIZER_IDS, TOKENIZER_NAME, TOKENIZER_STEPS
from gpt_cli.errors import shown
from gpt_cli.text.split_patterns import O200K_PATTERN, PATTERNS, as_oniguruma
from gpt_cli.text.tokenizers import byte_letters, utf8

_O200K_WITHOUT_CASE = O200K_PATTERN.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "")
# of Mistral's Nemo: one digit at a time, no contractions
TEKKEN_PATTERN = _O200K_WITHOUT_CASE.replace(r"\p{N}{1,3}", r"\p{N}")
WORDS = frozenset(as_oniguruma(pattern) for pattern in (*PATTERNS, TEKKEN_PATTERN))
_DIGITS = frozenset((r"\d", r"\p{N}", "[0-9]", r"\p{N}{1,3}"))
# with these steps alone, in this order, each at most once, the bytes of a token do not depend on its neighbours
_OF_MARKS = ("Replace", "ByteFallback", "Fuse", "Strip")
_WORDPIECE_CHARACTERS = 1000  # of a word, whose cost grows with the square
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
# replacements by which the library's WordPiece decoder cleans a token, in this order
_CLEANED = (
    *((f" {mark}", mark) for mark in ".?!,"),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" do not", " don't"),
    *((f" {end}", end) for end in ("'s", "'ve", "'re")),
)

Check = Callable[[Any], bool]


def _one_of(*values: Any) -> Check:
    return lambda value: any(value is one or (isinstance(one, str) and value == one) for one in values)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= TOKENIZER_NAME


def _is_mark(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 1


def _is_cut(value: Any) -> bool:
    return _is_string(value) or (isinstance(value, dict) and len(value) == 1 and value.get("Regex") in WORDS | _DIGITS)


def _is_string(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and _is_text(value.get("String"))


def _is_template(value: Any) -> bool:
    pieces = isinstance(value, list) and all(isinstance(piece, dict) and len(piece) == 1 for piece in value)
    return pieces and all("Sequence" in piece or _is_text(piece["SpecialToken"]["id"]) for piece in value)


def _is_ids(value: Any) -> bool:
    listed = isinstance(value, dict) and all(isinstance(token, dict) for token in value.values())
    return listed and all(type(number) is int for token in value.values() for number in token["ids"])


_is_flag = _one_of(True, False)
_BYTE_LEVEL = {"add_prefix_space": _is_flag, "trim_offsets": _is_flag, "use_regex": _is_flag}
_METASPACE = {
    "replacement": _is_mark,
    "add_prefix_space": _is_flag,
    "prepend_scheme": _one_of("always", "first", "never"),
    "split": _is_flag,
}
_REPLACE = {"pattern": _is_string, "content": lambda value: isinstance(value, str)}
_BERT: dict[str, Check] = dict.fromkeys(
    ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase"), _one_of(True, False, None)
)
# the steps that each part of a pipeline may have, and a check of each setting of a step
STEPS: dict[str, dict[str, Mapping[str, Check]]] = {
    "normalizer": {
        **{key: {} for key in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents")},
        "Replace": _REPLACE,
        "Prepend": {"prepend": _is_mark},
        "BertNormalizer": _BERT,
    },
    "pre_tokenizer": {
        **{key: {} for key in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer")},
        "ByteLevel": _BYTE_LEVEL,
        "Digits": {"individual_digits": _is_flag},
        "Metaspace": _METASPACE,
        "Punctuation": {"behavior": _one_of("Isolated")},
        "Split": {"pattern": _is_cut, "behavior": _one_of("Isolated", "Removed"), "invert": _is_flag},
    },
    "decoder": {
        **{key: {} for key in ("ByteFallback", "Fuse")},
        "ByteLevel": _BYTE_LEVEL,
        "Metaspace": _METASPACE,
        "Replace": _REPLACE,
        "Strip": {"content": _one_of(" "), "start": lambda value: value in (0, 1), "stop": lambda value: value == 0},
        "WordPiece": {"prefix": _is_text, "cleanup": _is_flag},
    },
    "post_processor": {
        "ByteLevel": _BYTE_LEVEL,
        "TemplateProcessing": {"single": _is_template, "pair": lambda value: True, "special_tokens": _is_ids},
    },
}
# settings that have a default in the library
_OPTIONAL = {"trim_offsets", "use_regex", "prepend_scheme", "split", "pair", "behavior", "invert", *_BERT}
_OPTIONAL |= {("Metaspace", "add_prefix_space")}
_LISTS = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "decoder": "decoders",
    "post_processor": "processors",
}
_MODEL_KEYS: dict[str, Mapping[str, Check]] = {
    "BPE": {
        **dict.fromkeys(
            ("dropout", "continuing_subword_prefix", "end_of_word_suffix"), lambda value: value in (None, "", 0)
        ),
        "unk_token": lambda value: value is None or _is_text(value),
        "fuse_unk": _is_flag,
        "byte_fallback": _is_flag,
        "ignore_merges": _is_flag,
        "merges": lambda value: isinstance(value, list),
    },
    "WordPiece": {
        "unk_token": _is_text,
        "continuing_subword_prefix": _is_text,
        "max_input_chars_per_word": lambda value: isinstance(value, int) and 0 < value <= _WORDPIECE_CHARACTERS,
    },
}


def steps(content: Mapping[str, Any], part: str) -> list[Mapping[str, Any]]:
    """Return the steps of a part of tokenizer.json, such as "normalizer"; raise ValueError if malformed or too many."""
    listed = list(_steps(content.get(part), _LISTS[part], 0))
    if len(listed) > TOKENIZER_STEPS:
        raise ValueError(f"its {part} has more than {TOKENIZER_STEPS} steps")
    return listed


def _steps(step: Any, key: str, level: int) -> Iterator[Mapping[str, Any]]:
    if step is None:
        return
    if not isinstance(step, dict) or not isinstance(step.get("type"), str) or level > 3:
        raise ValueError("a step of its pipeline has no type, or is nested too deeply")
    if step["type"] != "Sequence":
        yield step
        return
    if not isinstance(step.get(key), list):
        raise ValueError(f"a Sequence of its pipeline has no {key}")
    for one in step[key]:
        yield from _steps(one, key, level + 1)


def problems(content: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each unsupported part of a tokenizer.json; an empty list if gpt can use the file.

    Raises ValueError, KeyError or TypeError for a file that is not a tokenizer.
    """
    sentences = [sentence for part in STEPS for sentence in _of_part(content, part)]
    model = content["model"]
    kind = model.get("type") or ("BPE" if "merges" in model else None)  # older files do not name it
    if kind not in [*_MODEL_KEYS]:  # a stranger may write a list
        return [*sentences, f"gpt does not support its model {shown(kind)}, only {', '.join(_MODEL_KEYS)}"]
    allowed = _MODEL_KEYS[kind]
    if kind == "BPE" and "merges" not in model:
        raise KeyError("merges")
    for key, value in model.items():
        if key not in ("type", "vocab") and not allowed.get(key, _one_of())(value):
            sentences.append(f"{key} of its model {kind} is {shown(value)}, which gpt does not support")
    if kind == "WordPiece" and model.get("unk_token") not in model["vocab"]:
        sentences.append(f"its token for unknown words, {shown(model.get('unk_token'))}, is not in its vocabulary")
    decoding = tuple(step["type"] for step in steps(content, "decoder"))
    in_order = tuple(name for name in _OF_MARKS if name in decoding)
    if not sentences and decoding not in (in_order or None, ("ByteLevel",), ("Metaspace",), ("WordPiece",)):
        sentences.append(f"its decoder is {', '.join(decoding) or 'missing'}, which gpt does not support")
    return sentences


def require_merges(model: Mapping[str, Any]) -> None:
    """Raise ValueError if a byte-pair merge joins or makes a token that the vocabulary lacks."""
    vocabulary = model["vocab"]
    for merge in model.get("merges", ()):
        one, other = merge.split(" ") if isinstance(merge, str) else merge
        if not {one, other, one + other} <= vocabulary.keys():
            raise ValueError("a merge takes or makes a token that it does not have")


def _of_part(content: Mapping[str, Any], part: str) -> Iterator[str]:
    for step in steps(content, part):
        kind = step["type"]
        if kind not in STEPS[part]:
            yield f"gpt does not support its {part} {shown(kind)}"
            continue
        rules = STEPS[part][kind]
        if missing := [key for key in rules if key not in step and not {key, (kind, key)} & _OPTIONAL]:
            raise ValueError(f"its {part} {kind} has no {missing[0]}")
        for key, value in step.items():
            if key != "type" and not rules.get(key, _one_of())(value):
                yield f"{key} of its {part} {kind} is {shown(value)}, which gpt does not support"
        if kind == "TemplateProcessing":
            named = [piece["SpecialToken"]["id"] for piece in step["single"] if "SpecialToken" in piece]
            if not all(name in step["special_tokens"] for name in named):
                raise ValueError("its template names a token that it does not have")
        removed, inverted = step.get("behavior") == "Removed", step.get("invert", False)
        if kind == "Split" and (removed != inverted or (removed and not covers_text(step))):
            yield f"its {part} Split leaves out a part of the text, which gpt does not support"
        if kind == "Replace" and _grows(step):  # many such steps would make a text too long for any memory
            yield f"its {part} Replace makes a text longer, which gpt does not support"


def covers_text(step: Mapping[str, Any]) -> bool:
    """Return whether the pattern of a Split step matches every character of any text."""
    return step["pattern"].get("Regex") in WORDS


def _grows(step: Mapping[str, Any]) -> bool:
    pattern, content = step.get("pattern"), step.get("content")
    return isinstance(pattern, dict) and isinstance(content, str) and len(content) > len(pattern.get("String", ""))


def token_names(content: Mapping[str, Any]) -> dict[int, str]:
    """Return the token string of each id, added tokens included; raise ValueError for a too large or repeated id."""
    vocabulary, added = content["model"]["vocab"], content.get("added_tokens") or []
    if not isinstance(vocabulary, dict) or not isinstance(added, list):
        raise ValueError("its tokens are not a JSON object")
    if len(added) > TOKENIZER_ADDED:
        raise ValueError(f"it has {len(added):,} added tokens, and gpt reads at most {TOKENIZER_ADDED:,}")
    ids = {**vocabulary, **{token["content"]: token["id"] for token in added}}
    if not all(type(number) is int and 0 <= number < TOKENIZER_IDS for number in ids.values()):
        raise ValueError(f"its ids are not whole numbers below {TOKENIZER_IDS:,}")
    names = {number: name for name, number in ids.items()}
    if len(names) != len(ids) or any(token["id"] != vocabulary.get(token["content"], token["id"]) for token in added):
        raise ValueError("two of its tokens have one id, or one token has two")
    if not names or max(map(len, names.values())) > TOKENIZER_NAME:
        raise ValueError(f"it has no tokens, or one of more than {TOKENIZER_NAME:,} characters")
    if not all(map(_is_text, (token["content"] for token in added))):
        raise ValueError("an added token has no text")
    return names


def decoder(content: Mapping[str, Any]) -> tuple[Callable[[str], bytes], bool]:
    """From a tokenizer.json, return a function (token string -> bytes), and whether a text's first space is dropped.

    The results agree with the library `tokenizers` for a file in which the function `problems` finds nothing.
    """
    by_type = {step["type"]: step for step in steps(content, "decoder")}
    if "ByteLevel" in by_type:
        letters = {letter: bytes([byte]) for byte, letter in enumerate(byte_letters())}

        def of_letters(name: str) -> bytes:
            try:
                return b"".join(map(letters.__getitem__, name))
            except KeyError:  # the library too treats a name with another character as plain text
                return utf8(name)

        return of_letters, False
    if word := by_type.get("WordPiece"):
        return lambda name: _of_word(name, word["prefix"], word["cleanup"]), True
    if marked := by_type.get("Metaspace"):
        return lambda name: utf8(name.replace(marked["replacement"], " ")), marked.get("prepend_scheme") != "never"
    replaced, has_bytes = by_type.get("Replace"), "ByteFallback" in by_type

    def of_marks(name: str) -> bytes:
        if has_bytes and (byte := _BYTE.fullmatch(name)):
            return bytes([int(byte[1], 16)])
        return utf8(name.replace(replaced["pattern"]["String"], replaced["content"]) if replaced else name)

    return of_marks, by_type.get("Strip", {}).get("start") == 1


def _of_word(name: str, prefix: str, cleanup: bool) -> bytes:
    text = name[len(prefix) :] if name.startswith(prefix) else f" {name}"
    for long, short in _CLEANED if cleanup else ():
        text = text.replace(long, short)
    return utf8(text)
