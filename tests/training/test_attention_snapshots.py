"""A run that watches a text: what it keeps, and that nothing else changes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from support.helpers import small_config
from support.runs import assert_same_run, finish, metrics, start

from gpt_cli.attention_maps.head_scores import induction_scores, score_heads
from gpt_cli.attention_maps.snapshots import kept_steps
from gpt_cli.common.host import Host
from gpt_cli.errors import DivergedError
from gpt_cli.model import GPT
from gpt_cli.training.loop import train
from gpt_cli.training.memory_checks import snapshot_size
from gpt_cli.training.run import Run

pytestmark = pytest.mark.slow

WATCHED = ("inspect.prompt=4 squared", "inspect.every=3", "model.dropout=0.3", "train.sample_every=null")


def files(run: Run) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run.directory.snapshots().values()}


def test_the_first_step_each_period_and_the_last_leave_a_snapshot(tmp_path: Path) -> None:
    run = start(tmp_path, small_config(*WATCHED))
    list(train(run))
    found = list(kept_steps(run.directory).read(1))
    assert [snapshot.step for snapshot in found] == [1, 3, 6, 8]
    last = found[-1]
    assert last.prompt == "4 squared"
    assert last.tokens == tuple("4 squared")
    assert last.token_ids == tuple(b"4 squared")
    model, ids = run.state.model.eval(), torch.tensor([list(b"4 squared")])
    with torch.no_grad():
        weights = model.attention_weights(ids)[:, 0].numpy()
    np.testing.assert_array_equal(last.weights, weights.astype(np.float16))
    expected = {**score_heads(model, ids[0].numpy(), [(0, 9)], end_of_text=256)}
    expected["induction"] = induction_scores(model, end_of_text=256, repeats=2)
    for name, column in expected.items():
        np.testing.assert_array_equal(last.scores[name], column)
    assert last.loss == run.progress.loss
    logged = {line["step"]: line["loss"] for line in metrics(run)}
    assert [snapshot.loss == logged.get(snapshot.step) for snapshot in found] == [False, False, True, True]


def test_a_run_that_watches_is_otherwise_the_same_run(tmp_path: Path) -> None:
    """Also where a snapshot is due at a step of its own, with neither a line nor an evaluation."""
    plain, watched = (
        start(tmp_path / "a", small_config("model.dropout=0.3")),
        start(tmp_path / "b", small_config(*WATCHED, "train.sample_every=4")),
    )
    finish(plain)
    finish(watched)
    assert len(files(watched)) == 4
    assert not plain.directory.attention.exists()
    assert_same_run(watched, plain)


def test_a_run_stopped_and_continued_leaves_the_same_snapshots(tmp_path: Path) -> None:
    config = small_config(*WATCHED)
    whole = start(tmp_path / "whole", config)
    list(train(whole))
    for stopped_at in (1, 6):
        first = start(tmp_path / str(stopped_at), config)
        list(train(first, Host(stop=lambda run=first, at=stopped_at: 15 if run.progress.step >= at else None)))
        first.directory.add_snapshot(7, b"what a killed process wrote after its last checkpoint")
        second = start(tmp_path / str(stopped_at), config, first.directory.newest(print))
        list(train(second))
        assert files(second) == files(whole)


def test_a_continued_run_may_watch_another_text_or_none(tmp_path: Path) -> None:
    first = start(tmp_path, small_config(*WATCHED))
    list(train(first, Host(stop=lambda: 15 if first.progress.step >= 4 else None)))
    other = start(tmp_path, small_config(*WATCHED, "inspect.prompt=is 9"), first.directory.newest(print))
    list(train(other, Host(stop=lambda: 15 if other.progress.step >= 7 else None)))
    assert [snapshot.step for snapshot in kept_steps(other.directory).read(1)] == [6]
    assert list(other.directory.snapshots()) == [1, 3, 6]
    none = start(tmp_path, small_config("model.dropout=0.3"), first.directory.newest(print))
    list(train(none))
    assert list(none.directory.snapshots()) == [1, 3, 6]


def test_latent_attention_is_watched_in_files_of_about_the_estimated_size(tmp_path: Path) -> None:
    run = start(tmp_path, small_config(*WATCHED, "inspect.prompt=4 squared is 16", "model.attention=latent"))
    list(train(run))
    assert [snapshot.weights.shape for snapshot in kept_steps(run.directory).read(1)] == [(2, 2, 15, 15)] * 4
    assert {len(content) for content in files(run).values()} <= set(range(snapshot_size(run) // 4, snapshot_size(run)))


def test_attention_that_is_not_finite_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GPT, "attention_weights", lambda *_: torch.full((2, 1, 2, 9, 9), torch.nan))
    run = start(tmp_path, small_config(*WATCHED))
    with pytest.raises(DivergedError, match=r"step 1: the attention weights of inspect\.prompt are not finite"):
        list(train(run))
    assert files(run) == {}
