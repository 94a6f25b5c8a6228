"""The models of a run at the steps of its training, and what heads did on a prompt, from its checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from gpt_cli.callbacks import Host
from gpt_cli.checkpoints.load import Loaded, load
from gpt_cli.checkpoints.run_files import RunFiles
from gpt_cli.errors import CheckpointError, DataError, shown, visible
from gpt_cli.inspecting.heads.scores import score_windows
from gpt_cli.inspecting.lens.lens import lens_of_ids
from gpt_cli.inspecting.room import require_room_for_dump
from gpt_cli.inspecting.snapshots import Snapshot, Steps
from gpt_cli.model.gpt import require_finite
from gpt_cli.sampling.prompts import encode_prompt
from gpt_cli.sampling.scoring import surprisals


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
    """The attention of one checkpoint, in float32, with the scores of `gpt heads`."""
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
        scores=score_windows(model, np.array(ids), [(0, len(ids))], end_of_text=loaded.tokenizer.end_of_text),
        lens=lens_of_ids(model, loaded.tokenizer, ids, layers, where),
    )


def each_checkpoint(paths: Iterable[Path], newest: Loaded, device: torch.device, host: Host) -> Iterator[Loaded]:
    """Yields the models of checkpoints on a device, of which the newest is loaded.

    Raises CheckpointError for one that is damaged or not like the newest.
    """
    for path in paths:
        loaded = newest if path == newest.path else load(path, None, host.warn)
        _require_like(loaded, newest)
        loaded.model.to(device)
        yield loaded


def _require_like(loaded: Loaded, newest: Loaded) -> None:
    """Raises CheckpointError for a step with another tokenizer, or other numbers of blocks, heads or tokens read."""
    if loaded.header.metadata["tokenizer"] != newest.header.metadata["tokenizer"]:
        sentence = f"its tokenizer is not that of {visible(newest.path)}, so its layers read other tokens"
        raise CheckpointError(shown(loaded.path), sentence)
    one, other = loaded.config.model, newest.config.model
    if any(getattr(one, key) != getattr(other, key) for key in ("num_blocks", "num_heads", "context_length")):
        raise CheckpointError(shown(loaded.path), f"it is a model of another shape than {shown(newest.path)}")
