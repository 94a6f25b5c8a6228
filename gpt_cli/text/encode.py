"""Encode a corpus to token ids on all cores in bounded memory; cache the ids by the digests of text and tokenizer."""

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from gpt_cli.common.files import NO_LOCKS, make_directory, remove, write_durably, write_failure, writing
from gpt_cli.common.host import NOBODY, Host, Notify, ignored
from gpt_cli.common.machine.cpu_contention import cores
from gpt_cli.config import Config
from gpt_cli.errors import DataError, EnvironmentFailure, counted, shown
from gpt_cli.text.cache import cached, read_cached_json, write_json
from gpt_cli.text.chat_templates import template_for
from gpt_cli.text.corpus import Corpus
from gpt_cli.text.documents import TextBlock, in_groups, in_pieces
from gpt_cli.text.sft_examples import ConversationCorpus, Examples, gather
from gpt_cli.text.token_files import Ids, TokensOnDisk, TokenWriter, data_digest, open_tokens
from gpt_cli.text.tokenizers import Tokenizer
from gpt_cli.text.train_tokenizer import learn_tokenizer

# ids that take no more are held in memory, or on the device that trains: 268 million tokens
IN_MEMORY = 2**30  # bytes, 4 a token
_LOCK = ".lock"
TOKENIZING = "tokenizing"  # the task in the progress bar while a text is encoded


@dataclass(frozen=True)
class EncodedText:
    """The token ids [tokens] of a training and a validation text, or the `Examples` of their conversations.

    `digest` is the sha256 of all ids, by which a resumed run recognises its text.
    """

    tokenizer: Tokenizer
    ids: Ids | Examples
    validation_ids: Ids | Examples
    digest: str


def encode_parts(
    training: Corpus,
    validation: Corpus,
    config: Config,
    tokenizer: Tokenizer | None = None,
    host: Host = NOBODY,
    *,
    load: bool = True,
) -> EncodedText:
    """Encode a training and a validation text; if `tokenizer` is None, train or load the tokenizer of the config.

    Without `load`, the ids of a large text stay on disk. Raises DataError if a text is too short or changes meanwhile,
    EnvironmentFailure if the disk has too little space for the ids of a large text.
    """
    tokenizer = tokenizer or learn_tokenizer(config.tokenizer, training, validation, host)
    notice = functools.cache(host.notice)  # a line on both parts is printed once
    if isinstance(training, ConversationCorpus) and isinstance(validation, ConversationCorpus):
        examples = both_examples(training, validation, config, tokenizer, host)
        for part, name in zip(examples, ("training", "validation"), strict=True):
            if part.num_left_out:
                notice(
                    f"left out: {counted(part.num_left_out, 'example')} of the {name} part, longer than context_length "
                    f"{config.model.context_length}; all fit with ‹model.context_length={part.longest - 1}›"
                )
        return EncodedText(tokenizer, *examples, digest_of(*examples))
    with host.counting(TOKENIZING, training.num_bytes + validation.num_bytes, "B") as count:
        ids = encode(training, tokenizer, count, notice, load=load, followed_by=validation.num_bytes)
        validation_ids = encode(validation, tokenizer, count, notice, load=load)
    check_length(ids, validation_ids, config, training.num_characters)
    return EncodedText(tokenizer, ids, validation_ids, digest_of(ids, validation_ids))


def both_examples(
    training: ConversationCorpus, validation: ConversationCorpus, config: Config, tokenizer: Tokenizer, host: Host
) -> tuple[Examples, Examples]:
    """Encode the conversations of each part that fit context_length; raise DataError if none of a part fits."""
    template, length = template_for(config.data.template, tokenizer, host.notice), config.model.context_length
    learn_all, encoded = config.data.loss == "all", list[Examples]()
    with host.counting(TOKENIZING, training.num_bytes + validation.num_bytes, "B") as count:
        for part in (training, validation):
            found = gather(part.conversations(), tokenizer, template, length, learn_all=learn_all, count=count)
            if not found.lengths.size:
                sentence = f"no example fits into context_length {length}, of {counted(found.num_left_out, 'example')}"
                hint = f"the longest needs ‹model.context_length={found.longest - 1}›"
                raise DataError("corpus", sentence, hint=hint)
            part.whole.require_unchanged()
            encoded.append(found)
    return encoded[0], encoded[1]


def encode(
    corpus: Corpus,
    tokenizer: Tokenizer,
    count: Callable[[int], object] = lambda _: None,
    notice: Notify = ignored,
    *,
    load: bool = True,
    followed_by: int = 0,
) -> Ids:
    """Return the token ids of documents joined by end-of-text, uint16 or uint32 [tokens]; cache ids of a large text.

    More than IN_MEMORY / 4 ids stay in files on disk; without `load`, the ids of any large text stay there. `count`
    receives the bytes of text encoded since its last call. Raises DataError if the text changes meanwhile, and
    EnvironmentFailure if ids that stay on disk do not fit there with those of a next text of `followed_by` bytes.
    """
    if corpus.is_large:
        try:
            directory = cached("tokens", corpus.digest, tokenizer.digest)
            if (tokens := _stored(directory)) is None:
                count(0)  # waiting for another program is progress too
                with sole_writer(directory, notice):
                    if (tokens := _stored(directory)) is None:
                        tokens = _write(corpus, tokenizer, directory, count, followed_by)
            return tokens[:] if load and 4 * len(tokens) <= IN_MEMORY else tokens
        except EnvironmentFailure as error:
            if 4 * corpus.num_bytes > IN_MEMORY or not load:
                raise
            # a cache that cannot be written costs time, not correctness
            notice(f"the tokens of this text are not kept for the next start: {error.sentence}")
    groups = [np.empty(0, _dtype(tokenizer))]
    for group, num_bytes in _encoded(_groups(corpus, tokenizer), tokenizer):
        groups.append(group)
        count(num_bytes)
    corpus.whole.require_unchanged()
    return np.concatenate(groups)[1:]  # no end-of-text before the first document


def check_length(ids: Ids, validation_ids: Ids, config: Config, num_characters: int) -> None:
    """Raise DataError if the training ids do not fill one window, or the validation ids contain no target.

    If the training text has enough characters (`num_characters`), the hint suggests tokenizer.kind=char.
    """
    context_length, least = config.model.context_length, config.model.context_length + 1
    if len(ids) < least:
        amount = counted(len(ids), "token")
        if num_characters >= least:
            amount += f" of {counted(num_characters, 'character')}"
        sentence = f"its training part has {amount}, but context_length {context_length} needs at least {least:,}"
        hint = "‹tokenizer.kind=char›, or name more text" if num_characters >= least else "name more text"
        hint += ", or lower ‹model.context_length›" if len(ids) > 2 else ""
        raise DataError("corpus", sentence, hint=hint)
    if len(validation_ids) < 2:
        amount = counted(len(validation_ids), "token")
        sentence = f"its validation part has {amount}, but an evaluation needs at least 2"
        hint = "raise ‹data.validation_fraction›, or name more text"
        hint = hint if config.data.validation_source is None else "name more text with ‹data.validation_source›"
        raise DataError("corpus", sentence, hint=hint)


@contextlib.contextmanager
def sole_writer(directory: Path, notice: Notify) -> Iterator[None]:
    """Run a block while this process holds the lock of a token directory; wait while another process holds the lock.

    Makes the directory if it is missing. `notice` receives a line before a wait. The block should check whether the
    other process has written the ids. On a filesystem without locks, no process waits. Raises EnvironmentFailure if the
    directory is not writable.
    """
    make_directory(directory)
    path = directory / _LOCK
    with writing(directory):
        # the file stays: after a removal, waiting and new processes would lock different files
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    with open(descriptor, "rb"):  # which closes it, and so frees the lock
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            notice("another gpt process prepares this text; waiting for it")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise write_failure(path, error) from error
        yield


def _stored(directory: Path) -> TokensOnDisk | None:
    """Return the ids cached in a directory, None if missing or damaged; check the digests of ids that fit in memory."""
    with contextlib.suppress(DataError):  # damaged ids are encoded again
        if (tokens := open_tokens(directory)) is not None and 4 * len(tokens) <= IN_MEMORY:
            tokens.verify()
        return tokens
    return None


def _write(
    corpus: Corpus, tokenizer: Tokenizer, directory: Path, count: Callable[[int], object], followed_by: int
) -> TokensOnDisk:
    """Write a corpus's ids to `directory` and return them; resume a killed attempt if no text file changed since.

    `count` receives numbers of encoded bytes; the disk must also have space for the ids of `followed_by` more bytes.
    """
    origin = directory / "origin.json"
    if read_cached_json(origin) != [corpus.whole.survey.fingerprint]:
        _clear(directory)
        write_durably(origin, [json.dumps([corpus.whole.survey.fingerprint]).encode()])
    writer = TokenWriter(directory, _dtype(tokenizer))
    groups = _groups(corpus, tokenizer)
    for group in islice(groups, writer.num_groups):
        count(_num_bytes(group))
    try:
        for number, (ids, num_bytes) in enumerate(_encoded(groups, tokenizer)):
            if number == 0:
                ids = ids if writer.num_groups else ids[1:]  # no end-of-text before the first document
                left = corpus.num_bytes + followed_by - writer.num_groups * num_bytes
                _require_space(directory, ids.nbytes * left // num_bytes)
            writer.add(ids)
            count(num_bytes)
        corpus.whole.require_unchanged()
    except DataError:
        _clear(directory)  # it may contain ids of another text
        raise
    about = {"text": corpus.whole.digest, "part": corpus.digest, "tokenizer": tokenizer.digest, "kind": tokenizer.kind}
    return writer.finish(about | {"vocab_size": tokenizer.vocab_size})


def _groups(corpus: Corpus, tokenizer: Tokenizer) -> Iterator[list[TextBlock]]:
    """Yield a text in groups of pieces: each piece is encoded alone, and a group is enough work for a thread."""
    return in_groups(in_pieces(corpus.blocks(), tokenizer.cut))


def _encoded(groups: Iterator[list[TextBlock]], tokenizer: Tokenizer) -> Iterator[tuple[np.ndarray, int]]:
    """Encode groups with a thread per core; yield each group's ids and its number of bytes of text, in order."""
    waiting = deque[Future[tuple[np.ndarray, int]]]()
    with ThreadPoolExecutor(cores()) as pool:
        try:
            for group in groups:
                waiting.append(pool.submit(_encode_group, group, tokenizer))
                if len(waiting) > 2 * cores() + 2:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _encode_group(group: list[TextBlock], tokenizer: Tokenizer) -> tuple[np.ndarray, int]:
    dtype = _dtype(tokenizer)
    between = np.array([tokenizer.end_of_text, *tokenizer.starts_with], dtype)
    parts = list[np.ndarray]()
    for piece in group:
        if piece.starts:
            parts.append(between)
        parts.append(tokenizer.array(piece.text) if piece.starts else tokenizer.continued(piece.text))
    return np.concatenate(parts, dtype=dtype, casting="same_kind"), _num_bytes(group)


def _num_bytes(group: list[TextBlock]) -> int:
    return sum(len(piece.content) for piece in group)


def _dtype(tokenizer: Tokenizer) -> np.dtype:
    return np.dtype(np.uint16 if tokenizer.vocab_size <= 2**16 else np.uint32)


def _require_space(directory: Path, num_bytes: int) -> None:
    """Raise EnvironmentFailure if the disk of `directory` has less than `num_bytes` free."""
    free = shutil.disk_usage(directory).free
    if num_bytes > free:
        need = f"the tokens of this text take about {num_bytes / 1e6:,.1f} MB, but only {free / 1e6:,.1f} MB are free"
        hint = "delete files, or set XDG_CACHE_HOME to a folder with more space"
        raise EnvironmentFailure(shown(directory), need, hint=hint)


def _clear(directory: Path) -> None:
    """Remove all files of a token directory except its lock file."""
    for path in directory.iterdir():
        if path.name != _LOCK:
            remove(path)


def digest_of(ids: Ids | Examples, validation_ids: Ids | Examples) -> str:
    """Return the sha256 of the training and validation ids; if the training ids are on disk, cache it beside them."""
    if isinstance(ids, Examples) or isinstance(validation_ids, Examples):
        digests = [part.digest if isinstance(part, Examples) else data_digest(part) for part in (ids, validation_ids)]
        return hashlib.sha256(" ".join(digests).encode()).hexdigest()
    if not isinstance(ids, TokensOnDisk):
        return data_digest(ids, validation_ids)
    other = validation_ids.directory.name if isinstance(validation_ids, TokensOnDisk) else data_digest(validation_ids)
    path = ids.directory / f"digest-{other}.json"
    if isinstance(stored := read_cached_json(path), str):
        return stored
    digest = data_digest(ids, validation_ids)
    write_json(path, digest)
    return digest
