"""Take snapshots of attention during a training: weights on the text of `inspect.prompt`, and scores of all heads."""

from __future__ import annotations

import torch

from gpt_cli.attention_maps.head_scores import as_scores, induction_scores, pattern_sums
from gpt_cli.attention_maps.snapshots import Snapshot
from gpt_cli.config import Config
from gpt_cli.errors import CheckpointError, DataError, counted
from gpt_cli.model.gpt import require_finite
from gpt_cli.sampling.prompts import encode_text
from gpt_cli.text.tokenizers import Tokenizer
from gpt_cli.training.run import Run
from gpt_cli.training.step import Diverged

# sequences of random tokens, fewer than a report has: most of a snapshot's time goes there
_NUM_REPEATS = 2
_BESIDE_WEIGHTS = 4000  # bytes of a small snapshot's scores, prompt and header, generously


def watched_ids(config: Config, tokenizer: Tokenizer) -> list[int]:
    """Return the token ids of the setting `inspect.prompt`, or [] if the setting is null.

    Raises DataError if the vocabulary lacks a character, or if there are fewer than 2 or more than context_length ids.
    """
    where, prompt, context_length = "inspect.prompt (‹watch›)", config.inspect.prompt, config.model.context_length
    if prompt is None:
        return []
    ids = [*tokenizer.starts_with, *encode_text(tokenizer, prompt, where)]
    if len(ids) < 2:
        raise DataError(where, "it is a single token, which has no other to look at; watch a text of two or more")
    if len(ids) > context_length:
        hint = f"watch a shorter text, or begin a new run with ‹model.context_length={len(ids)}›"
        raise DataError(where, f"it has {counted(len(ids), 'token')}, but this model sees {context_length}", hint=hint)
    return ids


def snapshot_size(run: Run) -> int:
    """Estimate the size of one attention snapshot file in bytes; return 0 if the run takes no snapshots."""
    T, sizes = len(watched_ids(run.config, run.tokenizer)), run.config.model
    return sizes.num_blocks * sizes.num_heads * T * (T + 1) + _BESIDE_WEIGHTS if T else 0


@torch.no_grad()
def take_snapshot(run: Run) -> Snapshot:
    """Compute a snapshot: attention weights on the text of `inspect.prompt`, without dropout, and scores of all heads.

    The weights are float32. Raises Diverged if one of them is not finite.
    """
    progress, tokenizer, prompt = run.progress, run.tokenizer, run.config.inspect.prompt
    assert prompt is not None
    assert progress.loss is not None, "a step was taken, and its outcome was read"
    ids = watched_ids(run.config, tokenizer)
    batch, model = torch.tensor([ids], device=run.state.device), run.state.model
    weights = model.attention_weights(batch)  # [L, 1, H, T, T]
    sums, counts = zip(*(pattern_sums(of_layer, batch) for of_layer in weights), strict=True)
    induction = induction_scores(model, end_of_text=tokenizer.end_of_text, repeats=_NUM_REPEATS)
    scores = as_scores(torch.stack(sums), counts[0], induction, range(len(weights)), range(weights.shape[2]))
    try:
        require_finite(weights, "attention weights")
    except CheckpointError as error:  # its hint is for commands that load a checkpoint
        raise Diverged(progress.step, None, what="the attention weights of inspect.prompt") from error
    return Snapshot(
        step=progress.step,
        loss=progress.loss,
        prompt=prompt,
        token_ids=tuple(ids),
        tokens=tuple(tokenizer.token_text(token) for token in ids),
        weights=weights[:, 0].cpu().numpy(),
        scores=scores,
    )
