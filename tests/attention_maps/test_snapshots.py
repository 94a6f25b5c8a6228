"""Snapshots of attention as files, and the losses beside them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from support.pages import keep

from gpt_cli.attention_maps.head_metrics import COLUMNS
from gpt_cli.attention_maps.snapshots import Snapshot, kept_steps, read_snapshot, snapshot_bytes
from gpt_cli.checkpoints.run_paths import RunFiles
from gpt_cli.errors import CheckpointError


def a_snapshot(step: int, prompt: str = "一 b") -> Snapshot:
    """Two layers of three heads on three tokens; each head looks at all tokens evenly."""
    weights = np.broadcast_to(np.tril(np.ones((3, 3))) / [[1], [2], [3]], (2, 3, 3, 3)).astype(np.float32)
    columns = {name: np.arange(6.0).reshape(2, 3) + place for place, name in enumerate(COLUMNS)}
    columns["induction"][1, 2] = np.nan
    return Snapshot(step, 2.5, prompt, (7, 8, 9), ("一", " ", "b"), weights, columns)


def test_a_snapshot_comes_back_with_weights_of_float16(here: Path) -> None:
    written = a_snapshot(25)
    run = keep([a_snapshot(100_000_000), written], here)
    names = [path.name for path in run.snapshots().values()]
    assert names == ["step-00000025.safetensors", "step-100000000.safetensors"]
    read, _ = kept_steps(run).read(1)
    assert (read.step, read.loss, read.prompt) == (25, 2.5, "一 b")
    assert (read.token_ids, read.tokens) == ((7, 8, 9), ("一", " ", "b"))
    assert read.weights.dtype == np.float32
    assert read.weights[1, 2].tolist() == [[1, 0, 0], [0.5, 0.5, 0], [np.float16(1 / 3)] * 3]
    for name in COLUMNS:
        np.testing.assert_array_equal(read.scores[name], written.scores[name])


def test_a_run_without_snapshots_is_refused(here: Path) -> None:
    with pytest.raises(CheckpointError, match="this run has no attention snapshots") as raised:
        kept_steps(RunFiles(here / "mine"))
    assert raised.value.hint == f"gpt train --out {here / 'mine'} --resume --watch 'one two one two'"


def test_snapshots_are_read_one_at_a_time_and_of_many_some(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, read = keep([*map(a_snapshot, range(1, 7))], here), list[str]()

    def counting(path: Path) -> Snapshot:
        read.append(path.name[10:13])
        return read_snapshot(path)

    monkeypatch.setattr("gpt_cli.attention_maps.snapshots.read_snapshot", counting)
    found = kept_steps(run).read(2)
    assert (next(found).step, read) == (2, ["006", "002"])
    assert [snapshot.step for snapshot in found] == [4, 6]


UNFIT: list[dict[str, Any]] = [
    {"tokens": ("a", "b")},
    {"token_ids": (7,)},
    {"weights": np.zeros((2, 2, 3, 3))},
    {"weights": np.zeros((3, 3, 3))},
]
FOREIGN = [b"", b"mine", safetensors.numpy.save({"a": np.zeros(2)}, {"x": "y"})]


@pytest.mark.parametrize("content", [*FOREIGN, *(snapshot_bytes(replace(a_snapshot(2), **each)) for each in UNFIT)])
def test_a_foreign_file_and_one_whose_parts_do_not_fit_are_refused(here: Path, content: bytes) -> None:
    run = keep([a_snapshot(1)], here)
    run.snapshot_file(2).write_bytes(content)
    with pytest.raises(CheckpointError, match=r"step-00000002.safetensors.*not an attention snapshot of gpt"):
        list(kept_steps(run).read(1))
