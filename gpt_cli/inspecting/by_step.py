"""The models of a run at the steps of its training: its checkpoints, one in memory at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

from gpt_cli.callbacks import Host
from gpt_cli.checkpoints.load import Loaded, load
from gpt_cli.errors import CheckpointError, shown, visible


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
