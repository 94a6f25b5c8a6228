"""Tokenizers of ours have the same ids there, those of others here, to the byte, or are refused before they can harm."""

import json
import math
import random
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from support.corpora import Texts
from support.exchange import sharp_checkpoint
from support.faults import scaled
from support.helpers import RunCommand
from support.kept import PIPELINES, save
from support.tokenizers import LEARNED, TOKENIZERS, characters, texts

from gpt_cli.checkpoints.checkpoint import save_checkpoint
from gpt_cli.errors import CheckpointError, DataError
from gpt_cli.evaluation.nll import Stretches, byte_lengths, byte_lengths_on, score
from gpt_cli.sampling.streaming import TextStream
from gpt_cli.text.encode import encode
from gpt_cli.text.hf_tokenizer import HuggingFaceTokenizer
from gpt_cli.text.hf_tokenizer_rules import WORDS, problems
from gpt_cli.text.split_patterns import BY_NAME, PATTERNS, WORD_PATTERN
from gpt_cli.text.tokenizers import BytePairTokenizer, ByteTokenizer, CharTokenizer, Tokenizer
from gpt_cli.text.train_tokenizer import tokenizer_from_dict
from gpt_cli.tools.exchange.export_hf import write_for_transformers
from gpt_cli.tools.exchange.tokenizer_json import merges, read_tokenizer, tokenizer_files, tokenizer_json

_PATTERNS = {name: BytePairTokenizer("bpe", BY_NAME[name], LEARNED.token_bytes) for name in ("llama3", "qwen2")}


@pytest.mark.parametrize("kind", [*TOKENIZERS, *_PATTERNS])
def test_ids_are_those_of_ours_for_hostile_texts(kind: str, transformers: Any, tmp_path: Path) -> None:
    ours = (TOKENIZERS | _PATTERNS)[kind]
    write_for_transformers(tmp_path / "hf", sharp_checkpoint("model.num_blocks=1", tokenizer=ours))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    assert len(theirs) == ours.vocab_size
    assert theirs.eos_token_id == theirs.bos_token_id == ours.end_of_text
    theirs.model_max_length = 10**6  # it only warns
    for text in texts(scaled(3000)):
        ids = ours.encode(text)
        assert theirs.encode(text) == ids
        assert theirs.decode(ids) == ours.decode(ids)
    assert set(theirs("The value")) == {"input_ids", "attention_mask"}
    assert theirs.decode([ours.end_of_text]) == "<|endoftext|>"


def test_an_unknown_character_is_an_error() -> None:
    theirs = tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json(CharTokenizer("ab"))))
    assert theirs.encode("abba").ids == [0, 1, 1, 0]
    with pytest.raises(Exception, match="UNK"):
        theirs.encode("abc")


def test_bytes_that_are_no_character_are_the_same_text() -> None:
    ours = ByteTokenizer()
    theirs = tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json(ours)))
    ids = [*"今".encode()[:2], 254, 65]
    assert theirs.decode(ids) == ours.decode(ids) == "\ufffd\ufffdA"


BYTES = [bytes([byte]) for byte in range(256)]


def test_a_token_is_the_merge_of_two_earlier_ones() -> None:
    assert merges([*BYTES, b"th", b"he", b"the", b"other"]) == [(b"t", b"h"), (b"h", b"e"), (b"th", b"e")]
    # "other" is o-the-r: no two tokens make it, so it is found whole or not at all


def test_of_a_token_in_three_parts_every_split_is_listed() -> None:
    """bc is merged first, so that abcd is a, bc, d; ab and cd make it too."""
    tokens = [*BYTES, b"bc", b"ab", b"cd", b"abcd"]
    assert merges(tokens)[-1] == (b"ab", b"cd")
    ours = BytePairTokenizer("tiktoken", WORD_PATTERN, tokens)
    theirs = tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json(ours)))
    for text in ("abcd", "abcdx", "xabcd", "abab cdcd"):
        assert theirs.encode(text).ids == ours.encode(text)


WHOLE = "a tool <think>b</think>\n\n<|im_start|>user<|im_end|> <s>x</s> [UNK] <unk>   end<|endoftext|>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of each of PIPELINES."""
    folder = tmp_path_factory.mktemp("kept")
    for name in PIPELINES:
        save(name, folder / name)
    return folder


def kept(path: Path) -> HuggingFaceTokenizer:
    found = read_tokenizer(path, None, None)
    assert isinstance(found, HuggingFaceTokenizer)
    return found


def fed(tokenizer: Tokenizer, ids: list[int]) -> str:
    stream = TextStream(tokenizer)
    return "".join([*map(stream.feed, ids), stream.finish()])


@pytest.mark.parametrize("name", PIPELINES)
def test_ids_and_texts_are_those_of_transformers(name: str, folder: Path, transformers: Any) -> None:
    ours, theirs = kept(folder / name), transformers.AutoTokenizer.from_pretrained(folder / name)
    asked = [*texts(scaled(3000)), *characters(scaled(300)), WHOLE * 3]
    for text in asked:
        ids = theirs.encode(text, add_special_tokens=False)
        assert ours.encode(text) == ids
        there = theirs.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert ours.decode(ids) == fed(ours, ids) == there
    begun = theirs.encode("The value")
    assert begun[: len(ours.starts_with)] == ours.starts_with
    assert ours.begin(ours.encode("The value")) == [one for one in begun if name != "simplestories" or one != 1]
    assert ours.end_of_text == theirs.eos_token_id
    assert ours.vocab_size == len(theirs)


@pytest.mark.parametrize("name", PIPELINES)
def test_a_long_document_in_pieces_has_the_ids_of_the_whole(name: str, folder: Path) -> None:
    """Words, spaces and lines of every kind; a document without any place to cut is one piece up to a million."""
    draws, ours = random.Random(3), kept(folder / name)
    words = ["The ", "value", " of ", "  ", " x", "1.5", "今天", "e\u0301", "<think>", " '"]
    parts = [*words, "\n", "\n\n", "。\n", "!\n/", "\r\n", "\n\u0301"]
    documents = ["".join(draws.choices(parts, k=15_000)), "今天天气" * 10_000, "a b\n" * 10]
    start = ours.starts_with
    whole = [[*start, *ours.encode(document)] for document in documents]
    joined = [*whole[0], ours.end_of_text, *whole[1], ours.end_of_text, *whole[2]]
    assert encode(Texts(documents), ours)[:].tolist() == joined
    cuts = ours.cut(documents[0], 0)
    assert cuts is not None, "some place was found"
    assert cuts <= 32_770


def test_of_a_million_characters_without_a_place_to_cut_all_are_encoded(folder: Path) -> None:
    ours = kept(folder / "llama2")
    assert ours.cut("今" * 1_048_577, 0) is None
    assert ours.cut("今" * 1_048_580, 0) == 2**20


@pytest.mark.parametrize("name", PIPELINES)
def test_a_checkpoint_gives_it_back_to_the_byte_without_building_it(name: str, folder: Path) -> None:
    ours = kept(folder / name)
    stored = json.loads(json.dumps(ours.to_dict()))
    again = tokenizer_from_dict(stored)
    assert isinstance(again, HuggingFaceTokenizer)
    assert (again.vocab_size, again.end_of_text, again.digest) == (ours.vocab_size, ours.end_of_text, ours.digest)
    assert "library" not in vars(again)
    assert "content" not in vars(again)
    written, settings = tokenizer_files(again, 64)
    assert written == (folder / name / "tokenizer.json").read_bytes()
    assert json.loads(settings) == json.loads((folder / name / "tokenizer_config.json").read_text())
    assert again.encode(WHOLE) == ours.encode(WHOLE)
    assert len(stored["files"]) < len(written) / 2


def test_bytes_of_a_text_are_counted_though_its_tokens_lack_some(folder: Path) -> None:
    """Spaces, capitals and a word that is unknown; so losses of all tokenizers are about the same text."""
    text, stretches = Texts(["The  quick\n\n  fox: ☃☃☃", "The end."]), list[Stretches]()
    for ours in (kept(folder / "simplestories"), kept(folder / "llama2"), ByteTokenizer()):
        ids = encode(text, ours)[:]
        lengths = byte_lengths_on(text, ids, ours)
        assert lengths[ids].sum() == pytest.approx(text.num_bytes)
        assert (byte_lengths(ours)[ids].sum() == text.num_bytes) == (ours.kind == "byte")
        assert score([np.ones(len(ids) - 1)], ids, lengths).bits_per_byte == pytest.approx(
            (len(ids) - 1) / math.log(2) / (text.num_bytes - lengths[ids[0]]), rel=0.02
        )
        stretches.append(Stretches(9, ids, lengths))
        stretches[-1].add(np.ones(len(ids) - 1), ids[1:])
    assert [len(one.nats) for one in stretches] == [-(-text.num_bytes // 9)] * 3
    assert stretches[0].error_of_difference(stretches[2])


def test_a_training_counts_the_bytes_of_a_text_as_an_evaluation_does(folder: Path, here: Path, run: RunCommand) -> None:
    tokenizer = kept(folder / "simplestories")
    checkpoint = sharp_checkpoint("model.num_blocks=1", "tokenizer.kind=imported", tokenizer=tokenizer)
    save_checkpoint(Path("source.safetensors"), checkpoint)
    Path("my.txt").write_text("The  quick\n\n  fox: ☃☃☃" * 400, encoding="utf-8")
    flags = ("--data", "my.txt", "--max-steps", "1", "--out", "new", "--json")
    trained = json.loads(run("train", "--init-from", "source.safetensors", *flags, exits=0).out)
    (measured,) = json.loads(run("eval", "--run", "new", "--json", exits=0).out)["runs"]
    ratio = measured["bits_per_byte"] / measured["loss"]
    assert trained["bits_per_byte"] / trained["validation_loss"] == pytest.approx(ratio, rel=0.01)


def test_bytes_are_those_of_the_text(folder: Path) -> None:
    """Three characters of three bytes each, cut into bytes; a mark is a space; what ends and begins texts has none."""
    text = "The 今天气 <think>12"
    for name in ("qwen", "llama2"):
        ours = kept(folder / name)
        content = ours.decode_bytes(ours.encode(text))
        assert content == (b" " if name == "llama2" else b"") + text.encode()
        assert byte_lengths(ours)[ours.encode(text)].sum() == len(content)
        assert byte_lengths(ours)[[ours.end_of_text, *ours.starts_with]].sum() == 0
        assert len(byte_lengths(ours)) == ours.vocab_size
    ours = kept(folder / "llama2")
    assert ours.token_text(ours.encode("\x00")[-1]) == "<0x00>"
    assert ours.decode(ours.encode(" on"), begins=False) == "  on"


def test_a_character_is_shown_when_its_last_byte_is_there(folder: Path) -> None:
    ours = kept(folder / "llama2")
    stream, ids = TextStream(ours), ours.encode("鑫a")
    assert list(accumulate(map(stream.feed, ids)))[-4:] == ["", "", "鑫", "鑫a"]


def test_the_older_files_of_gpt2_are_read_too(folder: Path, transformers: Any, tmp_path: Path) -> None:
    content = json.loads((folder / "gpt2" / "tokenizer.json").read_text())
    (tmp_path / "vocab.json").write_text(json.dumps(content["model"]["vocab"]))
    lines = ["#version: 0.2", *(" ".join(pair) for pair in content["model"]["merges"]), ""]
    (tmp_path / "merges.txt").write_text("\n".join(lines))
    ours, theirs = kept(tmp_path), transformers.GPT2Tokenizer.from_pretrained(tmp_path)
    for text in [*texts(300), WHOLE]:
        assert ours.encode(text) == theirs.encode(text)
    assert ours.end_of_text == content["model"]["vocab"]["<|endoftext|>"]


@pytest.mark.parametrize(
    ("asked", "found"), [(5, 5), ([9999, 7, 8], 7), (None, "<|im_end|>"), ([9999], "<|im_end|>"), (True, "<|im_end|>")]
)
def test_the_end_of_text_is_what_the_config_names(asked: Any, found: Any, folder: Path) -> None:
    read = read_tokenizer(folder / "qwen", asked, None)
    expected = found if isinstance(found, int) else read.encode(found)[0]
    assert read.end_of_text == expected


def changed(folder: Path, tmp_path: Path, change: Callable[[dict[str, Any]], object], name: str = "qwen") -> Path:
    content = json.loads((folder / name / "tokenizer.json").read_text())
    change(content)
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    (tmp_path / "tokenizer_config.json").write_text((folder / name / "tokenizer_config.json").read_text())
    return tmp_path


def _template(*pieces: str) -> dict[str, Any]:
    text = {"Sequence": {"id": "A", "type_id": 0}}
    single = [text if piece == "A" else {"SpecialToken": {"id": piece, "type_id": 0}} for piece in pieces]
    known = {piece: {"id": piece, "ids": [5], "tokens": [piece]} for piece in pieces if piece != "A"}
    return {"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": known}


def _split(pattern: Any, **more: Any) -> dict[str, Any]:
    return {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False, **more}


def _replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def _steps(normalizers: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "Sequence", "normalizers": normalizers}


def _nested(levels: int) -> dict[str, Any]:
    return _steps([_nested(levels - 1)]) if levels else {"type": "NFC"}


BAD: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a pattern": (lambda c: c.update(pre_tokenizer=_split({"Regex": "(a+)+$"})), "pattern of its pre_tokenizer Split"),
    "a step": (lambda c: c.update(normalizer={"type": "Nmt"}), 'gpt does not support its normalizer "Nmt"'),
    "a regex": (lambda c: c.update(normalizer=_replace({"Regex": "(a+)+"}, "b")), "pattern of its normalizer Replace"),
    "a growing text": (lambda c: c.update(normalizer=_replace({"String": "a"}, "aa")), "Replace makes a text longer"),
    "deep": (lambda c: c.update(normalizer=_nested(5)), "nested too deeply"),
    "many steps": (lambda c: c.update(normalizer=_steps([{"type": "NFC"}] * 17)), "normalizer has more than 16 steps"),
    "a part left out": (lambda c: c.update(pre_tokenizer=_split({"String": "a"}, behavior="Removed")), "out a part of"),
    "all but digits left out": (
        lambda c: c.update(pre_tokenizer=_split({"Regex": r"\d"}, behavior="Removed", invert=True)),
        "leaves out a part of the text",
    ),
    "no decoder": (lambda c: c.update(decoder=None), "its decoder is missing"),
    "an odd decoder": (
        lambda c: c.update(decoder={"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "ByteFallback"}]}),
        "its decoder is Fuse, ByteFallback",
    ),
    "a model": (lambda c: c["model"].update(type="Unigram"), 'gpt does not support its model "Unigram"'),
    "dropout": (lambda c: c["model"].update(dropout=0.1), 'dropout of its model BPE is "0.1"'),
    "an end of words": (lambda c: c["model"].update(end_of_word_suffix="</w>"), "end_of_word_suffix of its model BPE"),
    "an unknown key": (lambda c: c["model"].update(magic=True), "magic of its model BPE"),
    "a huge id": (lambda c: c["model"]["vocab"].update(x9=2**31), "its ids are not whole numbers below 1,048,576"),
    "a huge added id": (lambda c: c["added_tokens"][0].update(id=2**31), "its ids are not whole numbers below"),
    "a negative id": (lambda c: c["model"]["vocab"].update(x9=-1), "its ids are not whole numbers below"),
    "true as an id": (lambda c: c["model"]["vocab"].update(x9=True), "its ids are not whole numbers below"),
    "an id twice": (lambda c: c["model"]["vocab"].update(x9=5), "two of its tokens have one id"),
    "an added id twice": (lambda c: c["added_tokens"][0].update(id=3), "two of its tokens have one id"),
    "added ids with a gap": (lambda c: c["added_tokens"][0].update(id=9999), "do not follow those of its vocabulary"),
    "a long token": (lambda c: c["model"]["vocab"].update({"x" * 1025: 9999}), "one of more than 1,024 characters"),
    "many added": (lambda c: c.update(added_tokens=[{"id": 1, "content": "a"}] * 16385), "gpt reads at most 16,384"),
    "an added nothing": (lambda c: c["added_tokens"][0].update(content=""), "an added token has no text"),
    "half a character": (lambda c: c["model"]["vocab"].update({"\ud800": 9999}), "cannot read it|half a character"),
    "a merge of no token": (lambda c: c["model"]["merges"].append(["x", "zzz"]), "a merge takes or makes a token"),
    "a merge that makes no token": (  # at which the library panics
        lambda c: c["model"]["vocab"].pop("".join(c["model"]["merges"][-1])), "a merge takes or makes a token"
    ),
    "merges of numbers": (lambda c: c["model"].update(merges=[1]), "the wrong type"),
    "a decoder without its text": (
        lambda c: c.update(decoder={"type": "Sequence", "decoders": [{"type": "Replace", "content": ""}]}),
        "its decoder Replace has no pattern",
    ),
    "a template of nothing": (
        lambda c: c.update(post_processor={"type": "TemplateProcessing", "single": [7], "special_tokens": {}}),
        "single of its post_processor TemplateProcessing|the wrong type",
    ),
    "a template without its token": (
        lambda c: c.update(post_processor=_template("<x>", "A") | {"special_tokens": {}}),
        "its template names a token that it does not have",
    ),
    "no merges": (lambda c: c["model"].pop("merges"), 'it has no key "merges"'),
    "no model": (lambda c: c.pop("model"), 'this is not a tokenizer: it has no key "model"'),
    "a list of tokens": (lambda c: c["model"].update(vocab=["a"]), "its tokens are not a JSON object"),
    "a list for a pattern": (lambda c: c.update(pre_tokenizer=_split({"Regex": ["a"]})), "the wrong type"),
    "a number for a step": (lambda c: c.update(pre_tokenizer=7), "has no type, or is nested"),
    "a number for added": (lambda c: c.update(added_tokens=[7]), "the wrong type"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_gpt_does_not_do_is_refused_by_name(name: str, folder: Path, tmp_path: Path) -> None:
    change, sentence = BAD[name]
    with pytest.raises(CheckpointError, match=sentence):
        read_tokenizer(changed(folder, tmp_path, change), None, None)


def test_a_template_may_end_a_text_with_its_end_alone(folder: Path, tmp_path: Path) -> None:
    after = changed(folder, tmp_path, lambda c: c.update(post_processor=_template("A", "<x>")), "smollm")
    with pytest.raises(CheckpointError, match="after every text, which gpt does not do"):
        read_tokenizer(after, 0, None)
    assert read_tokenizer(after, 5, None).end_of_text == 5


def test_all_problems_are_named_at_once(folder: Path, tmp_path: Path) -> None:
    def change(content: dict[str, Any]) -> None:
        content["normalizer"] = {"type": "Nmt"}
        content["pre_tokenizer"] = _split({"Regex": "a+"})
        content["model"]["dropout"] = 0.5

    with pytest.raises(CheckpointError) as caught:
        read_tokenizer(changed(folder, tmp_path, change), None, None)
    assert len([caught.value, *caught.value.others]) == 3
    assert all("tokenizer.json" in problem.where for problem in (caught.value, *caught.value.others))


@pytest.mark.parametrize(
    "content", ["NaN", '{"a": NaN}', "[" * 100_000, "{}", "[]", "7", '{"model": {"vocab": 1e400}}']
)
def test_json_that_is_no_tokenizer_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(CheckpointError):
        read_tokenizer(tmp_path, None, None)


def test_patterns_of_published_models_are_known_and_no_others() -> None:
    assert len(WORDS) >= len(PATTERNS)
    model = {"type": "BPE", "vocab": {"a": 0}, "merges": []}
    rest = {"decoder": {"type": "ByteLevel", "add_prefix_space": False}, "model": model}
    for pattern in (*WORDS, r"\d", r"\p{N}{1,3}"):
        assert problems({"pre_tokenizer": _split({"Regex": pattern}), **rest}) == []
    for pattern in ("", "a", r"(a)\1", r"(?=a)", "((", r"\d+"):
        assert len(problems({"pre_tokenizer": _split({"Regex": pattern}), **rest})) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"files": "AAAA"},
        {"files": 7},
        {"end_of_text": -1},
        {"end_of_text": True},
        {"vocab_size": 2**31},
        {"end_of_text": 2**40, "vocab_size": 2**41},
        {"more": 1},
    ],
)
def test_a_checkpoint_with_another_content_is_refused(change: dict[str, Any], folder: Path) -> None:
    with pytest.raises(CheckpointError, match="not a tokenizer that gpt writes"):
        tokenizer_from_dict({**kept(folder / "gpt2").to_dict(), **change})


def test_sizes_that_its_tokens_do_not_have_are_refused_at_the_first_use(folder: Path) -> None:
    ours = kept(folder / "gpt2")
    for sizes in ((ours.end_of_text, ours.vocab_size + 1), (ours.end_of_text, ours.vocab_size - 1)):
        lying = HuggingFaceTokenizer(ours.tokenizer_json, ours.settings, *sizes)
        with pytest.raises(CheckpointError, match="its size or its end-of-text does not match its tokens"):
            lying.encode("a")


def test_a_byte_that_the_library_would_drop_is_an_error(folder: Path, tmp_path: Path) -> None:
    """Found among 3,000 changed directories: without its letter, each `~` of a text was lost without a word."""

    def rename(content: dict[str, Any]) -> None:
        vocabulary = content["model"]["vocab"]
        assert not any("~" in merge for merge in content["model"]["merges"])
        vocabulary["missing"] = vocabulary.pop("~")

    tokenizer = kept(changed(folder, tmp_path, rename))
    assert tokenizer.decode(tokenizer.encode("a b")) == "a b"
    with pytest.raises(DataError, match="has no token for bytes of the text: 0x7e"):
        tokenizer.encode("a ~ b")


def test_half_a_character_in_a_text_is_refused(folder: Path) -> None:
    with pytest.raises(DataError, match="half a character"):
        kept(folder / "qwen").encode("a\ud800")
