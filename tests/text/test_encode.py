import itertools
import json
import tempfile
import threading
from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.corpora import Texts, read_corpus
from support.faults import Fault, KilledError, Operations
from support.helpers import small_config
from support.texts import Twin, array, cut, identity, no_home

from gpt_cli.common import files
from gpt_cli.config import Config, TokenizerConfig
from gpt_cli.errors import DataError, EnvironmentFailure
from gpt_cli.text import cache, corpus, documents, load, token_files, train_tokenizer
from gpt_cli.text import encode as module
from gpt_cli.text.cache import cached
from gpt_cli.text.documents import TextBlock
from gpt_cli.text.encode import check_length, encode, encode_parts
from gpt_cli.text.token_files import TokensOnDisk, data_digest
from gpt_cli.text.tokenizers import ByteTokenizer, CharTokenizer, Tokenizer
from gpt_cli.text.train_tokenizer import learn_tokenizer, make_tokenizer, train_byte_pairs

LINES = "".join(f"{number} 今天天气很好🙂\n" for number in range(200))


@pytest.fixture
def small(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a cache for texts of any size, whose parts have about 100 tokens."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(here / "cache"))
    shrink(monkeypatch)
    return here / "cache" / "gpt-cli"


def shrink(patch: pytest.MonkeyPatch, piece: int = 40, group: int = 60, part: int = 100) -> None:
    patch.setattr(corpus, "CACHE_FROM", 1)
    patch.setattr(documents, "MAX_PIECE", piece)
    patch.setattr(documents, "GROUP_CHARACTERS", group)
    patch.setattr(token_files, "PART_TOKENS", part)


def encoded(
    documents: Sequence[str], tokenizer: Tokenizer, count: Callable[[int], object] = lambda _: None
) -> np.ndarray:
    ids = encode(Texts(documents), tokenizer, count)
    assert isinstance(ids, np.ndarray)
    return ids


class InBlocks(Texts):
    """Documents in blocks that are cut in another way at each pass."""

    def __init__(self, documents: Sequence[str], sizes: Sequence[int]):
        self._sizes, self._passes = list(sizes), itertools.count()
        super().__init__(documents)

    def blocks(self) -> Iterator[TextBlock]:
        at = next(self._passes) % len(self._sizes)
        return iter(cut(self._documents, self._sizes[at:] + self._sizes[:at]))


texts = st.lists(st.text("aab \n\r今🙂é", min_size=1, max_size=60), min_size=1, max_size=5)
sizes = st.lists(st.integers(1, 9), min_size=1, max_size=4)


kinds = st.sampled_from(["byte", "char", "bpe"])


@given(texts, sizes, st.integers(1, 12), st.integers(1, 30), kinds, st.floats(0, 0.9))
def test_ids_are_those_of_whole_strings_in_memory_and_on_disk(
    documents: list[str], sizes: list[int], piece: int, group: int, kind: Any, fraction: float
) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as own_cache:
        patch.setenv("XDG_CACHE_HOME", own_cache)  # ids of the same text in other pieces are others
        shrink(patch, piece, group, part=16)
        config = TokenizerConfig(kind=kind, vocab_size=260)
        parts, twins = InBlocks(documents, sizes).split(fraction), Twin(documents).split(fraction)
        tokenizer = make_tokenizer(config, *parts)
        if kind == "char":
            assert tokenizer.to_dict()["characters"] == "".join(sorted(set("".join(documents))))
        if kind == "bpe":
            assert tokenizer.digest == train_byte_pairs(twins[0].documents, 260).digest
        for part, twin in zip(parts, twins, strict=True):
            expected = twin.ids(tokenizer, piece)
            for cache_from, in_memory in ((10**6, 2**30), (1, 2**30), (1, -1)):
                patch.setattr(corpus, "CACHE_FROM", cache_from)
                patch.setattr(module, "IN_MEMORY", in_memory)
                ids = encode(part, tokenizer)
                assert isinstance(ids, TokensOnDisk) == (in_memory < 0 and part.whole.num_characters > 0)
                assert array(ids).tolist() == expected
                assert ids.dtype == np.uint16


def test_the_digest_of_a_text_is_the_same_in_memory_and_on_disk(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("a.txt").write_text(LINES)
    config = small_config("data.source=a.txt", "tokenizer.kind=char")
    in_memory = encode_parts(*read_corpus("a.txt").split(config.data.validation_fraction), config)
    monkeypatch.setattr(module, "IN_MEMORY", 0)
    on_disk = encode_parts(*read_corpus("a.txt").split(config.data.validation_fraction), config)
    assert isinstance(on_disk.ids, TokensOnDisk)
    assert in_memory.digest == on_disk.digest == data_digest(array(in_memory.ids), array(in_memory.validation_ids))
    monkeypatch.setattr(module, "data_digest", pytest.fail)
    again = encode_parts(*read_corpus("a.txt").split(config.data.validation_fraction), config)
    assert again.digest == on_disk.digest, "remembered beside the ids"


@pytest.mark.parametrize(("kind", "num_openings"), [("byte", 3), ("bpe", 4), ("char", 5)])
def test_a_short_text_is_opened_once(kind: str, num_openings: int, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that is not held is opened by the survey, the vocabulary, and for the ids of both of its parts."""
    (here / "a.txt").write_text(LINES)
    monkeypatch.setenv("XDG_CACHE_HOME", str(here / "cache"))
    config = small_config("data.source=a.txt", f"tokenizer.kind={kind}")
    opened, read_file = list[Path](), load.read_file

    def noted(path: Path, *arguments: Any, **others: Any) -> Any:
        opened.append(path)
        return read_file(path, *arguments, **others)

    monkeypatch.setattr(load, "read_file", noted)
    held = encode_parts(*read_corpus("a.txt").split(config.data.validation_fraction), config)
    assert len(opened) == 1
    opened.clear()
    monkeypatch.setattr(corpus, "CACHE_FROM", 1)
    again = encode_parts(*read_corpus("a.txt").split(config.data.validation_fraction), config)
    assert len(opened) == num_openings
    assert (held.digest, held.tokenizer.digest) == (again.digest, again.tokenizer.digest)
    monkeypatch.undo()
    changed = read_corpus(str(here / "a.txt"))
    (here / "a.txt").write_text(LINES[::-1])
    with pytest.raises(DataError, match="the text changed while gpt read it"):
        encode_parts(*changed.split(config.data.validation_fraction), config)


def test_large_texts_are_cached_by_content_and_a_damaged_cache_is_not_used(small: Path) -> None:
    characters = CharTokenizer("abc")
    counted: list[int] = []
    first = encoded(["abc"], characters, counted.append)
    assert encoded(["abc"], characters, counted.append).tolist() == first.tolist() == [0, 1, 2]
    assert sum(counted) == 3  # the second time nothing was encoded
    assert encoded(["acb"], characters).tolist() == [0, 2, 1]
    assert encoded(["abc"], CharTokenizer("cba")).tolist() == [2, 1, 0]
    for path in (small / "tokens").glob("*/part-*"):
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    assert encoded(["abc"], characters, counted.append).tolist() == [0, 1, 2]
    assert sum(counted) == 6


def test_a_learned_tokenizer_is_cached_and_if_damaged_learned_again(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, learned = TokenizerConfig(kind="bpe", vocab_size=270), list[str]()
    parts = Texts((LINES,)).split(0.1)

    def noted(*arguments: Any) -> Tokenizer:
        learned.append("")
        return make_tokenizer(*arguments)

    monkeypatch.setattr(train_tokenizer, "make_tokenizer", noted)
    first = learn_tokenizer(config, *parts)
    assert learn_tokenizer(config, *parts).digest == first.digest == make_tokenizer(config, *parts).digest
    assert len(learned) == 1
    learn_tokenizer(TokenizerConfig(kind="bpe", vocab_size=271), *parts)
    learn_tokenizer(config, *Texts((LINES + "x",)).split(0.1))
    learn_tokenizer(TokenizerConfig(kind="char"), *parts)
    assert len(learned) == 4
    gpt2 = [learn_tokenizer(TokenizerConfig(kind="bpe", vocab_size=270, pattern="gpt2"), *parts) for _ in range(2)]
    assert gpt2[0].digest == gpt2[1].digest != first.digest
    assert len(learned) == 5
    earlier = cached("tokenizers", "bpe", 270, parts[0].digest, parts[1].digest)  # without the name of a pattern
    assert json.loads(earlier.read_text())["sha256"] == first.digest
    learn_tokenizer(TokenizerConfig(kind="char", pattern="gpt2"), *parts)
    assert len(learned) == 5
    for path in (small / "tokenizers").iterdir():
        content = path.read_bytes()
        for damaged in (content[:50], b"[]", b"3", b"{}", content.replace(b"A", b"B", 1), content[:-3] + b'0"}'):
            path.write_bytes(damaged)
            learned.clear()
            assert learn_tokenizer(config, *parts).digest == first.digest
            path.write_bytes(content)


def test_a_changed_text_never_gives_ids_of_another(small: Path) -> None:
    """Also where the text changes back between two attempts, of which the first was killed after a part."""
    path, tokenizer = Path("a.txt"), ByteTokenizer()
    other = LINES.replace("今", "明")
    path.write_text(LINES)
    first = read_corpus("a.txt")
    path.write_text(other)
    with pytest.raises(DataError, match="the text changed while gpt read it"):
        encode(first, tokenizer)
    assert not list((small / "tokens").glob("*/part-*"))
    path.write_text(LINES)
    second = read_corpus("a.txt")
    path.write_text(other)

    def die(_: int) -> None:
        if len(list((small / "tokens").glob("*/part-*"))) == 2:
            raise KilledError

    with pytest.raises(KilledError):
        encode(second, tokenizer, die)
    path.write_text(LINES)
    assert array(encode(read_corpus("a.txt"), tokenizer)).tolist() == list(LINES.encode())
    assert array(encode(Texts((LINES,)), tokenizer)).tolist() == list(LINES.encode())


def test_ctrl_c_keeps_what_was_written(small: Path) -> None:
    tokenizer, counted, num_threads = ByteTokenizer(), list[int](), threading.active_count()

    def press(num_bytes: int) -> None:
        counted.append(num_bytes)
        if len(counted) == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode(Texts((LINES,)), tokenizer, press)
    assert threading.active_count() == num_threads, "no thread goes on"
    before = {part: identity(part) for part in (small / "tokens").glob("*/part-*")}
    assert len(before) > 3
    counted.clear()
    assert encoded([LINES], tokenizer, counted.append).tolist() == list(LINES.encode())
    assert sum(counted) == len(LINES.encode()), "progress counts what was done before"
    assert before == {part: identity(part) for part in before}, "no finished part is written again"


@pytest.mark.parametrize(("number", "kind"), [(1, "EROFS"), (8, "ENOSPC"), (30, "EIO")])
def test_a_disk_that_refuses_costs_a_small_text_time_alone(
    small: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: str
) -> None:
    monkeypatch.setattr(files, "os", Operations(Fault(number, kind, ever_after=True)))
    assert encoded([LINES], ByteTokenizer()).tolist() == list(LINES.encode())


def test_too_little_space_is_noticed_before_anything_is_written(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IN_MEMORY", 0)
    usage = namedtuple("usage", "free")
    needed = 2 * len(LINES.encode())
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: usage(needed // 2))
    sentence = r"the tokens of this text take about 0\.0 MB, but only 0\.0 MB are free"
    with pytest.raises(EnvironmentFailure, match=sentence):
        encode(Texts((LINES,)), ByteTokenizer())
    assert not list((small / "tokens").glob("*/part-*"))
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: usage(2 * needed))
    assert len(encode(Texts((LINES,)), ByteTokenizer())) == len(LINES.encode())


def test_of_two_preparations_at_once_one_waits_and_encodes_nothing(small: Path) -> None:
    started, waiting = threading.Event(), threading.Event()
    found, notices, counted = list[Any](), list[str](), list[int]()

    def first() -> None:
        def count(num_bytes: int) -> None:
            if num_bytes:
                started.set()
                assert waiting.wait(60)

        found.append(encode(Texts((LINES,)), ByteTokenizer(), count))

    def notice(line: str) -> None:
        notices.append(line)
        waiting.set()

    thread = threading.Thread(target=first)
    thread.start()
    assert started.wait(60)
    found.append(encode(Texts((LINES,)), ByteTokenizer(), counted.append, notice))
    thread.join()
    assert notices == ["another gpt process prepares this text; waiting for it"]
    assert sum(counted) == 0
    assert [ids.tolist() for ids in found] == [list(LINES.encode())] * 2


def test_a_user_without_a_home_directory_encodes_without_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "CACHE_FROM", 3)
    monkeypatch.setattr(cache, "cache_directory", no_home)
    assert encoded(["abc"], CharTokenizer("abc")).tolist() == [0, 1, 2]
    assert learn_tokenizer(TokenizerConfig(kind="char"), *Texts(("abcd",)).split(0.1)).vocab_size == 5
    monkeypatch.setattr(module, "IN_MEMORY", 11)  # a text that needs the disk
    with pytest.raises(EnvironmentFailure, match="no home directory"):
        encode(Texts(("abc",)), ByteTokenizer())


def test_an_error_about_too_little_text_has_both_numbers() -> None:
    config = Config().changed(model={"context_length": 8})
    check_length(np.arange(9), np.arange(2), config, 0)
    with pytest.raises(DataError, match="8 tokens, but context_length 8 needs at least 9"):
        check_length(np.arange(8), np.arange(2), config, 0)
    with pytest.raises(DataError, match="has 1 token of 4,500 characters, but") as caught:
        check_length(np.arange(1), np.arange(1), config, 4500)
    assert caught.value.hint == "‹tokenizer.kind=char›, or name more text"
    hints = {
        None: "raise ‹data.validation_fraction›, or name more text",
        "other.txt": "name more text with ‹data.validation_source›",
    }
    for other, hint in hints.items():
        with pytest.raises(
            DataError, match="validation part has 1 token, but an evaluation needs at least 2"
        ) as caught:
            check_length(np.arange(9), np.arange(1), config.changed(data={"validation_source": other}), 0)
        assert caught.value.hint == hint
