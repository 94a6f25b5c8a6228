"""Checks of `gpt bench --check-device`: computations to run on a device and the CPU, with bounds on differences."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gpt_cli.attention_maps.file_formats import STAGES
from gpt_cli.checkpoints.checkpoint import read_checkpoint
from gpt_cli.checkpoints.select import find_checkpoint
from gpt_cli.common.host import NOBODY
from gpt_cli.common.machine.devices import supports
from gpt_cli.config.load import read_config
from gpt_cli.config.request import Request, read_request
from gpt_cli.sampling.request import SampleRequest
from gpt_cli.sampling.sample import sample
from gpt_cli.tools.bench.baselines import endless_state
from gpt_cli.tools.interpret.attention import attention
from gpt_cli.tools.interpret.request import AttentionRequest
from gpt_cli.tools.reports.run_record import read_record
from gpt_cli.training.loop import train_whole
from gpt_cli.training.request import TrainRequest
from gpt_cli.training.step import compute_gradient, send

Figures = Mapping[str, np.ndarray]
Pair = tuple[Callable[[], Figures], Callable[[], Figures]]  # two ways to the same numbers

PROMPT = "The value of the function is an integer, and a list of values"
STEPS = 12
# small enough for seconds on two cores, and wide enough for the kernels that larger models use
SIZES = (
    "model.context_length=64",
    "model.d_model=64",
    "model.num_heads=4",
    "data.validation_fraction=0.03",
    "train.dtype=float32",
    "train.learning_rate=1e-3",
    "train.log_every=1",
)


class Skipped(Exception):  # noqa: N818 - nothing is wrong
    """Raised for a check that needs something, such as bfloat16, that the device lacks."""


@dataclass(frozen=True)
class Bound:
    """The largest difference that a check allows between numbers of two arrays: absolute, or with `bits` relative.

    The unit of a relative difference is 2^-bits times the largest magnitude in the expected array. `reason` names the
    difference that was measured on a CPU (note 0060); a bound is about ten times as large.
    """

    most: float
    unit: str
    reason: str
    bits: int | None = None

    def difference(self, expected: Figures, computed: Figures) -> float:
        """Return the largest difference of the arrays, in the bound's unit; NaN or infinity if not comparable."""
        assert expected.keys() == computed.keys()
        return float(
            np.max([self._of_one(expected[name].astype(float), computed[name].astype(float)) for name in expected])
        )

    def _of_one(self, expected: np.ndarray, computed: np.ndarray) -> float:
        if expected.shape != computed.shape:
            return np.inf
        apart, largest = np.abs(expected - computed).max(), np.abs(expected).max()
        return apart if self.bits is None or not apart else apart / largest * 2**self.bits


GRADIENT = Bound(256, "roundings", "other orders of sums differ by up to 24 on a CPU", bits=24)
GRADIENT_16 = Bound(64, "roundings", "other orders of sums differ by up to 5 on a CPU", bits=9)
NATS = Bound(1e-5, "nats", "other orders of sums differ by up to 5e-7 on a CPU, the rounding of a loss")
WEIGHTS = Bound(8_000, "roundings", "other orders of sums differ by up to 700 on a CPU", bits=24)
STAGES_OF_HEADS = Bound(64, "roundings", "other orders of sums differ by up to 7 on a CPU", bits=24)

# the forms of attention, each with other settings of training
MULTI_HEAD = ()
_ROPE = ("model.positions=rope", "train.micro_batch_size=2")
FORMS = {
    "multi-head": MULTI_HEAD,
    "grouped-query, rope, micro-batches": ("model.attention=grouped_query", *_ROPE),
    "latent, rope, micro-batches, Muon": ("model.attention=latent", *_ROPE, "train.optimizer=muon"),
}


class DeviceRuns:
    """The computations of the checks on one device; `folder` is for the runs trained on that device."""

    def __init__(self, device: str, folder: Path):
        self.device, self.folder = device, folder
        self.trained = cache(self.train)  # the run that some settings give here, which is trained once

    def gradient(self, settings: tuple[str, ...]) -> Figures:
        """Compute the loss of a first batch of random tokens, and the gradient of each parameter: name -> array.

        Raises Skipped for bfloat16 on a device that lacks it.
        """
        if "train.dtype=bfloat16" in settings and not supports(torch.device(self.device), "bfloat16"):
            raise Skipped(f"{self.device} has no bfloat16 products")
        config = read_config("smoke", [*SIZES, *settings], {"train.device": ("device", self.device)})
        state = endless_state(config.changed(train={"compile": "off"}))
        losses = compute_gradient(state, send(state, 0))
        return {"loss": _array(losses.sum())} | {
            name: _array(weight.grad) for name, weight in state.layout.owned.items()
        }

    def train(self, settings: tuple[str, ...]) -> Path:
        """Train a new run of STEPS steps, and return its directory."""
        out = Path(tempfile.mkdtemp(dir=self.folder)) / "run"
        config = [f"train.max_steps={STEPS}", *SIZES, *settings]
        request = TrainRequest(config="smoke", settings=config, out=out, device=self.device)
        for _ in train_whole(request.find(NOBODY), NOBODY):
            pass
        return out

    def losses(self, settings: tuple[str, ...]) -> Figures:
        """Return the loss at each step of a run trained on this device with `settings`."""
        return {"loss": read_record(self.trained(settings)).metrics["loss"]}

    def sampled(self, run: Path) -> Figures:
        """Sample a greedy continuation of PROMPT from a run; return its tokens and their log-probabilities."""
        how = {"prompt": PROMPT, "max_new_tokens": 64, "greedy": True}
        (continuation,) = _answer(sample, SampleRequest, run=run, device=self.device, **how).samples
        return {"tokens": np.array(continuation.tokens), "log-probabilities": np.array(continuation.log_probabilities)}

    def attended(self, run: Path) -> Figures:
        """Compute all attention stages (weights, ...) of all heads of a run's model on PROMPT: name -> array."""
        result = _answer(attention, AttentionRequest, run=run, device=self.device, prompt=PROMPT, stage=STAGES[1:])
        return result.stages


def checks(cpu: DeviceRuns, other: DeviceRuns) -> list[tuple[str, Bound, dict[str, Pair]]]:
    """Return all checks in groups: title, bound, and name -> a pair of functions whose results must agree."""

    def both(compute: Callable[[DeviceRuns], Figures]) -> Pair:
        return lambda: compute(cpu), lambda: compute(other)

    def by_form(compute: Callable[[DeviceRuns, tuple[str, ...]], Figures], *more: str) -> dict[str, Pair]:
        return {name: both(lambda runs, form=form: compute(runs, (*more, *form))) for name, form in FORMS.items()}

    gradients = by_form(DeviceRuns.gradient)
    # of torch's, which has kernels of its own on many devices
    in_one_operation = both(lambda runs: runs.gradient(("model.dropout=0",)))
    twice = lambda: _weights(other.trained(MULTI_HEAD)), lambda: _weights(other.train(MULTI_HEAD))
    samples = by_form(lambda runs, form: runs.sampled(cpu.trained(form)))
    stages = both(lambda runs: runs.attended(cpu.trained(MULTI_HEAD)))
    return [
        ("gradient of a first step in float32", GRADIENT, {**gradients, "multi-head, no dropout": in_one_operation}),
        ("the same in bfloat16", GRADIENT_16, by_form(DeviceRuns.gradient, "train.dtype=bfloat16")),
        (f"losses of {STEPS} steps in float32", NATS, by_form(DeviceRuns.losses)),
        (f"weights after {STEPS} steps on the device", WEIGHTS, {"the same seed twice": twice}),
        ("greedy tokens and their log-probabilities", NATS, samples),
        ("attention on a prompt", STAGES_OF_HEADS, {"gpt attn-dump: every stage": stages}),
    ]


def _weights(run: Path) -> Figures:
    """Read the weights of a run's best checkpoint."""
    return {name: _array(tensor) for name, tensor in read_checkpoint(find_checkpoint(run)).weights.items()}


def _array(tensor: torch.Tensor | None) -> np.ndarray:
    """Copy a tensor from any device to a float32 array."""
    assert tensor is not None
    return tensor.detach().float().cpu().numpy()


def _answer(work: Callable[..., Any], kind: type[Request], **fields: Any) -> Any:
    """Run the command function `work` on a request of class `kind`, without progress or notices; return its result."""
    request = read_request(kind, fields)
    return work(request, request.find(NOBODY), NOBODY)
