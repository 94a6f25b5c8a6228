"""The state of a training: model, optimizer, batches and progress, without files, tokenizer or messages."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from gpt_cli.checkpoints.checkpoint import Checkpoint
from gpt_cli.checkpoints.header import Progress
from gpt_cli.common.rng import stream_key
from gpt_cli.config import Config, TrainConfig
from gpt_cli.distributed.collectives import ALONE, Ranks
from gpt_cli.model import GPT
from gpt_cli.model.costs import CostEstimate, estimate
from gpt_cli.text.sft_examples import Examples
from gpt_cli.text.token_files import Ids
from gpt_cli.training.batches import Batches, PackedBatches, batches_of
from gpt_cli.training.data_parallel import Replicated
from gpt_cli.training.intervals import is_last_of_several, settings_of_model
from gpt_cli.training.lora import num_trained, trained_parameters
from gpt_cli.training.optimizer import Optimizer, undivided
from gpt_cli.training.resume import environment, resumed_environment
from gpt_cli.training.validation import cross_entropy


class Outcome(NamedTuple):
    """The loss and gradient norm of a step, still on the device; reading them waits for the device to compute them."""

    step: int
    loss_and_norm: Tensor  # [2]
    learning_rate: float


@dataclass
class TrainingState:
    """A model in training, its optimizer and batches, and `progress`, which counts its steps and seconds."""

    config: Config
    model: GPT
    optimizer: Optimizer
    batches: Batches | PackedBatches
    progress: Progress
    layout: Replicated
    average: GPT | None = None  # with `train.ema_decay`: the moving average of the weights
    cross_entropy: Callable[[Tensor, Tensor], Tensor] = cross_entropy  # of windows; a trial may choose a compiled form
    shares_matrices: bool = True  # micro-batches share casts of weights; on an accelerator, if a trial decides so
    unread: list[Outcome] = field(default_factory=list)  # outcomes that a GPU may still be computing
    # takes a step, from its number and learning-rate multiplier; returns loss and norm [2]
    whole_step: Callable[[int, float, Callable[[], object]], Tensor] | None = None
    started: float = field(default_factory=time.perf_counter)  # when step 0 began, had the run never been stopped

    @classmethod
    def at_the_start(
        cls,
        config: Config,
        ids: Ids | Examples,
        vocab_size: int,
        data_digest: str = "",
        ranks: Ranks = ALONE,
        began_from: str | None = None,
    ) -> TrainingState:
        """Return the state at step 0 of a new model on ids [tokens]; `config` must have device and dtype chosen.

        The config's seed decides the weights; the caller may replace them by those of the model named `began_from`.
        `data_digest`, by which a resumed run recognises its text, is `EncodedText.digest`.
        """
        progress = Progress.at_the_start(len(ids), data_digest, environment(config), began_from)
        return cls._of(config, ids, _new_model(config, vocab_size), progress, ranks)

    @classmethod
    def continued(
        cls, config: Config, ids: Ids | Examples, checkpoint: Checkpoint, ranks: Ranks = ALONE
    ) -> TrainingState:
        """Return the training state of a checkpoint on its run's `ids`; raise CheckpointError if tensors do not fit."""
        before = checkpoint.progress
        # versions without a clock spent at least the seconds of their steps
        elapsed = max(before.elapsed, before.seconds)
        progress = replace(before, environment=resumed_environment(before.environment, config), elapsed=elapsed)
        state = cls._of(config, ids, checkpoint.build_model(), progress, ranks)
        state.optimizer.load_state_dict(checkpoint.optimizer_state, before.step - before.model_step, checkpoint.where)
        return state

    @classmethod
    def _of(cls, config: Config, ids: Ids | Examples, model: GPT, progress: Progress, ranks: Ranks) -> TrainingState:
        device = torch.device(config.train.device)
        if device.type != "cpu" and ranks.size > 1:  # the command line has chosen one for each
            device = torch.device(device.type, torch.accelerator.current_device_index())
        model.to(device)
        average = None if config.train.ema_decay is None else copy.deepcopy(model).eval()
        trained, low_rank = trained_parameters(model, config.train)
        layout = Replicated(trained, ranks, undivided(trained, config.train), low_rank)
        if config.train.compile == "on":
            model.compile_blocks()
        optimizer = _new_optimizer(model, layout, progress, config.train)
        batches, shares = batches_of(ids, config, device), device.type == "cpu"
        return cls(config, model.train(), optimizer, batches, progress, layout, average, shares_matrices=shares)

    @property
    def device(self) -> torch.device:
        return self.model.token_embedding.weight.device

    @property
    def evaluated_model(self) -> GPT:
        """The model to evaluate, sample and save: the moving average of the weights if there is one, else the model."""
        return self.model if self.average is None or self.progress.step == self.progress.model_step else self.average

    @torch.no_grad()
    def update_average(self) -> None:
        """Update the moving average of the weights, if there is one; at first it is the mean of the weights so far."""
        decay, earlier = self.config.train.ema_decay, self.progress.step - self.progress.model_step
        if self.average is not None and decay is not None:
            averages, weights = list(self.average.parameters()), list(self.model.parameters())
            share = 1 - min(decay, earlier / (earlier + 1))
            torch._foreach_lerp_(averages, weights, share)  # type: ignore[attr-defined]

    @property
    def ranks(self) -> Ranks:
        return self.layout.ranks

    @property
    def reads_at_once(self) -> bool:
        """Whether to read a step's loss before the next step begins; only on CPUs, because reading stalls a GPU."""
        return self.device.type == "cpu"

    @property
    def costs(self) -> CostEstimate:
        """The estimated costs of each process of this training."""
        return training_costs(self.config, self.model.vocab_size, self.ranks.size)

    def begin_next_model(self) -> None:
        """Give the model new random weights and a new optimizer; record the old one's step as a teacher's."""
        teachers = (*self.progress.teachers, self.progress.step)
        new = _new_model(self.config, self.model.vocab_size, len(teachers))
        with torch.no_grad():
            for parameter, initial in zip(self.model.parameters(), new.parameters(), strict=True):
                parameter.copy_(initial)
        # not progress.elapsed, which lacks the time of drawing the teacher's targets
        self.progress = replace(self.progress, teachers=teachers, model_elapsed=self.elapsed(), smoothed_loss=None)
        del self.optimizer  # whose memory the next one takes
        self.optimizer = _new_optimizer(self.model, self.layout, self.progress, self.config.train)

    def compile_blocks(self, compiled: bool) -> None:
        """Compile the blocks, or go back to uncompiled ones if not `compiled`; set `train.compile` to match."""
        self.model.compile_blocks(compiled)
        self.config = self.config.changed(train={"compile": "on" if compiled else "off"})

    def start_clock(self) -> None:
        """Start the clock so that `elapsed` continues from the seconds in `progress`."""
        self.started = time.perf_counter() - self.progress.elapsed

    def elapsed(self) -> float:
        """Return the seconds spent on training, evaluating, sampling and saving, over all parts of the run.

        All ranks get the seconds of the first rank, so that all make the same decisions.
        """
        return self.ranks.broadcast(time.perf_counter() - self.started)[0]


def training_costs(config: Config, vocab_size: int, num_ranks: int = 1) -> CostEstimate:
    """Estimate the costs of one of `num_ranks` processes that train with `config`; device and dtype must be chosen."""
    settings = config.train
    return estimate(
        config.model,
        vocab_size,
        micro_batch_size=settings.sequences_at_once,
        dtype=settings.dtype,
        num_micro_batches=settings.num_micro_batches,
        device=settings.device,
        num_trained=num_trained(config, vocab_size),
        num_ranks=num_ranks,
        averages=settings.ema_decay is not None,
    )


def _new_optimizer(model: GPT, layout: Replicated, progress: Progress, settings: TrainConfig) -> Optimizer:
    """Return an optimizer for the run's current model; turn off the dropout of the last of three or more models."""
    if is_last_of_several(len(progress.teachers), settings):
        model.turn_off_dropout()
    return Optimizer(layout, settings_of_model(progress, settings))


def _new_model(config: Config, vocab_size: int, *number: int) -> GPT:
    """Return a model whose random weights depend on the seed and, from a run's second model on, on its `number`."""
    generator = torch.Generator().manual_seed(stream_key(config.train.seed, "weights", *number))
    with torch.random.fork_rng(devices=[]):  # the layers first draw weights that those of the generator replace
        return GPT(config.model, vocab_size, generator)
