"""The scores of heads over windows of a text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from gpt_cli.inspecting.heads.columns import HeadScores
from gpt_cli.inspecting.heads.scores import score_heads, sequences_at_once
from gpt_cli.model import GPT
from gpt_cli.sampling.scoring import in_batches
from gpt_cli.text.token_store import Ids
from gpt_cli.text.token_store import windows as token_windows


def score_windows(
    model: GPT,
    ids: Ids,
    windows: Sequence[tuple[int, int]],
    *,
    end_of_text: int,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    count: Callable[[int], object] = lambda _: None,
) -> HeadScores:
    """The scores of the given heads (None: of all) over the ids from start to end of windows (start, end).

    A batch has as many windows as `sequences_at_once` says. `count` receives the number of tokens done since its last
    call.
    """
    starts, ends = np.array(windows).T
    lengths = ends - starts
    at_once = sequences_at_once(model.config.num_heads, int(lengths.max()))
    device = model.token_embedding.weight.device

    def batches() -> Iterator[Tensor]:
        for chosen in in_batches(lengths, at_once):
            tokens = token_windows(ids, starts[chosen], int(lengths[chosen[0]]))
            yield torch.from_numpy(tokens.astype(np.int64)).to(device)
            count(int(lengths[chosen].sum()))

    return score_heads(model, batches(), end_of_text=end_of_text, layers=layers, heads=heads)
