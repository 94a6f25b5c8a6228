"""What `gpt bench --check-device` computes on one device: the same small model by the commands of gpt, as arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from gpt_cli.inspecting.request import AttentionRequest, HeadsRequest
from gpt_cli.inspecting.stages import STAGES
from gpt_cli.measuring.variants import endless_state
from gpt_cli.reporting.record import read_record
from gpt_cli.sampling.evaluate import evaluate
from gpt_cli.sampling.request import EvaluateRequest, SampleRequest
from gpt_cli.sampling.sample import sample
from gpt_cli.training.loop import train_whole
from gpt_cli.training.request import TrainRequest
from gpt_cli.training.step import compute_gradient

Figures = Mapping[str, np.ndarray]

PROMPT = "The value of the function is an integer, and a list of values"
STEPS = 12
# small enough for a minute on two cores, and wide enough for the kernels that larger models use
SIZES = (
    "model.context_length=64",
    "model.d_model=64",
    "model.num_heads=4",
    "data.validation_tokens=4096",
    "train.dtype=float32",
    "train.learning_rate=1e-3",
    "train.log_every=1",
    "train.eval_every=6",
    "train.save_every=6",
)


class Side:
    """A device, and the folder of the runs that are trained there."""

    def __init__(self, device: str, folder: Path):
        self.device, self.folder = device, folder
        self._runs: dict[tuple[str, ...], Path] = {}

    def config(self, settings: Sequence[str]) -> Config:
        """The config of a training here."""
        return read_config("smoke", [*SIZES, *settings], {"train.device": ("--device", self.device)})

    def gradient(self, settings: Sequence[str]) -> Figures:
        """The loss of the first batch, on random tokens, and its gradient by parameter."""
        state = endless_state(self.config(settings).changed(train={"compile": "off"}))
        losses = compute_gradient(state, 0)
        gradients = {name: array(weight.grad) for name, weight in state.layout.owned.items()}
        return {"loss": array(losses.sum()), **gradients}

    def trained(self, settings: Sequence[str], name: str = "", steps: int = STEPS, **more: Any) -> Path:
        """The run that these settings give; each is trained once."""
        key = (*settings, name)
        if key not in self._runs:
            out = self.folder / (name or f"run-{len(self._runs)}")
            asked = {"config": "smoke", "settings": [*SIZES, *settings], "out": out, "device": self.device}
            train({**asked, "max_steps": steps, **more})
            self._runs[key] = out
        return self._runs[key]

    def continued(self, run: Path) -> Path:
        """A run of half the steps, trained to its end here."""
        train({"out": run, "resume": True, "device": self.device, "max_steps": STEPS})
        return run

    def sampled(self, run: Path, **how: Any) -> Figures:
        """The tokens of continuations."""
        found = ask(sample, SampleRequest, run=run, device=self.device, prompt=PROMPT, max_new_tokens=64, **how)
        return {str(number): np.array(each.tokens) for number, each in enumerate(found.samples)}

    def evaluated(self, run: Path, dtype: str) -> Figures:
        """The loss over the validation text."""
        found = ask(evaluate, EvaluateRequest, run=[run], device=self.device, dtype=dtype)
        return {"loss": np.array(found.runs[0]["loss"])}

    def attended(self, run: Path) -> Figures:
        """All stages of all heads on a prompt."""
        return ask(attention, AttentionRequest, run=run, device=self.device, prompt=PROMPT, stage=STAGES[1:]).stages

    def scored(self, run: Path, **how: Any) -> Figures:
        """The columns of the report on heads, and the loss change where it is asked for."""
        found = ask(heads, HeadsRequest, run=run, device=self.device, max_tokens=2048, **how)
        columns = ["loss_change"] if how else COLUMNS
        return {column: np.array([row[column] for row in found.heads], float) for column in columns}

    def reopened(self, run: Path) -> Figures:
        """The weights of a run that was exported for transformers and imported again."""
        out, again = self.folder / "exported", self.folder / "imported"
        ask(export, ExportRequest, run=run, checkpoint="last", out=out)
        ask(lambda _, found, host: adopt(*found, host), ImportRequest, directory=out, out=again)
        return weights(again)


def explained(run: Path) -> Figures:
    """The attention of head 0 of layer 0 for every token of a prompt, as `gpt explain` computes it in float64."""
    found = ask(explain, ExplainRequest, run=run, prompt=PROMPT, query="all").explanation
    return {"weights": next(step.numbers for step in found.steps if step.name == "weights")}


def weights(run: Path) -> Figures:
    """What the last checkpoint of a run has, as a CPU reads it."""
    stored = read_checkpoint(find_checkpoint(run, "last"), everything=True)
    return {name: array(tensor) for name, tensor in [*stored.weights.items(), *stored.moments.items()]}


def losses(run: Path) -> Figures:
    """The loss of each step, and those of the evaluations."""
    found = read_record(run).metrics
    return {key: found[key][~np.isnan(found[key])] for key in ("loss", "validation_loss")}


def array(tensor: torch.Tensor | None) -> np.ndarray:
    """The numbers of a tensor of any device."""
    assert tensor is not None
    return tensor.detach().float().cpu().numpy()


def ask(work: Callable[..., Any], kind: type[Request], **asked: Any) -> Any:
    """What a command answers, without progress or notices."""
    request = read_request(kind, asked)
    return work(request, request.find(NOBODY), NOBODY)


def train(asked: Mapping[str, Any]) -> None:
    """Train to the end."""
    for _ in ask(train_whole, TrainRequest, **asked):
        pass
