"""Runs that one process or many train, in forms whose results must not depend on how many there were."""

from __future__ import annotations

import json
from pathlib import Path

from support.faults import START, fingerprint, new_folder, strays
from support.forks import Servers

# a step of eight micro-batches; an evaluation of several batches
EIGHT = ("train.batch_size=8", "train.micro_batch_size=1", "train.eval_tokens=640")
FORMS = {
    "adamw": (),
    "latent, muon": ("model.attention=latent", "model.positions=rope", "train.optimizer=muon"),
    "grouped-query, rmsnorm, post": (
        "model.attention=grouped_query",
        "model.norm=rmsnorm",
        "model.norm_position=post",
        "model.bias=false",
    ),
    "bfloat16": ("train.dtype=bfloat16", "model.num_blocks=2"),
    "taught by a model": ("train.teacher_share=0.33",),
    "one block, muon": ("train.optimizer=muon", "model.num_blocks=1", "model.num_heads=1"),
    "muon in bfloat16, rope, n-grams, tied": (
        "train.dtype=bfloat16",
        "train.optimizer=muon",
        "model.positions=rope",
        "model.ngram_embedding=3",
        "model.tie_embeddings=true",
    ),
}


def trained(servers: Servers, folder: Path, processes: int, *settings: str) -> tuple[str, float]:
    """What a run of twelve steps leaves, when a number of processes trains it, and the loss of its best weights."""
    new_folder(folder, *EIGHT, *settings)
    ended = servers.gpt(folder, *START, "--json", processes=processes)
    assert (ended.code, ended.err.count("error")) == (0, 0), ended.err
    assert strays(folder / "run") == []
    return fingerprint(folder / "run"), json.loads((folder / "stdout").read_text())["validation_loss"]


def drop_later(run: Path, step: int) -> None:
    """Remove the checkpoints after a step, as if the run had been stopped there."""
    for path in (run / "checkpoints").glob("step-*"):
        if int(path.stem.removeprefix("step-")) > step:
            path.unlink()
