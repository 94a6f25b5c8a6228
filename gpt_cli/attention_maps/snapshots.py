"""Snapshots of a run: small files with the attention on one text at steps of the training. Needs no torch."""

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from pydantic import ConfigDict, TypeAdapter

from gpt_cli.attention_maps.head_metrics import COLUMNS, HeadScores, Row
from gpt_cli.checkpoints.array_file import ArrayFile
from gpt_cli.checkpoints.metrics_files import metrics_of
from gpt_cli.checkpoints.run_paths import RunFiles
from gpt_cli.checkpoints.select import find_header, model_began
from gpt_cli.checkpoints.training_text import is_imported, readable_prompt
from gpt_cli.common.limits import SNAPSHOT_BYTES
from gpt_cli.errors import CheckpointError, DataError, counted, shown, visible

_HINT = "gpt train --watch TEXT writes snapshots; a run continues without a snapshot that you remove"
_FILE = ArrayFile("gpt-cli attention snapshot 1", "an attention snapshot", _HINT)

Losses = Mapping[str, Sequence[tuple[int, float]]]  # (step, loss), (step, validation_loss)


@dataclass(frozen=True)
class _About:
    """The metadata in a snapshot file."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    step: int
    loss: float  # of the step's batch, in nats per token
    prompt: str
    token_ids: tuple[int, ...]
    tokens: tuple[str, ...]


@dataclass(frozen=True)
class Snapshot(_About):
    """The attention weights and head scores of a model on `prompt`, after training step `step`."""

    weights: np.ndarray  # [L, H, T, T] float32; a file keeps them as float16
    scores: HeadScores
    lens: Sequence[Row] = ()  # what each layer would predict at each position, if computed from a checkpoint


@dataclass(frozen=True)
class Steps:
    """Attention snapshots of one prompt at several training steps.

    `read(n)` yields every n-th snapshot, counted back from the newest, in the order of their steps.
    """

    run: str
    newest: Snapshot
    number: int  # of all snapshots, including those that `read` skips
    read: Callable[[int], Iterator[Snapshot]]
    losses: Losses | None  # None if computed from checkpoints: a snapshot's loss is then that of the prompt


def snapshot_bytes(snapshot: Snapshot) -> bytes:
    """Encode a snapshot as the bytes of a safetensors file; equal snapshots give equal bytes.

    The file has the lower triangles of the attention weights, row by row, as float16 `weights` [L, H, T (T + 1) / 2].
    Each kind of head score is an array [L, H]. The metadata has step, loss, prompt and tokens as JSON.
    """
    triangles = snapshot.weights[..., *np.tril_indices(len(snapshot.tokens))].astype(np.float16)
    about = {part.name: getattr(snapshot, part.name) for part in fields(_About)}
    return _FILE.to_bytes(about, {"weights": triangles} | {name: snapshot.scores[name] for name in COLUMNS})


def read_snapshot(path: Path) -> Snapshot:
    """Read a snapshot file; raise CheckpointError if the file is missing, damaged, or not a snapshot."""
    stored, arrays = _FILE.read(path, SNAPSHOT_BYTES)
    try:
        about = TypeAdapter(_About).validate_json(json.dumps(stored), strict=True)
    except ValueError:
        raise _FILE.refusal(path) from None
    triangles, T = arrays.pop("weights", np.empty(0)), len(about.tokens)
    shapes = {triangles.shape, *((*column.shape, T * (T + 1) // 2) for column in arrays.values())}
    if {*arrays} != {*COLUMNS} or len(shapes) > 1 or triangles.ndim != 3 or len(about.token_ids) != T:
        raise _FILE.refusal(path)
    weights = np.zeros((*triangles.shape[:2], T, T), np.float32)
    weights[..., *np.tril_indices(T)] = triangles
    return Snapshot(**vars(about), weights=weights, scores=arrays)


def kept_steps(run: RunFiles) -> Steps:
    """Return the snapshots of a run; `Steps.read` skips those whose prompt, tokens, shape or model is not the newest.

    Raises CheckpointError if the run has no snapshot, or if a snapshot file is invalid.
    """
    if not (paths := list(run.snapshots().values())):
        sentence = "this run has no attention snapshots from its training"
        path, watch = shlex.quote(str(run.path)), "--watch 'one two one two'"
        hint = f"gpt train --out {path} --resume {watch}"
        if is_imported(run):
            hint = f"gpt train --init-from {path} --data my.txt --out runs/watched {watch}"
        if run.steps():
            words = visible(readable_prompt(find_header(run.path)))
            hint = f"‹prompt={words}› computes it from {counted(len(run.steps()), 'checkpoint')}"
        raise CheckpointError(shown(run.path), sentence, hint=hint)
    newest = read_snapshot(paths[-1])
    # the newest checkpoint may be of an earlier model than the newest snapshot
    models = [(int(line["step"]), line["model"]) for line in metrics_of(run.metrics, DataError) if "model" in line]
    last = max((model for step, model in models if step <= newest.step), default=1)
    begin = max([model_began(run, newest.step), *(step for step, model in models if model < last)])
    losses: dict[str, list[tuple[int, float]]] = {"loss": [], "validation_loss": []}
    for line in metrics_of(run.metrics, DataError):
        for name in losses.keys() & line.keys():
            if line["step"] > begin:
                losses[name].append((int(line["step"]), float(line[name])))

    def read(every: int) -> Iterator[Snapshot]:
        for snapshot in map(read_snapshot, paths[::-1][::every][::-1]):
            alike = snapshot.weights.shape == newest.weights.shape and snapshot.tokens == newest.tokens
            if alike and snapshot.step > begin and snapshot.prompt == newest.prompt:
                yield snapshot

    return Steps(str(run.path), newest, len(paths), read, losses)
