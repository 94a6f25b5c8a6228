"""Attention on a prompt at several steps of a training, computed from the checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from gpt_cli.attention_maps.head_scores import score_heads
from gpt_cli.attention_maps.patterns import require_room_for_dump
from gpt_cli.attention_maps.snapshots import Snapshot, Steps
from gpt_cli.checkpoints.load import load
from gpt_cli.common.host import Host
from gpt_cli.errors import shown
from gpt_cli.evaluation.nll import surprisals
from gpt_cli.model.gpt import require_finite
from gpt_cli.tools.interpret.lens.lens import lens_of_ids
from gpt_cli.tools.interpret.request import ToInspect, step_files
from gpt_cli.tools.interpret.text_windows import encode_prompt_of


def computed_steps(target: ToInspect, device: torch.device, host: Host) -> Steps:
    """Return the attention on a prompt at each checkpoint of a run, as `Steps`; losses are those of the prompt.

    One model at a time is in memory. Raises CheckpointError for a run without checkpoints, DataError for a prompt of
    one token or one that the model cannot encode.
    """
    paths = step_files(target.run)
    newest = _snapshot(paths[-1], target, device, host)

    def read(every: int) -> Iterator[Snapshot]:
        chosen = paths[::-1][::every][::-1]
        with host.counting("computing attention", len(chosen), "checkpoints") as count:
            for path in chosen:
                yield newest if path == paths[-1] else _snapshot(path, target, device, host)
                count(1)

    return Steps(str(target.run.path), newest, len(paths), read, losses=None)


def _snapshot(path: Path, target: ToInspect, device: torch.device, host: Host) -> Snapshot:
    """Return the attention of one checkpoint on the prompt, in float32, with the scores of `gpt heads`."""
    loaded = load(path, None, host.warn)
    model, sizes, where = loaded.model.to(device), loaded.config.model, shown(path)
    text = encode_prompt_of(target, loaded, truncate=None, least=2)
    ids, layers, heads = text.ids[:].tolist(), range(sizes.num_blocks), range(sizes.num_heads)
    require_room_for_dump("heads", model, len(ids), layers=layers, heads=heads, ending=None, out=None)
    batch = torch.tensor([ids], device=model.token_embedding.weight.device)
    with torch.inference_mode():
        weights = model.attention_weights(batch)[:, 0]  # [L, H, T, T]
    require_finite(weights, "attention weights", where)
    losses = surprisals(model, text.ids, stride=sizes.context_length)
    assert target.prompt is not None
    return Snapshot(
        step=loaded.step,
        loss=float(np.concatenate([*losses]).mean()),
        prompt=target.prompt,
        token_ids=tuple(ids),
        tokens=tuple(loaded.tokenizer.token_text(token) for token in ids),
        weights=weights.cpu().numpy(),
        scores=score_heads(model, text.ids, text.windows, end_of_text=loaded.tokenizer.end_of_text),
        lens=lens_of_ids(model, loaded.tokenizer, ids, layers, where),
    )
