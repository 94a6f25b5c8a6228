"""Attention to a prompt at the steps of a training, computed from its checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from gpt_cli.attention_maps.head_scores import score_heads
from gpt_cli.attention_maps.memory import require_room_for_dump
from gpt_cli.attention_maps.snapshots import Snapshot, Steps
from gpt_cli.checkpoints.load import load
from gpt_cli.checkpoints.run_paths import RunFiles
from gpt_cli.common.host import Host
from gpt_cli.errors import DataError, shown
from gpt_cli.evaluation.nll import surprisals
from gpt_cli.model.gpt import require_finite
from gpt_cli.sampling.prompts import encode_prompt
from gpt_cli.tools.interpret.lens.lens import lens_of_ids


def computed_steps(
    run: RunFiles, paths: Sequence[Path], prompt: str, source: str, device: torch.device, host: Host
) -> Steps:
    """The steps of the checkpoints of a run, of which one is in memory at a time; a loss is that of the prompt.

    Raises DataError for a prompt that the model cannot read or of one token.
    """
    newest = _snapshot(paths[-1], prompt, source, device, host)

    def read(every: int) -> Iterator[Snapshot]:
        chosen = paths[::-1][::every][::-1]
        with host.counting("computing attention", len(chosen), "checkpoints") as count:
            for path in chosen:
                yield newest if path == paths[-1] else _snapshot(path, prompt, source, device, host)
                count(1)

    return Steps(str(run.path), newest, len(paths), read, {"loss": [], "validation_loss": []}, computed=True)


def _snapshot(path: Path, prompt: str, source: str, device: torch.device, host: Host) -> Snapshot:
    """Compute the attention of one checkpoint, in float32, with the scores of `gpt heads`."""
    loaded = load(path, None, host.warn)
    model, sizes, where = loaded.model.to(device), loaded.config.model, shown(path)
    ids = encode_prompt(loaded.tokenizer, prompt, sizes.context_length, source=source, truncate=None)
    if len(ids) < 2:
        raise DataError("prompt", "it has 1 token, which can only look at itself; use at least 2")
    layers, heads = range(sizes.num_blocks), range(sizes.num_heads)
    require_room_for_dump("heads", model, len(ids), layers=layers, heads=heads, ending=None, out=None)
    batch = torch.tensor([ids], device=model.token_embedding.weight.device)
    with torch.inference_mode():
        weights = model.attention_weights(batch)[:, 0]  # [L, H, T, T]
    require_finite(weights, "attention weights", where)
    losses = surprisals(model, np.array(ids), stride=sizes.context_length)
    return Snapshot(
        step=loaded.step,
        loss=float(np.concatenate([*losses]).mean()),
        prompt=prompt,
        token_ids=tuple(ids),
        tokens=tuple(loaded.tokenizer.token_text(token) for token in ids),
        weights=weights.cpu().numpy(),
        scores=score_heads(model, np.array(ids), [(0, len(ids))], end_of_text=loaded.tokenizer.end_of_text),
        lens=lens_of_ids(model, loaded.tokenizer, ids, layers, where),
    )
