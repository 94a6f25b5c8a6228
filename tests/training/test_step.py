"""A training that reads the outcomes of its steps later, as on a GPU."""

import math
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.helpers import small_config
from support.runs import assert_same_run, start
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from gpt_cli.common.host import Host
from gpt_cli.common.machine.devices import autocast
from gpt_cli.errors import DivergedError
from gpt_cli.model import GPT
from gpt_cli.training import step
from gpt_cli.training.events import Saved, Stepped
from gpt_cli.training.loop import train
from gpt_cli.training.state import TrainingState
from gpt_cli.training.step import compute_gradient, send, take_step


@pytest.fixture
def deferred(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU whose outcomes stay unread, as those of a GPU do."""
    monkeypatch.setattr(TrainingState, "reads_at_once", property(lambda _: False))


def test_outcomes_read_later_leave_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    config = small_config("model.dropout=0.3", "train.max_steps=11", "train.log_every=3")
    at_once = start(tmp_path / "at once", config)
    list(train(at_once))
    request.getfixturevalue("deferred")
    later = start(tmp_path / "later", config)
    reports = list(train(later))
    assert_same_run(later, at_once)
    # 4 and 8 are evaluated, 11 is the last
    stepped = [report for report in reports if isinstance(report, Stepped)]
    assert [report.step for report in stepped if report.loss is not None] == [3, 4, 6, 8, 9, 11]
    assert all(report.logged == (report.loss is not None) for report in stepped)


@pytest.mark.parametrize("how", ["signal", "asked"])
def test_a_checkpoint_saved_between_reads_contains_the_outcome_of_its_step(
    tmp_path: Path, request: pytest.FixtureRequest, how: str
) -> None:
    often = ["train.log_every=1000", "train.eval_every=1000", "train.save_every=1000", "train.sample_every=null"]
    at_once = start(tmp_path / "at once", small_config(*often))
    for _ in range(3):
        take_step(at_once.state)
    expected = at_once.progress

    request.getfixturevalue("deferred")
    run = start(tmp_path / "later", small_config(*often))

    def now(wanted: str) -> bool:
        return how == wanted and run.progress.step == 3

    for report in train(run, Host(stop=lambda: 15 if now("signal") else None, save_requested=lambda: now("asked"))):
        if isinstance(report, Saved):
            assert report.requested == (how == "asked")
            break
    stored = run.directory.newest(print)
    assert stored is not None
    assert (stored.progress.step, stored.progress.loss) == (3, expected.loss)
    assert stored.progress.gradient_norm == expected.gradient_norm
    assert 0 < run.progress.seconds <= run.progress.elapsed


@pytest.mark.usefixtures("deferred")
def test_a_loss_that_is_not_finite_reaches_no_checkpoint(tmp_path: Path) -> None:
    """Steps 6 and 7 diverge, and the evaluation at step 8 reads them: the message names the first."""
    run = start(tmp_path, small_config("train.log_every=1000", "train.eval_every=4", "train.max_steps=50"))

    def spoil(_module: nn.Module, _inputs: object, logits: Tensor) -> Tensor:
        return logits * (math.nan if run.progress.step in (5, 6) else 1)

    run.state.model.register_forward_hook(spoil)
    with pytest.raises(DivergedError, match=r"step 6: the loss is nan .*; the checkpoint of step 4 is intact"):
        list(train(run))
    assert list(run.directory.steps()) == [4]
    stored = run.directory.newest(print)
    assert stored is not None
    assert all(bool(torch.isfinite(weights).all()) for weights in stored.weights.values())


class _Casts(TorchDispatchMode):
    """Counts the casts to bfloat16 of each tensor of float32, by its address, and by its shape."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counter[int | torch.Size]()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.ops.aten._to_copy.default and (kwargs or {}).get("dtype") == torch.bfloat16:
            self.counts.update([args[0].data_ptr(), args[0].shape])
        return function(*args, **(kwargs or {}))


def test_a_step_casts_a_weight_once_whatever_its_micro_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    config = small_config("train.batch_size=8", "train.micro_batch_size=2").changed(train={"dtype": "bfloat16"})
    state = TrainingState.at_the_start(config, np.arange(2000) % 257, 257)
    weights = [block.feed_forward.expand.weight for block in state.model.blocks] + [state.model.output_weight]

    def casts_and_gradients() -> tuple[list[int], list[Tensor]]:
        with _Casts() as casts:
            compute_gradient(state, send(state, 0))
        gradients = [weight.grad.clone() for weight in state.model.parameters() if weight.grad is not None]
        state.optimizer.zero_grad()
        projections = torch.Size([3 * config.model.d_model, config.model.d_model])  # Wq, Wk, Wv of all heads
        return [casts.counts[weight.data_ptr()] for weight in weights] + [casts.counts[projections]], gradients

    names = [name for name, _ in state.model.named_parameters()]
    counts, gradients = casts_and_gradients()
    assert counts == [1, 1, 1, 2]
    assert [block.attention.shared_weights for block in state.model.blocks] == [None, None]
    assert [name for name, _ in state.model.named_parameters()] == names
    monkeypatch.setattr(step, "autocast", lambda *of, enabled=True: autocast(*of) if enabled else nullcontext())
    counts, _ = casts_and_gradients()  # as in compiled blocks, which autocast would cast in each call
    assert counts == [1, 1, 4, 2]
    monkeypatch.setattr(GPT, "shared_matrices", lambda *_: nullcontext())
    counts, expected = casts_and_gradients()
    assert counts == [4, 4, 4, 8]
    assert len(gradients) == len(expected) > 3
    assert all(torch.equal(one, other) for one, other in zip(gradients, expected, strict=True))
