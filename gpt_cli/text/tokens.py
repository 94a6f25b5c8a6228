"""Token ids of documents, encoded once and cached by content, and the windows of a validation text."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from gpt_cli.errors import DataError, EnvironmentFailure, counted
from gpt_cli.files import cache_directory, make_directory, read_bytes, write_durably
from gpt_cli.text.tokenizer import Tokenizer, pieces

# encoding a shorter text is faster than looking in the cache
CACHE_FROM = 2_000_000  # characters


def encode_documents(
    documents: Sequence[str], tokenizer: Tokenizer, count: Callable[[int], object] = lambda _: None
) -> np.ndarray:
    """The ids of documents joined by end-of-text: uint16 or uint32 [tokens], from the cache for large texts.

    `count` receives the number of characters encoded since its last call.
    """
    if sum(map(len, documents)) < CACHE_FROM:
        return _encode(documents, tokenizer, count)
    try:
        path = cache_directory("tokens") / _cache_key(documents, tokenizer)
    except EnvironmentFailure:  # a user without a home directory has no cache
        return _encode(documents, tokenizer, count)
    if (cached := _read_cache(path, tokenizer)) is not None:
        return cached
    ids = _encode(documents, tokenizer, count)
    try:
        make_directory(path.parent)
        write_durably(path, [safetensors.numpy.save({"ids": ids}, {"sha256": _digest(ids)})])
    except EnvironmentFailure:
        pass  # a cache that cannot be written costs time, not correctness
    return ids


def _encode(documents: Sequence[str], tokenizer: Tokenizer, count: Callable[[int], object]) -> np.ndarray:
    dtype = np.uint16 if tokenizer.vocab_size <= 2**16 else np.uint32
    parts = [np.empty(0, dtype)]
    for i, document in enumerate(documents):
        if i:
            parts.append(np.array([tokenizer.end_of_text], dtype))
        for piece in pieces(document):
            parts.append(np.array(tokenizer.encode(piece), dtype))
            count(len(piece))
    return np.concatenate(parts)


def _cache_key(documents: Sequence[str], tokenizer: Tokenizer) -> str:
    digest = hashlib.sha256(tokenizer.digest.encode())
    for document in documents:
        content = document.encode("utf-8")
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()


def _read_cache(path: Path, tokenizer: Tokenizer) -> np.ndarray | None:
    """The cached ids, or None for a missing or damaged file."""
    try:
        content = read_bytes(path, DataError)
        ids = safetensors.numpy.load(content)["ids"]
    except (DataError, EnvironmentFailure, SafetensorError, KeyError, ValueError):
        return None
    # the header, JSON in the first bytes, contains the digest
    intact = _digest(ids).encode() in content[:1024] and int(ids.max(initial=0)) < tokenizer.vocab_size
    return ids if intact else None


def _digest(ids: np.ndarray) -> str:
    return hashlib.sha256(ids.tobytes()).hexdigest()


def data_digest(*parts: np.ndarray) -> str:
    """The sha256 of the ids of a text's training and validation part, by which a run recognises its text."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part.astype(np.uint32).tobytes())
    return digest.hexdigest()


def check_length(ids: np.ndarray, validation_ids: np.ndarray, context_length: int) -> None:
    """Raises DataError for too little text: less than one training window or one validation target."""
    if len(ids) < context_length + 1:
        raise DataError(
            "corpus",
            f"its training part has {counted(len(ids), 'token')}, but context_length {context_length} needs at least "
            f"{context_length + 1:,}",
            hint="add text with --data, or lower --set model.context_length",
        )
    if len(validation_ids) < 2:
        raise DataError(
            "corpus",
            f"its validation part has {counted(len(validation_ids), 'token')}, but an evaluation needs at least 2",
            hint="raise --set data.validation_fraction, or add text with --data",
        )


def validation_windows(num_ids: int, context_length: int, eval_tokens: int | None = None) -> list[tuple[int, int]]:
    """Windows of validation ids as (start, end): inputs are start..end-1, targets one further.

    Without `eval_tokens` they cover all ids without overlap, so that each id but the first is a target once; with it,
    they are evenly spaced and cover about `eval_tokens` ids.
    """
    windows = [(i, min(i + context_length, num_ids - 1)) for i in range(0, num_ids - 1, context_length)]
    if eval_tokens is None or eval_tokens >= num_ids - 1:
        return windows
    num_windows = max(1, eval_tokens // context_length)
    return [windows[i * len(windows) // num_windows] for i in range(min(num_windows, len(windows)))]
