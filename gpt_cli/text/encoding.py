"""From a corpus to token ids: encoded once with all cores, in bounded memory, and kept in the cache by content."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from gpt_cli.callbacks import Counting, Notify, uncounted
from gpt_cli.config import Config, TokenizerConfig
from gpt_cli.errors import CheckpointError, DataError, EnvironmentFailure, shown
from gpt_cli.files import cache_directory, make_directory, remove, write_durably
from gpt_cli.machine.sharing import cores
from gpt_cli.opening import read_bytes
from gpt_cli.text.blocks import Block, in_groups, in_pieces
from gpt_cli.text.corpus import CACHE_FROM, Corpus
from gpt_cli.text.reading import SourceCorpus, split_of
from gpt_cli.text.token_files import Ids, TokensOnDisk, open_tokens
from gpt_cli.text.token_writer import LOCK, TokenWriter, sole_writer
from gpt_cli.text.tokenizer import SAMPLE_BYTES, Tokenizer, is_sampled, make_tokenizer, tokenizer_from_dict
from gpt_cli.text.tokens import check_length, data_digest

# ids that take no more are held in memory, or on the device that trains: 268 million tokens
IN_MEMORY = 2**30  # bytes, 4 a token
TOKENIZING = "tokenizing"  # what is counted while a text is encoded
_VERSION = 1


@dataclass(frozen=True)
class EncodedText:
    """A text as its tokenizer sees it: ids [tokens] of the training part and of the validation part.

    By `digest`, the sha256 of all ids, a run recognises its text.
    """

    tokenizer: Tokenizer
    ids: Ids
    validation_ids: Ids
    digest: str


def encode_corpus(
    corpus: Corpus,
    config: Config,
    tokenizer: Tokenizer | None = None,
    *,
    counting: Counting = uncounted,
    notice: Notify = lambda _: None,
) -> EncodedText:
    """Split a corpus and encode both parts, with a tokenizer of their own where none is given.

    `counting` receives the bytes of text that were encoded. Raises DataError for too little text or one that changes,
    EnvironmentFailure where there is too little space for the ids of a large one.
    """
    if isinstance(corpus, SourceCorpus):
        training, validation = split_of(corpus, config.data, counting, notice)
    else:
        training, validation = corpus.split(config.data.validation_fraction)
    return encode_parts(training, validation, config, tokenizer, counting=counting, notice=notice)


def encode_parts(
    training: Corpus,
    validation: Corpus,
    config: Config,
    tokenizer: Tokenizer | None = None,
    *,
    load: bool = True,
    counting: Counting = uncounted,
    notice: Notify = lambda _: None,
) -> EncodedText:
    """Encode a training and a validation text, as `encode_corpus` does; `load` is that of `encode`."""
    tokenizer = tokenizer or learn_tokenizer(config.tokenizer, training, validation, counting=counting, notice=notice)
    once = _once(notice)
    with counting(TOKENIZING, training.num_bytes + validation.num_bytes, "B") as count:
        ids = encode(training, tokenizer, count, once, load=load, followed_by=validation.num_bytes)
        validation_ids = encode(validation, tokenizer, count, once, load=load)
    check_length(ids, validation_ids, config.model.context_length)
    return EncodedText(tokenizer, ids, validation_ids, digest_of(ids, validation_ids))


def learn_tokenizer(
    config: TokenizerConfig,
    training: Corpus,
    validation: Corpus,
    *,
    counting: Counting = uncounted,
    notice: Notify = lambda _: None,
) -> Tokenizer:
    """The tokenizer that a config asks for; what was made from a large text is kept in the cache."""
    if config.kind in ("byte", "tiktoken") or training.whole.num_characters < CACHE_FROM:
        return make_tokenizer(config, training, validation)
    path = None
    with contextlib.suppress(EnvironmentFailure):  # a user without a home directory has no cache
        path = _cached("tokenizers", config.kind, config.vocab_size, training.digest, validation.digest)
    if (stored := _read_json(path)) is not None:
        with contextlib.suppress(CheckpointError, KeyError, TypeError):
            tokenizer = tokenizer_from_dict(stored["tokenizer"])
            if tokenizer.digest == stored["sha256"]:
                return tokenizer
    if is_sampled(config, training):
        notice(f"byte pairs are learned from a sample of {SAMPLE_BYTES / 1e6:.0f} MB of the text")
    num_bytes = training.num_bytes + (validation.num_bytes if config.kind == "char" else 0)
    with counting("learning the vocabulary", num_bytes, "B") as count:
        tokenizer = make_tokenizer(config, training, validation, count)
        training.require_unchanged()
        validation.require_unchanged()
    _write_json(path, {"tokenizer": tokenizer.to_dict(), "sha256": tokenizer.digest})
    return tokenizer


def encode(
    corpus: Corpus,
    tokenizer: Tokenizer,
    count: Callable[[int], object] = lambda _: None,
    notice: Notify = lambda _: None,
    *,
    load: bool = True,
    followed_by: int = 0,
) -> Ids:
    """The ids of documents joined by end-of-text: uint16 or uint32 [tokens], from the cache for large texts.

    They are in memory up to IN_MEMORY, else on disk; without `load` all those of large texts are on disk. `count`
    receives the bytes of text encoded since its last call. The disk must also hold the ids of the `followed_by` bytes
    of text that come next. Raises errors as `encode_corpus` does.
    """
    if corpus.whole.num_characters < CACHE_FROM:
        return _in_memory(corpus, tokenizer, count)
    try:
        directory = _cached("tokens", corpus.digest, tokenizer.digest)
        if (ids := _stored(directory, load)) is not None:
            return ids
        count(0)  # waiting for another program is progress too
        with sole_writer(directory, notice):
            if (ids := _stored(directory, load)) is None:
                _write(corpus, tokenizer, directory, count, followed_by)
                ids = _stored(directory, load, verified=True)
    except EnvironmentFailure as error:
        if 4 * corpus.num_bytes > IN_MEMORY or not load:
            raise
        ids = None  # a cache that cannot be written costs time, not correctness
        notice(f"the tokens of this text are not kept for the next start: {error.sentence}")
    return _in_memory(corpus, tokenizer, count) if ids is None else ids


def _once(notice: Notify) -> Notify:
    """The same, except that it receives each line once."""
    said = set[str]()

    def notice_once(line: str) -> None:
        if line not in said:
            said.add(line)
            notice(line)

    return notice_once


def _stored(directory: Path, load: bool, *, verified: bool = False) -> Ids | None:
    """The ids that a directory contains; None where there are none, or damaged ones that would fit in memory."""
    if (tokens := open_tokens(directory)) is None or 4 * len(tokens) > IN_MEMORY:
        return tokens
    try:
        if not verified:  # as what this program has just written is
            tokens.verify()
        if not load:
            return tokens
        ids = tokens[:]
    except DataError:  # they are encoded again
        ids = None
    tokens.close()
    return ids


def _in_memory(corpus: Corpus, tokenizer: Tokenizer, count: Callable[[int], object]) -> np.ndarray:
    found = [np.empty(0, _dtype(tokenizer))]
    for ids, num_bytes in _encoded(_groups(corpus), tokenizer):
        found.append(ids)
        count(num_bytes)
    corpus.require_unchanged()
    return np.concatenate(found)


def _write(
    corpus: Corpus, tokenizer: Tokenizer, directory: Path, count: Callable[[int], object], followed_by: int
) -> None:
    """Write the ids of a text; continues where a killed program stopped, if no file has changed since then."""
    origin = directory / "origin.json"
    if _read_json(origin) != [corpus.fingerprint]:
        _clear(directory)
        write_durably(origin, [json.dumps([corpus.fingerprint]).encode()])
    writer = TokenWriter(directory, _dtype(tokenizer))
    groups = _groups(corpus)
    for group in islice(groups, writer.num_groups):
        count(_num_bytes(group))
    try:
        for number, (ids, num_bytes) in enumerate(_encoded(groups, tokenizer)):
            if number == 0:
                left = corpus.num_bytes + followed_by - writer.num_groups * num_bytes
                _require_space(directory, ids.nbytes * left // num_bytes)
            writer.add(ids)
            count(num_bytes)
        corpus.require_unchanged()
    except DataError:
        _clear(directory)  # it may contain ids of another text
        raise
    about = {"text": corpus.whole.digest, "part": corpus.digest, "tokenizer": tokenizer.digest, "kind": tokenizer.kind}
    writer.finish(about | {"vocab_size": tokenizer.vocab_size})


def _groups(corpus: Corpus) -> Iterator[list[Block]]:
    """The pieces of a text in groups; `starts` where end-of-text comes before a piece."""
    pieces = in_pieces(corpus.blocks())
    return in_groups(chain((Block(False, first.text) for first in islice(pieces, 1)), pieces))


def _encoded(groups: Iterator[list[Block]], tokenizer: Tokenizer) -> Iterator[tuple[np.ndarray, int]]:
    """The ids of groups and the bytes of their text, in order, by as many threads as there are cores."""
    ahead = list(islice(groups, 2))
    if len(ahead) < 2:
        yield from (_encode_group(group, tokenizer) for group in ahead)
        return
    waiting = deque[Future[tuple[np.ndarray, int]]]()
    with ThreadPoolExecutor(cores()) as pool:
        try:
            for group in chain(ahead, groups):
                waiting.append(pool.submit(_encode_group, group, tokenizer))
                if len(waiting) > 2 * cores() + 2:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _encode_group(group: list[Block], tokenizer: Tokenizer) -> tuple[np.ndarray, int]:
    dtype = _dtype(tokenizer)
    end_of_text = np.array([tokenizer.end_of_text], dtype)
    found = list[np.ndarray]()
    for piece in group:
        if piece.starts:
            found.append(end_of_text)
        found.append(tokenizer.array(piece.text))
    return np.concatenate(found, dtype=dtype, casting="same_kind"), _num_bytes(group)


def _num_bytes(group: list[Block]) -> int:
    return sum(len(piece.content) for piece in group)


def _dtype(tokenizer: Tokenizer) -> np.dtype:
    return np.dtype(np.uint16 if tokenizer.vocab_size <= 2**16 else np.uint32)


def _require_space(directory: Path, num_bytes: int) -> None:
    """Raise EnvironmentFailure where a disk cannot hold so many bytes."""
    free = shutil.disk_usage(directory).free
    if num_bytes > free:
        raise EnvironmentFailure(
            shown(directory),
            f"the tokens of this text take about {num_bytes / 1e6:,.1f} MB, and {free / 1e6:,.1f} MB are free there",
            hint="delete files, or set XDG_CACHE_HOME to a folder with more space",
        )


def _clear(directory: Path) -> None:
    """Remove all files of a directory of ids but its lock."""
    for path in directory.iterdir():
        if path.name != LOCK:
            remove(path)


def digest_of(ids: Ids, validation_ids: Ids) -> str:
    """The digest of all ids; for those on disk it is kept beside them, since it takes a minute for 10 billion."""
    if not isinstance(ids, TokensOnDisk):
        return data_digest(ids, validation_ids)
    other = validation_ids.directory.name if isinstance(validation_ids, TokensOnDisk) else data_digest(validation_ids)
    path = ids.directory / f"digest-{other}.json"
    if isinstance(stored := _read_json(path), str):
        return stored
    digest = data_digest(ids, validation_ids)
    _write_json(path, digest)
    return digest


def _cached(name: str, *key: object) -> Path:
    """Where the cache keeps something. Raises EnvironmentFailure for a user without a home directory."""
    return cache_directory(name) / hashlib.sha256(repr((_VERSION, *key)).encode()).hexdigest()


def _read_json(path: Path | None) -> Any:
    """The content of a file; None for a missing or damaged one."""
    try:
        return None if path is None else json.loads(read_bytes(path, DataError))
    except (DataError, EnvironmentFailure, ValueError):
        return None


def _write_json(path: Path | None, content: Any) -> None:
    """Write a file, where the system allows it: a cache that cannot be written costs time, not correctness."""
    if path is not None:
        with contextlib.suppress(EnvironmentFailure):
            make_directory(path.parent)
            write_durably(path, [json.dumps(content).encode()])
