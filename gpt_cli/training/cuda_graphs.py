"""Record a training step as a device graph (a CUDA graph), so that a step takes one launch instead of thousands."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gpt_cli.common.host import Notify
from gpt_cli.common.machine.devices import beside, record_graph, recording_failure, supports, synchronize, to_device
from gpt_cli.model.dropout import drop_keys, key_halves
from gpt_cli.training.state import TrainingState
from gpt_cli.training.step import StepInputs, clipped_gradient

# the largest relative difference between equal steps on a device that adds in any order, and how many times as large
# the difference of a replay may be; a rate or a batch of another step differs a hundred times as much or more
_UNSTEADY, _TIMES = 1e-3, 10


class WholeStep:
    """A callable that performs one training step; all inputs that change between steps are in one tensor on the device.

    Each call fills this tensor in one transfer: the batch (`Batches.numbers`), dropout keys, learning-rate multiplier.
    If `record` has kept a CUDA graph, since it gave equal results and was not slower, a call replays that graph.
    """

    def __init__(self, state: TrainingState):
        # references in both directions would keep the memory of an ended training until the next garbage collection
        self.state: TrainingState = weakref.proxy(state)
        self.seconds = 0.0  # of a replayed step, if a graph is used
        self._replay: Callable[[], None] | None = None  # of a graph, if one is used
        self._replayed: torch.Event | None = None  # the end of the last replay
        self._recorded = torch.empty(0)  # where the graph leaves loss and norm
        parts = self._parts(state.progress.step, 1.0)
        self._numbers = torch.zeros(sum(part.size for part in parts), dtype=torch.int64, device=state.device)
        sequences, keys, multiplier = self._numbers.split([part.size for part in parts])
        micro_batches = sequences.view(parts[0].shape).split(state.config.train.sequences_at_once)
        self._sent = StepInputs(dict(enumerate(micro_batches)), key_halves(keys.view(parts[1].shape)))
        self._multiplier = multiplier.view(torch.float32)[0]

    def __call__(self, step: int, multiplier: float, watch: Callable[[], object] = lambda: None) -> Tensor:
        """Take step `step` (from 0) at the highest learning rates times `multiplier`; return loss, gradient norm: [2].

        Calls `watch` between micro-batches, but not in a replay.
        """
        self._send(step, multiplier)
        if self._replay is None:
            return self._compute(watch)
        self._replay()
        # the host stays one step ahead, or the clock and signals would wait for many steps
        before, self._replayed = self._replayed, torch.Event(self.state.device)
        with torch.accelerator.device_index(self.state.device.index):  # an event is recorded on the current device
            self._replayed.record()
        if before is not None:
            before.synchronize()
        return self._recorded.clone()

    def _parts(self, step: int, multiplier: float) -> list[np.ndarray]:
        """Return a step's inputs: `Batches.numbers`, int64 dropout keys, and `multiplier`, padded to one int64."""
        train, sizes = self.state.config.train, self.state.config.model
        keys = drop_keys(train.seed, step, sizes.num_blocks).view(np.int64)
        return [self.state.batches.numbers(step), keys, np.array([multiplier, 0.0], np.float32).view(np.int64)]

    def _send(self, step: int, multiplier: float) -> None:
        numbers = np.concatenate([part.ravel() for part in self._parts(step, multiplier)])
        self._numbers.copy_(to_device(torch.from_numpy(numbers), self.state.device))

    def _compute(self, watch: Callable[[], object] = lambda: None) -> Tensor:
        loss_and_norm = clipped_gradient(self.state, self._sent, watch)
        self.state.optimizer.step(self._multiplier)
        self.state.layout.share_weights()
        self.state.optimizer.zero_grad()
        return loss_and_norm

    def record(self) -> str | None:
        """Record a CUDA graph of the step and test it; later calls replay the graph if it passes the test.

        The test takes two steps, the second at half the learning rate: replays must give the same results as ordinary
        steps, and take no longer. Then `record` restores the training state. Returns the reason if recording fails or
        results differ, else None. A graph that is merely slower is dropped, gives no reason and leaves `seconds` at 0.
        """
        step, changing = self.state.progress.step, self.state.optimizer.changing()
        before: list[Tensor] = []

        def restore() -> None:
            for tensor, old in zip(changing, before, strict=False):
                tensor.copy_(old)

        def take() -> _Taken:
            restore()
            self(step, 1.0)  # the next step reads what this one has written
            synchronize(self.state.device)
            started = time.perf_counter()
            outcome = self(step + 1, 0.5)
            synchronize(self.state.device)
            self.seconds = time.perf_counter() - started
            bits = torch.stack([tensor.view(torch.int32).sum() for tensor in changing])
            changes = [torch.linalg.vector_norm(tensor - old) for tensor, old in zip(changing, before, strict=True)]
            return _Taken(torch.cat((outcome.view(torch.int32), bits)), torch.cat((outcome, torch.stack(changes))))

        gc.collect()  # gradients of earlier steps that are still alive would be added on the ordinary stream
        try:
            before += [tensor.clone() for tensor in changing]  # memory may be too small for them
            # autograd keeps the stream of a step, so the first steps run where the recorded one does
            with beside(self.state.device):
                _, expected, again = take(), take(), take()  # the first one warms up
                plain_seconds = self.seconds
                restore()
                self._send(step, 1.0)
                self._replay, self._recorded = record_graph(self.state.device, self._compute)
            if not take().repeats(expected, again):
                self._replay = None
                return "because the replay gives other numbers"
            if self.seconds > plain_seconds:
                self._replay, self.seconds = None, 0.0
        except RuntimeError as error:
            self._replay = None
            return recording_failure(error)
        finally:
            self.state.optimizer.zero_grad()
            restore()


class _Taken(NamedTuple):
    """Results of a test, as `bits` to compare exactly and as `numbers`: loss, gradient norm, one value per tensor."""

    bits: Tensor
    numbers: Tensor

    def repeats(self, expected: _Taken, again: _Taken) -> bool:
        """Return whether these results equal `expected`, up to ten times the difference between `again` and `expected`.

        `again` repeats the steps of `expected`. Its results are equal, or nearly equal where the backward pass of flash
        attention adds in no fixed order. A wrong learning rate or batch changes the results far more.
        """
        if torch.equal(again.bits, expected.bits):
            return torch.equal(self.bits, expected.bits)
        difference, usual = (torch.linalg.vector_norm(each.numbers - expected.numbers) for each in (self, again))
        return bool(usual <= _UNSTEADY * torch.linalg.vector_norm(expected.numbers) and difference <= _TIMES * usual)


def record_step(state: TrainingState, warn: Notify) -> float | None:
    """Record the training step as a CUDA graph; return the seconds of a replayed step, or None if no graph is used.

    Graphs need device support and a single rank, and change no result. `warn` receives the reason if recording fails.
    """
    if state.ranks.size > 1 or not supports(state.device, "graphs"):
        return None
    state.whole_step = step = WholeStep(state)
    if state.config.train.graph == "off":
        return None
    if reason := step.record():
        warn(f"{state.device} cannot replay a recorded step, {reason}; computing each step anew, with the same result")
        return None
    return step.seconds or None
