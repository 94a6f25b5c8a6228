"""Tokenizers of the library tokenizers as ranks: the same tokens for every text, or a refusal."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.faults import scaled
from support.tokenizers import texts
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from gpt_cli.errors import CheckpointError
from gpt_cli.exchange.ranks_from_merges import read_tokenizer
from gpt_cli.exchange.tokenizer_json import byte_letters

CORPUS = ["the quick brown fox jumps over the lazy dog. it's 1234 你好世界 ab ab abab "] * 30
END = "<|endoftext|>"


def trained(*, end_first: bool = True, size: int = 320, alphabet: bool = True, words: bool = True) -> Tokenizer:
    """Byte pairs as their trainer learns them: end-of-text has the first id, or is added as the last."""
    found = Tokenizer(models.BPE())
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=words)
    found.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END] if end_first else [],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if alphabet else [],
        show_progress=False,
    )
    found.train_from_iterator(CORPUS, trainer)
    if not end_first:
        found.add_special_tokens([END])
    return found


def without_special(tokenizer: Tokenizer) -> Tokenizer:
    """The same, for which the literal end-of-text is plain text, as it is here."""
    tokenizer.encode_special_tokens = True
    return tokenizer


@pytest.mark.parametrize("end_first", [True, False])
def test_ids_are_equal_after_the_rows_are_in_our_order(end_first: bool, tmp_path: Path) -> None:
    theirs = trained(end_first=end_first)
    theirs.save(str(tmp_path / "tokenizer.json"))
    read = read_tokenizer(tmp_path, None, {})
    assert sorted(read.rows) == list(range(theirs.get_vocab_size()))
    assert read.rows[-1] == (0 if end_first else theirs.get_vocab_size() - 1)
    plain = without_special(theirs)
    for text in texts(scaled(3000)):
        assert [read.rows[i] for i in read.tokenizer.encode(text)] == plain.encode(text).ids


def test_the_older_files_are_read_too(tmp_path: Path) -> None:
    theirs = trained()
    theirs.model.save(str(tmp_path))
    assert (tmp_path / "merges.txt").read_text().startswith("#version")
    theirs.save(str(tmp_path / "whole.json"))
    older = read_tokenizer(tmp_path, None, {})
    (tmp_path / "whole.json").rename(tmp_path / "tokenizer.json")
    newer = read_tokenizer(tmp_path, None, {})
    assert (older.rows, older.tokenizer.to_dict()) == (newer.rows, newer.tokenizer.to_dict())


def test_merges_written_as_one_text_are_read_too(tmp_path: Path) -> None:
    content = json.loads(trained().to_str())
    expected = read(tmp_path, content)
    content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
    assert read(tmp_path, content).tokenizer.to_dict() == expected.tokenizer.to_dict()


def read(folder: Path, content: dict[str, Any], end_of_text: int | None = None) -> Any:
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return read_tokenizer(folder, end_of_text, {})


def test_the_end_of_text_may_have_another_name_that_the_config_knows(tmp_path: Path) -> None:
    content = json.loads(trained().to_str())
    content["added_tokens"][0]["content"] = "</s>"
    content["model"]["vocab"]["</s>"] = content["model"]["vocab"].pop(END)
    assert read(tmp_path, content, end_of_text=0).rows[-1] == 0
    with pytest.raises(CheckpointError, match="it has no end-of-text token"):
        read(tmp_path, content)


def test_other_added_tokens_are_left_out_aloud(tmp_path: Path) -> None:
    theirs = trained()
    num_tokens = theirs.get_vocab_size()
    theirs.add_special_tokens(["<|pad|>", "<|user|>"])
    found = read(tmp_path, json.loads(theirs.to_str()))
    assert len(found.rows) == num_tokens
    (notice,) = found.notices
    assert notice == 'left out: the added tokens "<|pad|>", "<|user|>", which are plain text here'


def in_vocabulary(change: Callable[[dict[str, Any]], object]) -> Callable[[dict[str, Any]], object]:
    return lambda content: change(content["model"])


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def template(*added: str) -> dict[str, Any]:
    text = {"Sequence": {"id": "A", "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [*({"SpecialToken": {"id": name, "type_id": 0}} for name in added), text],
    }


def swap_merges(model: dict[str, Any]) -> None:
    """A part after its whole."""
    names = ["".join(pair) for pair in model["merges"]]
    whole = next(i for i, (one, two) in enumerate(model["merges"]) if one in names or two in names)
    part = next(names.index(name) for name in model["merges"][whole] if name in names)
    model["merges"][part], model["merges"][whole] = model["merges"][whole], model["merges"][part]


def split_otherwise(model: dict[str, Any]) -> None:
    """The longest token is merged from other parts, which ranks would never choose."""
    known = set(model["vocab"])
    pairs = model["merges"]
    at = max(range(len(pairs)), key=lambda i: len("".join(pairs[i])))
    word = "".join(pairs[at])
    splits = [[word[:i], word[i:]] for i in range(1, len(word)) if {word[:i], word[i:]} <= known]
    pairs[at] = next((split for split in splits if split != pairs[at]), [word[:1], word[1:]])


BAD: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a normalizer": (lambda c: c.update(normalizer={"type": "NFC"}), "it changes the text first"),
    "a space before": (lambda c: c["pre_tokenizer"].update(add_prefix_space=True), "adds a space before every text"),
    "another cut": (lambda c: c.update(pre_tokenizer={"type": "Whitespace"}), 'cuts a text by "Whitespace"'),
    "no cut": (lambda c: c["pre_tokenizer"].update(use_regex=False), "does not cut a text into words"),
    "no pattern": (
        lambda c: c.update(pre_tokenizer={"type": "Sequence", "pretokenizers": [split("(("), BYTES]}),
        "which gpt does not know",
    ),
    "two cuts": (
        lambda c: c.update(pre_tokenizer={"type": "Sequence", "pretokenizers": [split("a"), c["pre_tokenizer"]]}),
        "in two ways",
    ),
    "a cut that skips": (
        lambda c: c.update(pre_tokenizer={"type": "Sequence", "pretokenizers": [split(r"\w+|\s+"), BYTES]}),
        "which gpt does not know",
    ),
    "tokens added": (
        lambda c: c.update(post_processor={"type": "Sequence", "processors": [{"type": "ByteLevel"}, template(END)]}),
        "it adds tokens to every text",
    ),
    "tokens of a classifier": (lambda c: c.update(post_processor={"type": "BertProcessing"}), "it adds tokens"),
    "characters": (lambda c: c.update(pre_tokenizer=split("a")), "its tokens are characters"),
    "words": (in_vocabulary(lambda m: m.update(type="WordLevel")), "its tokens are not byte pairs"),
    "dropout": (in_vocabulary(lambda m: m.update(dropout=0.1)), "dropout is"),
    "a token of no merge": (in_vocabulary(lambda m: m["vocab"].update(xyzzy=9999)), "no merge makes"),
    "a merge of no token": (in_vocabulary(lambda m: m["merges"].append(["x", "z"])), "no merge makes"),
    "a merge twice": (in_vocabulary(lambda m: m["merges"].append(m["merges"][0])), "is not one that ranks"),
    "a part after its whole": (in_vocabulary(swap_merges), "is not one that ranks"),
    "a merge of other parts": (in_vocabulary(split_otherwise), "is not one that ranks|no merge makes"),
    "three parts": (in_vocabulary(lambda m: m["merges"].append(["a", "b", "c"])), "a merge has not two parts"),
    "ids twice": (in_vocabulary(lambda m: m["vocab"].update(a=0)), "not whole numbers, each once"),
    "ids of text": (in_vocabulary(lambda m: m["vocab"].update(a="0")), "not whole numbers, each once"),
    "no model": (lambda c: c.pop("model"), 'this is not a tokenizer: it has no key "model"'),
    "merges of numbers": (
        in_vocabulary(lambda m: m.update(merges=[1])),
        "a part of it is of another type than it must be",
    ),
    "tokens in a list": (in_vocabulary(lambda m: m.update(vocab=["a"])), "its tokens are not an object of JSON"),
    "a character of no byte": (
        in_vocabulary(lambda m: (m["vocab"].update({"▁a": 777}), m["merges"].append(["▁", "a"]))),
        '"▁a" has a character that stands for no byte',
    ),
    "end-of-text as another token": (lambda c: c["added_tokens"][0].update(id=3), "another token have the id 3"),
    "half a character": (
        lambda c: c.update(pre_tokenizer=split(r"[\s\S]"), model={"type": "WordLevel", "vocab": {"\ud800": 1}}),
        "it has half a character",
    ),
    "long tokens": (
        in_vocabulary(lambda m: (m["vocab"].update({"a" * 9000: 777}), m["merges"].append(["a" * 4500, "a" * 4500]))),
        "its tokens are too long",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_ranks_cannot_express_is_refused(name: str, tmp_path: Path) -> None:
    change, sentence = BAD[name]
    content = json.loads(trained().to_str())
    change(content)
    with pytest.raises(CheckpointError, match=sentence):
        read(tmp_path, content)


def test_a_template_of_the_text_alone_adds_nothing(tmp_path: Path) -> None:
    content = json.loads(trained().to_str())
    expected = read(tmp_path, content)
    for step in ({"type": "ByteLevel", "trim_offsets": False}, template()):
        content["post_processor"] = step
        assert read(tmp_path, content).rows == expected.rows


def test_a_vocabulary_that_loses_bytes_is_refused(tmp_path: Path) -> None:
    """Their trainer without an initial alphabet knows the bytes of its corpus alone."""
    content = json.loads(trained(alphabet=False, size=90).to_str())
    with pytest.raises(CheckpointError, match="of the 256 bytes, so it loses some texts"):
        read(tmp_path, content)


def test_bytes_alone_need_no_cut(tmp_path: Path) -> None:
    letters = byte_letters()
    vocabulary = {letter: i for i, letter in enumerate(reversed(letters))}
    content = json.loads(trained(words=False).to_str())
    content["model"] |= {"vocab": {**vocabulary, END: 256}, "merges": []}
    content["added_tokens"][0]["id"] = 256
    found = read(tmp_path, content)
    assert found.tokenizer.kind == "byte"
    assert found.rows == [*range(255, -1, -1), 256]
