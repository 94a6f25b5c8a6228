"""All that a training needs, made from a config and a corpus, or from a checkpoint that it continues."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from gpt_cli.checkpoints.checkpoint import Checkpoint, Progress
from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.config import Config, TrainConfig
from gpt_cli.config.reading import differences
from gpt_cli.errors import CheckpointError, DataError, together
from gpt_cli.machine import choose_compile, choose_device, choose_dtype, processor
from gpt_cli.model import GPT
from gpt_cli.streams import stream_key
from gpt_cli.text.corpus import Corpus
from gpt_cli.text.tokenizer import Tokenizer, make_tokenizer
from gpt_cli.text.tokens import check_length, data_digest, encode_documents
from gpt_cli.training.batches import Batches
from gpt_cli.training.optimizer import Optimizer
from gpt_cli.training.schedule import warmup_steps

# what may change when a run is continued; everything else would make it another run
FREE_KEYS = (
    "train.max_steps",
    "train.max_time",
    "train.micro_batch_size",
    "train.device",
    "train.compile",
    "train.log_every",
    "train.eval_every",
    "train.eval_tokens",
    "train.sample_every",
    "train.save_every",
    "train.keep_checkpoints",
    "train.patience",
)
# shorter trainings would not gain what compiling takes
COMPILE_FROM_STEPS = 1000
COMPILE_FROM_SECONDS = 300.0
_OTHER_CORPUS = "the corpus is not the one that this run began with"
_RESTORE = "restore the text, or start anew with another --out"


@dataclass(frozen=True)
class Outcome:
    """What a step came to, where it was computed; reading it waits for the device."""

    step: int
    loss_and_norm: Tensor  # [2]
    learning_rate: float


@dataclass
class Session:
    """A training in the making: what it learns from, what it changes, and how far it is."""

    config: Config
    directory: RunDirectory
    tokenizer: Tokenizer
    batches: Batches
    validation_ids: np.ndarray
    model: GPT
    optimizer: Optimizer
    progress: Progress
    unread: list[Outcome] = field(default_factory=list)  # of the last steps, while the device may still compute them
    saved: Progress | None = None  # what the newest checkpoint of this run holds
    started: float = field(default_factory=time.perf_counter)  # when step 0 began, had it never been stopped

    @property
    def device(self) -> torch.device:
        return self.model.token_embedding.weight.device

    @property
    def reads_at_once(self) -> bool:
        """Whether a step's outcome is read before the next begins; on a GPU that would make both wait."""
        return self.device.type == "cpu"

    @property
    def tokens_per_step(self) -> int:
        return self.config.train.batch_size * self.config.model.context_length

    def compile_no_more(self) -> None:
        """Train on by plain blocks."""
        self.model.compile_blocks(False)
        settings = self.config.train.model_copy(update={"compile": "off"})
        self.config = self.config.model_copy(update={"train": settings})

    def begin_clock(self) -> None:
        """Let time go on from where the progress stands."""
        self.started = time.perf_counter() - self.progress.elapsed

    def elapsed(self) -> float:
        """Seconds of training, evaluating, sampling and saving so far, those of earlier parts of the run included."""
        return time.perf_counter() - self.started

    def checkpoint(self, *, with_moments: bool) -> Checkpoint:
        """The present state, ready to be saved."""
        stored = self.optimizer.moments() if with_moments else {}
        return Checkpoint(self.config, self.tokenizer, self.progress, self.model.state_dict(), stored)


def resolve(config: Config, notice: Callable[[str], object]) -> Config:
    """The config with device, dtype and compiling chosen; `notice` is told what is not used as written.

    Raises EnvironmentFailure for a device that is not there.
    """
    device = choose_device(config.train.device)
    changes = {
        "device": str(device),
        "dtype": choose_dtype(config.train.dtype, device, config.model.d_model),
        "compile": choose_compile(config.train.compile, device, long=_is_long(config.train)),
    }
    if (shortened := warmup_steps(config.train)) < config.train.warmup_steps:
        notice(f"warm-up of {config.train.warmup_steps} steps shortened to {shortened}, half of the run")
    for told in config.unused():
        notice(told)
    return config.model_copy(update={"train": config.train.model_copy(update=changes)})


def _is_long(settings: TrainConfig) -> bool:
    """Whether a run is long enough to be compiled for."""
    if settings.max_time is not None:
        return settings.max_time >= COMPILE_FROM_SECONDS
    return settings.max_steps >= COMPILE_FROM_STEPS


def config_to_resume(stored: Config, asked: Config) -> Config:
    """The asked config, where `auto` means what the run chose; raises CheckpointError listing what may not change."""
    kept = {
        key: getattr(stored.train, key) for key in ("device", "dtype", "compile") if getattr(asked.train, key) == "auto"
    }
    asked = asked.model_copy(update={"train": asked.train.model_copy(update=kept)})
    fixed = [
        CheckpointError("--resume", f"{key} was {old} in this run and is {new} now", "it may not change")
        for key, old, new in differences(stored, asked)
        if key not in FREE_KEYS
    ]
    if fixed:
        fixed[0].hint = "leave --config out to use the run's own, or start anew with another --out"
        raise together(fixed)
    return asked


def begin(
    config: Config,
    corpus: Corpus,
    directory: RunDirectory,
    continued: Checkpoint | None = None,
    progress: Callable[[int], object] = lambda _: None,
) -> Session:
    """A session for a resolved config: new, or continued from a checkpoint.

    `progress` is told the characters encoded since it was last told. Raises DataError for too little text,
    CheckpointError when the corpus is not the one that the run began with.
    """
    training, validation = corpus.split(config.data.validation_fraction)
    if continued:
        tokenizer = continued.tokenizer
    else:
        tokenizer = make_tokenizer(config.tokenizer, training.documents, validation.documents)
    try:
        ids = encode_documents(training.documents, tokenizer, progress)
        validation_ids = encode_documents(validation.documents, tokenizer, progress)
    except DataError as error:
        if continued is None:
            raise
        # a character that the run's own vocabulary lacks
        raise CheckpointError("--resume", f"{_OTHER_CORPUS}, {error}", hint=_RESTORE) from error
    check_length(ids, validation_ids, config.model.context_length)
    device = torch.device(config.train.device)
    state = Progress.at_the_start(len(ids), data_digest(ids, validation_ids), environment(config))
    if continued:
        if continued.progress.data_digest != state.data_digest:
            raise CheckpointError(
                "--resume",
                _OTHER_CORPUS,
                f"tokens now have sha256 {state.data_digest[:16]}, then {continued.progress.data_digest[:16]}",
                hint=_RESTORE,
            )
        # a run of before there was a clock spent at least the seconds of its steps
        elapsed = max(continued.progress.elapsed, continued.progress.seconds)
        state = replace(continued.progress, environment=state.environment, elapsed=elapsed)
        model = continued.build_model().to(device)
    else:
        generator = torch.Generator().manual_seed(stream_key(config.train.seed, "weights"))
        model = GPT(config.model, tokenizer.vocab_size, generator).to(device)
    if config.train.compile == "on":
        model.compile_blocks()
    optimizer = Optimizer(model, config.train)
    if continued:
        optimizer.restore(continued.moments, state.step)
    batches = Batches.of(ids, config, device)
    return Session(
        config, directory, tokenizer, batches, validation_ids, model.train(), optimizer, state,
        saved=state if continued else None,
    )  # fmt: skip


def environment(config: Config) -> dict[str, str]:
    """What two runs must have in common to agree bit for bit."""
    return {
        "torch": torch.__version__,
        "threads": str(torch.get_num_threads()),
        "processor": processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "device": config.train.device,
        "dtype": config.train.dtype,
    }


def environment_changes(continued: Checkpoint, config: Config) -> list[str]:
    """What differs from the environment in which a checkpoint was written, such as "threads 2 -> 4"."""
    # a run of before there was a compiler has stored auto, and compiled nothing
    compiled, compiles = (settings.compile == "on" for settings in (continued.config.train, config.train))
    micro_batch_size = continued.config.train.micro_batch_size
    then = {**continued.progress.environment, "micro_batch_size": micro_batch_size, "compiled": compiled}
    settings = config.train
    now = {**environment(config), "micro_batch_size": settings.micro_batch_size, "compiled": compiles}
    return [f"{name} {then.get(name)} -> {value}" for name, value in now.items() if then.get(name) != value]
