"""What `gpt bench --check-device` computes on one device: the same small model by the commands of gpt, as arrays."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gpt_cli.callbacks import NOBODY
from gpt_cli.checkpoints.checkpoint import read_checkpoint
from gpt_cli.checkpoints.find import find_checkpoint
from gpt_cli.config import Config
from gpt_cli.config.reading import read_config
from gpt_cli.config.request import Request, read_request
from gpt_cli.exchange.export_model import export
from gpt_cli.exchange.import_model import adopt
from gpt_cli.exchange.request import ExportRequest, ImportRequest
from gpt_cli.explaining.explain import explain
from gpt_cli.explaining.request import ExplainRequest
from gpt_cli.inspecting.attention import attention
from gpt_cli.inspecting.heads.columns import COLUMNS
from gpt_cli.inspecting.heads.heads import heads
from gpt_cli.inspecting.heads.request import HeadsRequest
from gpt_cli.inspecting.request import AttentionRequest
from gpt_cli.inspecting.stages import STAGES
from gpt_cli.machine.devices import peak_memory, supports
from gpt_cli.measuring.variants import endless_state, vocab_size_of
from gpt_cli.model.costs import estimate
from gpt_cli.reporting.record import read_record
from gpt_cli.sampling.evaluate import evaluate
from gpt_cli.sampling.request import EvaluateRequest, SampleRequest
from gpt_cli.sampling.sample import sample
from gpt_cli.training.loop import train_whole
from gpt_cli.training.reports import Saved
from gpt_cli.training.request import TrainRequest
from gpt_cli.training.step import compute_gradient, read_outcomes, send, take_step

Figures = Mapping[str, np.ndarray]

PROMPT = "The value of the function is an integer, and a list of values"
STEPS = 12
# small enough for a minute on two cores, and wide enough for the kernels that larger models use
SIZES = (
    "model.context_length=64",
    "model.d_model=64",
    "model.num_heads=4",
    "data.validation_fraction=0.03",
    "train.dtype=float32",
    "train.learning_rate=1e-3",
    "train.log_every=1",
    "train.eval_every=6",
    "train.save_every=6",
)
# of which the memory is more than what a device rounds up to
LARGER = ("model.d_model=256", "model.num_blocks=4", "model.context_length=128", "train.batch_size=16")


class Skipped(Exception):  # noqa: N818 - nothing is wrong
    """A device lacks what a check is about."""


class Side:
    """A device, and the folder of the runs that are trained there."""

    def __init__(self, device: str, folder: Path):
        self.device, self.folder = device, folder
        self._runs: dict[tuple[str, ...], Path] = {}

    def config(self, settings: Sequence[str]) -> Config:
        """The config of a training here; raises Skipped where it needs what the device lacks."""
        self._require(*settings)
        return read_config("smoke", [*SIZES, *settings], {"train.device": ("--device", self.device)})

    def gradient(self, settings: Sequence[str]) -> Figures:
        """The loss of the first batch, on random tokens, and its gradient by parameter."""
        state = endless_state(self.config(settings).changed(train={"compile": "off"}))
        losses = compute_gradient(state, send(state, 0))
        gradients = {name: array(weight.grad) for name, weight in state.layout.owned.items()}
        return {"loss": array(losses.sum()), **gradients}

    def trained(self, settings: Sequence[str] = (), *, again: bool = False) -> Path:
        """The run that these settings give here; each is trained once, unless it is asked for `again`."""
        key = tuple(settings)
        if again or key not in self._runs:
            self._runs[key] = self._train(settings, STEPS)
        return self._runs[key]

    def half_trained(self) -> Path:
        """A new run that was left after half of its steps, when they were saved."""
        return self._train((), STEPS // 2)

    def continued(self, run: Path) -> Path:
        """A run that was left, here or elsewhere, trained to its end here."""
        self._take(TrainRequest(out=run, resume=True, device=self.device), STEPS)
        return run

    def _require(self, *asked: str) -> None:
        if any("bfloat16" in one for one in asked) and not supports(torch.device(self.device), "bfloat16"):
            raise Skipped(f"{self.device} has no bfloat16 products")

    def _train(self, settings: Sequence[str], last: int) -> Path:
        self._require(*settings)
        out = Path(tempfile.mkdtemp(dir=self.folder)) / "run"
        config = [f"train.max_steps={STEPS}", *SIZES, *settings]
        self._take(TrainRequest(config="smoke", settings=config, out=out, device=self.device), last)
        return out

    def _take(self, request: TrainRequest, last: int) -> None:
        """Train until a step is saved, or to the end where it is the last."""
        with closing(train_whole(request, request.find(NOBODY), NOBODY)) as reports:
            for report in reports:
                if isinstance(report, Saved) and report.step == last < STEPS:
                    return

    def sampled(self, run: Path, **how: Any) -> Figures:
        """The tokens of continuations, and their log-probabilities."""
        found = ask(sample, SampleRequest, run=run, device=self.device, prompt=PROMPT, max_new_tokens=64, **how)
        each = {
            f"{n}.{name}": getattr(one, name)
            for n, one in enumerate(found.samples)
            for name in ("tokens", "log_probabilities")
        }
        return {name: np.array(numbers) for name, numbers in each.items()}

    def evaluated(self, run: Path, dtype: str = "float32") -> Figures:
        """The loss over the validation text."""
        self._require(dtype)
        found = ask(evaluate, EvaluateRequest, run=[run], device=self.device, dtype=dtype)
        return {"loss": np.array(found.runs[0]["loss"])}

    def attended(self, run: Path) -> Figures:
        """All stages of all heads on a prompt."""
        return ask(attention, AttentionRequest, run=run, device=self.device, prompt=PROMPT, stage=STAGES[1:]).stages

    def first_head(self, run: Path) -> Figures:
        """Where head 0 of layer 0 looks."""
        return {"head": self.attended(run)["weights"][0, 0]}

    def scored(self, run: Path, **how: Any) -> Figures:
        """The columns of the report on heads, and the loss change where it is asked for."""
        found = ask(heads, HeadsRequest, run=run, device=self.device, max_tokens=2048, **how)
        columns = ["loss_change"] if how else COLUMNS
        return {column: np.array([row[column] for row in found.heads], float) for column in columns}

    def peak(self) -> Figures:
        """The most bytes of memory that a training takes; raises Skipped where torch does not know it."""
        if not peak_memory(torch.device(self.device)):
            raise Skipped(f"torch reports no peak of {self.device}")
        gc.collect()
        before = torch.accelerator.memory_allocated(
            self.device
        )  # what earlier checks still hold, such as workspaces of products
        torch.accelerator.reset_peak_memory_stats(self.device)
        state = endless_state(self.config(LARGER))
        for _ in range(2):
            take_step(state)
        read_outcomes(state)
        return {"bytes": np.array((peak_memory(state.device) or 0) - before)}

    def reopened(self, run: Path) -> Figures:
        """The weights of a run that was exported for transformers and imported again."""
        out, again = self.folder / "exported", self.folder / "imported"
        ask(export, ExportRequest, run=run, out=out)
        adopt(*ImportRequest(directory=[out], out=again).find(NOBODY), NOBODY)
        return weights(again)


def estimated(side: Side) -> Figures:
    """What gpt expects `Side.peak` to be."""
    config = side.config(LARGER)
    found = estimate(config.model, vocab_size_of(config), micro_batch_size=16, dtype="float32", device=side.device)
    return {"bytes": np.array(found.training_bytes)}


def explained(run: Path) -> Figures:
    """The attention of head 0 of layer 0 for every token of a prompt, as `gpt explain` computes it in float64."""
    found = ask(explain, ExplainRequest, run=run, prompt=PROMPT, query="all").explanation
    return {"head": next(step.numbers for step in found.steps if step.name == "weights")}


def weights(run: Path) -> Figures:
    """The best weights of a run."""
    return {name: array(tensor) for name, tensor in read_checkpoint(find_checkpoint(run)).weights.items()}


def losses(run: Path) -> Figures:
    """The loss of each step."""
    return {"loss": read_record(run).metrics["loss"]}


def closing_loss(run: Path) -> Figures:
    """The loss over the validation text that the training itself measured in the end."""
    return {"loss": np.array(read_record(run).outcome["validation_loss"])}


def array(tensor: torch.Tensor | None) -> np.ndarray:
    """The numbers of a tensor of any device."""
    assert tensor is not None
    return tensor.detach().float().cpu().numpy()


def ask(work: Callable[..., Any], kind: type[Request], **asked: Any) -> Any:
    """What a command answers, without progress or notices."""
    request = read_request(kind, asked)
    return work(request, request.find(NOBODY), NOBODY)
