"""The moving average of the weights in a training with `train.ema_decay`."""

from pathlib import Path

import numpy as np
import pytest
import torch
from support.helpers import small_config
from support.runs import assert_same, finish, start, tensors
from torch import Tensor

from gpt_cli.checkpoints.checkpoint import read_checkpoint
from gpt_cli.errors import UsageError
from gpt_cli.training.state import TrainingState, training_costs
from gpt_cli.training.step import take_step

IDS = np.random.default_rng(0).integers(257, size=2000)


def stepped(*settings: str, num_steps: int) -> tuple[TrainingState, list[list[Tensor]]]:
    """A training after some steps, and its weights after each of them."""
    state, weights = TrainingState.at_the_start(small_config(*settings), IDS, 257), []
    for _ in range(num_steps):
        take_step(state)
        weights.append([parameter.detach().clone() for parameter in state.model.parameters()])
    return state, weights


def test_the_average_begins_as_the_mean_of_the_first_weights_and_then_forgets() -> None:
    state, weights = stepped("train.ema_decay=0.7", num_steps=5)
    expected = weights[0]
    for decay, after in zip((1 / 2, 2 / 3, 0.7, 0.7), weights[1:], strict=True):
        expected = [decay * before + (1 - decay) * new for before, new in zip(expected, after, strict=True)]
    torch.testing.assert_close(list(state.evaluated_model.parameters()), expected)
    assert not state.evaluated_model.training


def test_an_average_changes_no_step_and_of_equal_weights_nothing() -> None:
    (averaged, weights), (_, alone) = (stepped(*settings, num_steps=3) for settings in (("train.ema_decay=0.9",), ()))
    assert all(torch.equal(one, other) for one, other in zip(weights[-1], alone[-1], strict=True))
    with torch.no_grad():
        for average, last in zip(averaged.evaluated_model.parameters(), weights[-1], strict=True):
            average.copy_(last)
    averaged.update_average()
    assert all(torch.equal(*pair) for pair in zip(averaged.evaluated_model.parameters(), weights[-1], strict=True))


@pytest.mark.parametrize("settings", [(), ("train.optimizer=muon", "train.freeze=1")])
def test_checkpoints_hold_the_average_and_a_resumed_run_goes_on_from_the_last_weights(
    tmp_path: Path, settings: tuple[str, ...]
) -> None:
    config = small_config("train.ema_decay=0.5", "train.max_steps=8", "train.save_every=6", *settings)
    run = start(tmp_path / "whole", config)
    finish(run)
    saved = read_checkpoint(run.directory.step_file(8), everything=True)
    assert_same(dict(saved.weights), dict(run.state.evaluated_model.state_dict()))
    last = {name: weight for name, weight in run.state.model.state_dict().items() if f"{name}.last" in tensors(run)}
    for name, weight in last.items():
        assert torch.equal(saved.optimizer_state[f"{name}.last"], weight)
        assert not torch.equal(saved.weights[name], weight)
    stopped = read_checkpoint(run.directory.step_file(6), everything=True)
    again = start(tmp_path / "again", config, continued=stopped)
    finish(again)
    assert_same(tensors(again), tensors(run))


def test_low_rank_changes_have_no_average() -> None:
    with pytest.raises(UsageError, match="low-rank changes of the weights cannot be averaged"):
        small_config("train.rank=2", "train.ema_decay=0.5")


def test_an_average_takes_the_memory_of_the_weights_once_more() -> None:
    plain, averages = (training_costs(small_config(*settings), 257) for settings in ((), ("train.ema_decay=0.5",)))
    assert averages.training_bytes - plain.training_bytes == 4 * plain.parameters
