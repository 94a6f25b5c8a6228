"""What training and evaluation ask of the ids of a text: its digest, its length, its windows."""

from __future__ import annotations

import hashlib

import numpy as np

from gpt_cli.errors import DataError, counted
from gpt_cli.text.token_files import Ids, chunks


def data_digest(*parts: Ids) -> str:
    """The sha256 of the ids of a text's training and validation part, by which a run recognises its text."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        for ids in chunks(part):
            digest.update(ids.astype(np.uint32).tobytes())
    return digest.hexdigest()


def check_length(ids: Ids, validation_ids: Ids, context_length: int) -> None:
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
    starts = range(0, num_ids - 1, context_length)
    if eval_tokens is not None and eval_tokens < num_ids - 1:
        num_windows = min(max(1, eval_tokens // context_length), len(starts))
        chosen = [starts[i * len(starts) // num_windows] for i in range(num_windows)]
    else:
        chosen = starts
    return [(start, min(start + context_length, num_ids - 1)) for start in chosen]
