"""Tokenizers of transformers as ours: vocabularies and merges become ranks, and say which row is whose. Needs no torch.

The library tokenizers merges pairs in the order of a list; tiktoken, which we use, merges by the rank of the result.
Both give the same ids where each token is the merge that its rank would make: this is checked, not assumed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from gpt_cli.errors import CheckpointError, shown
from gpt_cli.exchange.directory import as_json, plainly, read_json
from gpt_cli.exchange.tokenizer_json import byte_letters, merges
from gpt_cli.limits import FOREIGN_CONFIG_BYTES, TOKENIZER_BYTES, TOKENIZER_WORK
from gpt_cli.opening import read_bytes
from gpt_cli.text.tokenizer import (
    END_OF_TEXT,
    GPT2_PATTERN,
    BytePairTokenizer,
    ByteTokenizer,
    CharTokenizer,
    Tokenizer,
    known_pattern,
)

_HINT = "save its tokenizer beside it: AutoTokenizer.from_pretrained(NAME).save_pretrained(DIR)"


@dataclass(frozen=True)
class Read:
    """A tokenizer of ours; `rows` [vocab_size] has the id that each token had before."""

    tokenizer: Tokenizer
    rows: list[int]
    notices: list[str] = field(default_factory=list)


def read_tokenizer(directory: Path, end_of_text: int | None, own: Mapping[str, Any] | None) -> Read:
    """The tokenizer of a directory, from tokenizer.json, or from vocab.json and merges.txt.

    `end_of_text` is the id that config.json names, `own` what `gpt export` says about the tokenizer. Raises
    CheckpointError for a tokenizer that would encode a text to other ids here.
    """
    path = directory / "tokenizer.json"
    if path.exists():
        found = read_json(path, "a tokenizer", TOKENIZER_BYTES)
        try:
            return _once_each(_of_json(found, shown(path), end_of_text, own or {}), shown(path))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(shown(path), f"this is not a tokenizer: {plainly(error)}") from error
    if not (directory / "vocab.json").exists() or not (directory / "merges.txt").exists():
        sentence = "it has no tokenizer: neither tokenizer.json nor vocab.json with merges.txt"
        raise CheckpointError(shown(directory), sentence, hint=_HINT)
    return _of_files(directory, end_of_text)


def _once_each(read: Read, where: str) -> Read:
    """The same; raises CheckpointError where end-of-text has the row of another token."""
    if read.rows[-1] in read.rows[:-1]:
        raise _refused(where, f"end-of-text and another token have the id {read.rows[-1]:,}")
    return read


def _of_files(directory: Path, end_of_text: int | None) -> Read:
    """The older form: ids in one file, merges in another."""
    where = shown(directory / "vocab.json")
    vocabulary = read_json(directory / "vocab.json", "a vocabulary", TOKENIZER_BYTES)
    text = read_bytes(directory / "merges.txt", CheckpointError, most=("a list of merges", TOKENIZER_BYTES))
    try:
        lines = text.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise CheckpointError(shown(directory / "merges.txt"), "this is not UTF-8 text") from error
    pairs = [line for line in lines if line.strip() and not line.startswith("#version")]
    added = {}
    if (directory / "added_tokens.json").exists():
        added = read_json(directory / "added_tokens.json", "a list of tokens", FOREIGN_CONFIG_BYTES)
    if (directory / "tokenizer_config.json").exists():
        settings = read_json(directory / "tokenizer_config.json", "the config of a tokenizer", FOREIGN_CONFIG_BYTES)
        if settings.get("add_prefix_space"):
            raise _refused(where, "it adds a space before every text")
    try:
        ids = _ids(vocabulary)
        if END_OF_TEXT in ids:
            added = {**added, END_OF_TEXT: ids[END_OF_TEXT]}
        return _once_each(_of_merges(ids, pairs, _ids(added), end_of_text, where, "bpe", GPT2_PATTERN), where)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(where, f"this is not a vocabulary: {plainly(error)}") from error


def _of_json(found: Mapping[str, Any], where: str, end_of_text: int | None, own: Mapping[str, Any]) -> Read:
    model, ids = found["model"], _ids(found["model"]["vocab"])
    added = _ids({token["content"]: token["id"] for token in found.get("added_tokens") or ()})
    if (first := found.get("normalizer")) is not None:
        first = first.get("type", first) if isinstance(first, dict) else first
        raise _refused(where, f"it changes the text first ({as_json(first)})")
    if _adds_tokens(found.get("post_processor")):
        raise _refused(where, "it adds tokens to every text")
    pattern = _pattern(found["pre_tokenizer"], where)
    if model["type"] == "WordLevel" and pattern == r"[\s\S]":
        return _of_characters(ids, added, end_of_text, where)
    if model["type"] != "BPE":
        raise _refused(where, f"its tokens are not byte pairs but {as_json(model['type'])}")
    for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"):
        if model.get(key):
            raise _refused(where, f"{key} is {as_json(model[key])}")
    kind = "bpe"
    if own.get("kind") == "tiktoken":
        kind = "tiktoken"
    if "ByteLevel" not in [step["type"] for step in _steps(found["pre_tokenizer"])]:
        raise _refused(where, "its tokens are characters, not bytes")
    known = known_pattern(pattern)
    if pattern and known is None:
        raise _refused(where, f"it cuts a text by {shown(pattern)}, which gpt does not know")
    whole_first = model.get("ignore_merges") is True
    return _of_merges(ids, model["merges"], added, end_of_text, where, kind, known or "", whole_first=whole_first)


def _steps(cut: Mapping[str, Any] | None) -> Sequence[Mapping[str, Any]]:
    """What is done to a text before byte pairs are merged, one after another."""
    if cut is None:
        return []
    return cut["pretokenizers"] if cut["type"] == "Sequence" else [cut]


def _adds_tokens(after: Mapping[str, Any] | None) -> bool:
    """Whether the last step adds tokens, as one for the beginning; a template may be of the text alone."""
    if after is None:
        return False
    steps = after["processors"] if after["type"] == "Sequence" else [after]
    return any(
        step["type"] != "ByteLevel" and any("Sequence" not in piece for piece in step.get("single", [{}]))
        for step in steps
    )


def _pattern(cut: Mapping[str, Any] | None, where: str) -> str:
    """The pattern at which a text is cut into words; empty for one that is not cut."""
    pattern = ""
    for step in _steps(cut):
        kind = step["type"]
        if kind == "Split" and step["behavior"] == "Isolated" and not step["invert"] and not pattern:
            pattern = step["pattern"]["Regex"]
        elif kind == "ByteLevel" and not step["add_prefix_space"]:
            if step.get("use_regex", True):
                if pattern:
                    raise _refused(where, "it cuts a text into words in two ways")
                pattern = GPT2_PATTERN
        else:
            says = "adds a space before every text" if kind == "ByteLevel" else f"cuts a text by {as_json(kind)}"
            raise _refused(where, f"it {says}")
    return pattern


def _of_characters(ids: dict[str, int], added: dict[str, int], end_of_text: int | None, where: str) -> Read:
    """A vocabulary of characters, as `gpt export` writes it."""
    characters = sorted(ids, key=ids.__getitem__)
    if any(len(character) != 1 for character in characters):
        raise _refused(where, "its tokens are words")
    if any("\ud800" <= character <= "\udfff" for character in characters):
        raise _refused(where, "it has half a character, which no text has")
    last, notices = _end_of_text(added, ids, end_of_text, where)
    return Read(CharTokenizer(characters), [*(ids[character] for character in characters), last], notices)


def _of_merges(
    ids: dict[str, int],
    pairs: Sequence[Any],
    added: dict[str, int],
    end_of_text: int | None,
    where: str,
    kind: str,
    pattern: str,
    *,
    whole_first: bool = False,
) -> Read:
    """Byte pairs: the 256 bytes in the order of their ids, then what each merge makes, in the order of merges."""
    last, notices = _end_of_text(added, ids, end_of_text, where)
    byte_of = {letter: bytes([byte]) for byte, letter in enumerate(byte_letters())}
    single = sorted((letter for letter in ids if letter in byte_of), key=ids.__getitem__)
    if len(single) < 256:
        sentence = f"it knows {len(single)} of the 256 bytes, so it loses some texts"
        raise _refused(where, sentence)
    asked = [tuple(pair.split(" ")) if isinstance(pair, str) else tuple(pair) for pair in pairs]
    if any(len(pair) != 2 for pair in asked):
        raise _refused(where, "a merge has not two parts")
    names = [*single, *dict.fromkeys(one + two for one, two in asked)]
    known = {*names, *added}
    wrong = [name for name in names if name not in ids] or [name for name in ids if name not in known]
    if wrong:
        raise _refused(where, f"no merge makes {shown(wrong[0])}, or it makes something that is not a token")
    if sum(len(name) ** 2 for name in names) > TOKENIZER_WORK:
        raise _refused(where, "its tokens are too long")
    if others := [name for name in names if not byte_of.keys() >= set(name)]:
        raise _refused(where, f"{shown(others[0])} has a character that stands for no byte")
    tokens = [_bytes(name, byte_of) for name in names]
    if len(set(tokens)) != len(tokens):
        raise _refused(where, "two tokens have the same bytes")
    expected = merges(tokens)
    given = [(_bytes(one, byte_of), _bytes(two, byte_of)) for one, two in asked]
    ranks = {token: rank for rank, token in enumerate(tokens)}
    never = len(ranks)  # for a part that is not a token
    late = [pair for pair in given if max(ranks.get(part, never) for part in pair) > ranks[pair[0] + pair[1]]]
    # a vocabulary that looks for whole words first may have tokens that merges do not reach
    if given != expected or (late and not whole_first):
        pairs_of_both = zip_longest(given, expected, fillvalue=(b"", b""))
        one, two = late[0] if late else next(pair for pair, other in pairs_of_both if pair != other)
        raise _refused(where, f"the merge of {_text(one)} and {_text(two)} is not one that ranks of tokens would make")
    rows = [*(ids[name] for name in names), last]
    if not pattern:
        if len(tokens) > 256:
            raise _refused(where, "it does not cut a text into words")
        tokenizer: Tokenizer = ByteTokenizer()
        rows = [rows[tokens.index(token)] for token in tokenizer.token_bytes] + [last]
        return Read(tokenizer, rows, notices)
    return Read(BytePairTokenizer(kind, pattern, tokens), rows, notices)


def _end_of_text(added: dict[str, int], ids: dict[str, int], asked: int | None, where: str) -> tuple[int, list[str]]:
    """The id of end-of-text, and what is said about other added tokens, whose rows are left out."""
    named = {number: name for name, number in added.items()}
    if END_OF_TEXT in added:
        last = added[END_OF_TEXT]
    elif asked in named:
        last = asked
    else:
        hint = "save it with an added token <|endoftext|>"
        raise CheckpointError(where, "it has no end-of-text token, which joins documents and starts texts", hint=hint)
    assert last is not None
    others = [name for number, name in named.items() if number != last]
    if not others:
        return last, []
    said = ", ".join(map(shown, others[:5])) + (f" and {len(others) - 5} more" if len(others) > 5 else "")
    return last, [f"left out: the added tokens {said}, which are plain text here"]


def _bytes(name: str, byte_of: Mapping[str, bytes]) -> bytes:
    return b"".join(byte_of[letter] for letter in name)


def _text(token: bytes) -> str:
    return shown(token.decode("utf-8", "backslashreplace"))


def _ids(content: Mapping[str, Any]) -> dict[str, int]:
    """A vocabulary: ids, each once; raises ValueError for others."""
    if not isinstance(content, dict):
        raise ValueError("its tokens are not an object of JSON")
    ids = dict(content)
    whole = all(isinstance(number, int) and number >= 0 for number in ids.values())
    if not whole or len(set(ids.values())) != len(ids):
        raise ValueError("its ids are not whole numbers, each once")
    return ids


def _refused(where: str, sentence: str) -> CheckpointError:
    hint = "gpt imports tokenizers of byte pairs, as GPT-2's, and those that gpt export wrote"
    return CheckpointError(where, f"byte pairs by rank cannot give the same tokens: {sentence}", hint=hint)
