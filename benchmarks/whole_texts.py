"""A text prepared in the plainest way: all of it in memory, one thread, lists of ids.

`gpt train` did so before texts were streams; only the split into training and validation part is left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from gpt_cli.text.documents import split_document
from gpt_cli.text.split_patterns import WORD_PATTERN
from gpt_cli.text.tokenizers import BytePairTokenizer, CharTokenizer, Tokenizer


def read(source: Path) -> list[str]:
    """The text of a file, or of all files below a directory."""
    paths = sorted(source.rglob("*")) if source.is_dir() else [source]
    return [path.read_bytes().decode("utf-8") for path in paths]


def digest(documents: Sequence[str]) -> str:
    """What names a text in a cache."""
    found = hashlib.sha256()
    for document in documents:
        content = document.encode("utf-8")
        found.update(len(content).to_bytes(8, "little") + content)
    return found.hexdigest()


def learn(documents: Sequence[str], vocab_size: int) -> Tokenizer:
    """Byte pairs, with as many pieces at once in the library's memory as it likes."""
    import rustbpe  # only learning needs it

    trainer = rustbpe.Tokenizer()  # type: ignore[attr-defined]
    texts = (piece for document in documents for piece in split_document(document))
    trainer.train_from_iterator(texts, vocab_size=vocab_size - 1, pattern=WORD_PATTERN)
    ranked = sorted(trainer.get_mergeable_ranks(), key=lambda pair: pair[1])
    return BytePairTokenizer("bpe", WORD_PATTERN, [bytes(token) for token, _ in ranked])


def encode(documents: Sequence[str], tokenizer: Tokenizer) -> np.ndarray:
    """The ids of documents joined by end-of-text: uint16 [tokens]."""
    to_ids = _to_ids(tokenizer)
    found = list[np.ndarray]()
    for number, document in enumerate(documents):
        if number:
            found.append(np.array([tokenizer.end_of_text], np.uint16))
        found += [np.array(to_ids(piece), np.uint16) for piece in split_document(document)]
    return np.concatenate(found)


def _to_ids(tokenizer: Tokenizer) -> Callable[[str], list[int]]:
    if isinstance(tokenizer, BytePairTokenizer):
        return tokenizer.encoding.encode_ordinary
    if isinstance(tokenizer, CharTokenizer):
        id_of = {character: number for number, character in enumerate(tokenizer.characters)}
        return lambda text: [id_of[character] for character in text]
    return lambda text: list(text.encode("utf-8"))


def start(source: Path, cache: Path, vocab_size: int) -> np.ndarray:
    """All that comes before the first step: the ids, from the cache where an earlier start has left them."""
    documents = read(source)
    path = cache / f"{digest(documents)}.npy"
    if not path.exists():
        cache.mkdir(exist_ok=True)
        np.save(path, encode(documents, learn(documents, vocab_size)))
    return np.load(path)
