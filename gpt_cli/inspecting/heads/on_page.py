"""What a page shows of the heads of a dump beside their weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from gpt_cli.inspecting.dump import AttentionDump
from gpt_cli.inspecting.formats import num_written
from gpt_cli.inspecting.heads.attribution import head_writes
from gpt_cli.inspecting.heads.scores import (
    BYTES_PER_WEIGHT,
    NUM_REPEATS,
    repeated_length,
    score_heads,
    sequences_at_once,
)
from gpt_cli.model import GPT
from gpt_cli.sampling.scoring import LOGITS_AT_ONCE
from gpt_cli.text.tokenizer import Tokenizer


def with_heads(
    dump: AttentionDump, model: GPT, tokenizer: Tokenizer, notice: Callable[[str], object] = lambda _: None
) -> AttentionDump:
    """The dump with the scores of its heads on its tokens, and with what they write, unless that is too much.

    Raises CheckpointError where the model computes numbers that are not finite.
    """
    ids = torch.tensor([dump.token_ids], device=model.token_embedding.weight.device)
    chosen = {"layers": dump.layers, "heads": dump.heads}
    dump = replace(dump, scores=score_heads(model, [ids], end_of_text=tokenizer.end_of_text, **chosen))
    top = num_written(len(dump.layers) * len(dump.heads), len(dump.tokens))
    if top == 0:
        notice("the page does not show what heads write, which is too much here; fewer --layers or --heads do")
        return dump
    writes = head_writes(model, dump.token_ids, top=top, layers=dump.layers, heads=dump.heads)
    known = np.unique([writes.raised, writes.lowered]).tolist()
    return replace(dump, writes=writes, texts={token: tokenizer.token_text(token) for token in known})


def bytes_of_heads(model: GPT, num_heads: int, num_tokens: int) -> int:
    """About what memory `with_heads` takes beside its result, for so many heads of a layer on so many tokens."""
    V, sizes = model.vocab_size, model.config
    T = repeated_length(V, sizes.context_length)
    scoring = BYTES_PER_WEIGHT * num_heads * T**2 * min(NUM_REPEATS, sequences_at_once(sizes.num_heads, T))
    writing = BYTES_PER_WEIGHT * sizes.num_heads * num_tokens**2  # what heads give, before they write it
    return max(scoring, writing, 12 * V * sizes.d_model + 8 * min(V * num_tokens, LOGITS_AT_ONCE))
