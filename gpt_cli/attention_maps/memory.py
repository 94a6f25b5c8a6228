"""Check, before a model runs, that memory and disk can hold its attention in a dump."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from gpt_cli.attention_maps.file_formats import num_dots, writing_bytes, written_bytes
from gpt_cli.attention_maps.head_scores import BYTES_PER_WEIGHT, num_repeats, repeated_length, sequences_at_once
from gpt_cli.attention_maps.selection import count_numbers
from gpt_cli.common.machine.memory import available_memory, require_available
from gpt_cli.errors import counted
from gpt_cli.evaluation.nll import LOGITS_AT_ONCE
from gpt_cli.model import GPT


def require_room_for_dump(
    command: str,
    model: GPT,
    num_tokens: int,
    *,
    layers: Sequence[int],
    heads: Sequence[int],
    stages: Sequence[str] = ("weights",),
    ending: str | None,
    out: Path | None,
    shorter: str = "use a shorter prompt",
) -> None:
    """Raise EnvironmentFailure if memory or disk cannot hold the attention of a model that `command` is about to run.

    The error's hint is `shorter`, or, for the command attn-dump, a single head if memory or disk can hold that head. If
    `ending` is None, attention is drawn in the terminal; if `out` is None, no file is written.
    """
    count, numbers = len(layers) * len(heads), count_numbers(stages, num_tokens, model.config)
    dots = num_dots(num_tokens, len(layers), len(heads))
    writing, file_size = (0, 0) if ending is None else writing_bytes(ending, numbers, dots)
    on_page = 0
    if ending == ".html":
        more_memory, more_disk = written_bytes(count, num_tokens)
        writing, file_size = writing + more_memory, file_size + more_disk
        on_page = _bytes_of_heads(model, len(heads), num_tokens)
    # a layer is computed at a time, and the arrays of all are kept
    of_layer = BYTES_PER_WEIGHT * num_tokens**2 * len(heads)
    needs = [(4 * numbers + writing, max(of_layer, on_page), available_memory(), "memory")]
    if out is not None:
        folder = next(parent for parent in out.absolute().parents if parent.is_dir())
        needs.append((file_size, 0, shutil.disk_usage(folder).free, "disk"))
    about = f"{counted(count, 'head')} on {counted(num_tokens, 'token')}"
    for per_head, fixed, free, what in needs:
        fits = command == "attn-dump" and count > 1 and per_head + fixed // len(heads) <= (free or 0)
        hint = f"‹layers={layers[0]}› ‹heads={heads[0]}›" if fits else shorter
        require_available(command, about, fixed + per_head * count, free, what=what, hint=hint)


def _bytes_of_heads(model: GPT, num_heads: int, num_tokens: int) -> int:
    """Estimate the peak bytes, without results, to score one layer's heads and find the tokens that the heads raise."""
    V, sizes = model.vocab_size, model.config
    T = repeated_length(model)
    scoring = BYTES_PER_WEIGHT * num_heads * T**2 * min(num_repeats(model), sequences_at_once(sizes.num_heads, T))
    writing = BYTES_PER_WEIGHT * sizes.num_heads * num_tokens**2  # what heads give, before they write it
    return max(scoring, writing, 12 * V * sizes.d_model + 8 * min(V * num_tokens, LOGITS_AT_ONCE))
