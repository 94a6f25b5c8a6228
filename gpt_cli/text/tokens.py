"""Token ids ready for training: encoded once, cached by content, cut into batches by (seed, step)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from gpt_cli.errors import DataError, EnvironmentFailure
from gpt_cli.files import cache_directory, make_directory, read_bytes, write_durably
from gpt_cli.streams import permutation, stream_key
from gpt_cli.text.tokenizer import Tokenizer, pieces

# texts below this are encoded faster than a cache is looked up
CACHE_FROM = 2_000_000  # characters


def encode_documents(
    documents: Sequence[str], tokenizer: Tokenizer, progress: Callable[[int], object] = lambda _: None
) -> np.ndarray:
    """The ids of documents joined by end-of-text: uint16 or uint32 [tokens], from the cache for large texts.

    `progress` is told the characters encoded since it was last told.
    """
    if sum(map(len, documents)) < CACHE_FROM:
        return _encode(documents, tokenizer, progress)
    path = cache_directory("tokens") / _cache_key(documents, tokenizer)
    if (cached := _read_cache(path, tokenizer)) is not None:
        return cached
    ids = _encode(documents, tokenizer, progress)
    try:
        make_directory(path.parent)
        write_durably(path, [safetensors.numpy.save({"ids": ids}, {"sha256": _digest(ids)})])
    except EnvironmentFailure:
        pass  # a cache that cannot be written costs time, not correctness
    return ids


def _encode(documents: Sequence[str], tokenizer: Tokenizer, progress: Callable[[int], object]) -> np.ndarray:
    dtype = np.uint16 if tokenizer.vocab_size <= 2**16 else np.uint32
    parts = [np.empty(0, dtype)]
    for i, document in enumerate(documents):
        if i:
            parts.append(np.array([tokenizer.end_of_text], dtype))
        for piece in pieces(document):
            parts.append(np.array(tokenizer.encode(piece), dtype))
            progress(len(piece))
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
    # the digest stands in the header, which is JSON in the first bytes
    intact = _digest(ids).encode() in content[:1024] and int(ids.max(initial=0)) < tokenizer.vocab_size
    return ids if intact else None


def _digest(ids: np.ndarray) -> str:
    return hashlib.sha256(ids.tobytes()).hexdigest()


@dataclass(frozen=True)
class Batches:
    """Training batches as a function of (seed, step).

    Each epoch cuts the ids into windows of context_length from an offset of its own, and visits the windows
    in an order of its own; both come from the seed and the number of the epoch, so nothing needs saving.
    """

    ids: np.ndarray
    context_length: int
    batch_size: int
    seed: int

    @property
    def max_offset(self) -> int:
        return max(0, min(self.context_length - 1, len(self.ids) - 1 - self.context_length))

    @property
    def windows_per_epoch(self) -> int:
        return max(1, (len(self.ids) - 1 - self.max_offset) // self.context_length)

    def __call__(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets of a step (counted from 0): int64 [B, T] each, targets one token ahead."""
        numbers = np.arange(step * self.batch_size, (step + 1) * self.batch_size)
        starts = np.empty(self.batch_size, np.int64)
        for epoch in np.unique(numbers // self.windows_per_epoch):
            of_epoch = numbers // self.windows_per_epoch == epoch
            of_this = _starts(self.seed, int(epoch), self.windows_per_epoch, self.context_length, self.max_offset)
            starts[of_epoch] = of_this[numbers[of_epoch] % self.windows_per_epoch]
        windows = self.ids[starts[:, None] + np.arange(self.context_length + 1)].astype(np.int64)
        return windows[:, :-1], windows[:, 1:]


@lru_cache(maxsize=2)
def _starts(seed: int, epoch: int, num_windows: int, stride: int, max_offset: int) -> np.ndarray:
    """The first position of every window of an epoch, in the order of that epoch: int64 [num_windows]."""
    offset = stream_key(seed, "offset", epoch) % (max_offset + 1)
    return offset + permutation(stream_key(seed, "order", epoch), num_windows) * stride


def check_length(ids: np.ndarray, validation_ids: np.ndarray, context_length: int) -> None:
    """Raises DataError when there is too little text for one training window or one validation token."""
    if len(ids) < context_length + 1:
        raise DataError(
            "corpus",
            f"its training part has {len(ids):,} tokens",
            f"context_length {context_length} needs at least {context_length + 1:,}",
            hint="add text with --data, or lower --set model.context_length",
        )
    if len(validation_ids) < 2:
        raise DataError(
            "corpus",
            f"its validation part has {len(validation_ids)} tokens",
            "at least 2 are needed",
            hint="raise --set data.validation_fraction, or add text with --data",
        )


def validation_windows(num_ids: int, context_length: int, eval_tokens: int | None = None) -> list[tuple[int, int]]:
    """Windows of validation ids as (start, end): inputs are start..end-1, targets one further.

    All of them, without overlap, so that each id but the first is a target once; with `eval_tokens` only
    as many, evenly spaced.
    """
    windows = [(i, min(i + context_length, num_ids - 1)) for i in range(0, num_ids - 1, context_length)]
    if eval_tokens is None or eval_tokens >= num_ids - 1:
        return windows
    count = max(1, eval_tokens // context_length)
    return [windows[i * len(windows) // count] for i in range(min(count, len(windows)))]
