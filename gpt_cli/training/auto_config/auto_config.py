"""Choose the config of `gpt train` without --config: measure the text, time this machine, apply the rules."""

import math
import time
from collections.abc import Sequence

import numpy as np

from gpt_cli.common.host import Host, ignored
from gpt_cli.common.machine.devices import choose_device, choose_dtype, free_memory, starting, use_threads
from gpt_cli.common.machine.memory import available_memory
from gpt_cli.config import Config, ModelConfig
from gpt_cli.errors import DataError, counted
from gpt_cli.model.costs import estimate
from gpt_cli.text.load import SourceCorpus, read_data
from gpt_cli.training.auto_config.choice import DEFAULT_SECONDS, Budget, Choice
from gpt_cli.training.auto_config.model_sizes import (
    REFERENCE,
    REFERENCE_BATCH,
    REFERENCE_COST,
    REFERENCE_TOKENS,
    REFERENCE_VOCABULARY,
    cost_of,
)
from gpt_cli.training.auto_config.rules import choose_settings, minutes_that_pay
from gpt_cli.training.auto_config.text_statistics import TextFigures, describe_examples, text_figures
from gpt_cli.training.auto_config.tokenizer_choice import estimate_vocab_size
from gpt_cli.training.cuda_graphs import record_step
from gpt_cli.training.state import TrainingState
from gpt_cli.training.step import read_outcomes, take_step

_SHARE_OF_MEMORY = 0.5  # for the weights, their moments and the activations of a chosen model
FEWEST_CHARACTERS = 200  # of which byte pairs, too, fill a window of the shortest context
TIMING_SECONDS = 1.5  # of timing steps, on a device that takes several steps in that time
_QUICK = 0.01  # in a shorter step, a GPU waits for its next operation
# 54 times the arithmetic of the reference, for quick devices
_LARGE = REFERENCE.changed(d_model=768, num_heads=12, num_blocks=6)


def choose_config(config: Config, host: Host) -> tuple[Choice, SourceCorpus]:
    """Choose the settings that `config` leaves unset, for its text and this machine; also return the text.

    `host` shows the reasons. Raises EnvironmentFailure for a missing device before a long text is read, UsageError for
    contradictory settings, DataError if a text without conversations has under 200 characters.
    """
    use_threads(config.train.threads)
    device = choose_device(config.train.device)
    with starting(device):
        corpus = read_data(config.data, host)
        with host.working("measuring the text"):
            text = _figures(corpus, config)
    if text.num_characters < FEWEST_CHARACTERS and not text.example_bytes:
        length = counted(text.num_characters, "character")
        sentence = f"the text has {length}, but a training needs at least {FEWEST_CHARACTERS}"
        raise DataError("corpus", sentence, hint="add text with ‹data›; `gpt data list` prints some that gpt can fetch")
    settings, fields_set = config.train, config.train.model_fields_set
    free = min((free for free in (available_memory(), free_memory(device)) if free is not None), default=None)
    choice, budget = None, None
    if settings.max_time is not None or settings.max_steps is None or "max_steps" not in fields_set:
        with host.working("timing this machine"):
            budget = Budget(settings.max_time or DEFAULT_SECONDS, step_seconds=reference_seconds(config))
        choice = fitting(text, budget, config, free)
    most = settings.max_steps
    if choice is None or (most is not None and settings.max_time is not None and choice.num_steps > most):
        choice = fitting(text, Budget(steps=most), config, free)
    host.notices(choice.reasons)
    fixed = config.model_dump(exclude_unset=True)
    if budget and choice.seconds is not None and (longer := minutes_that_pay(text, budget, fixed)):
        minutes, gain = longer
        host.notice(f"time      with ‹max_time={minutes}m›, {gain} on texts of this size")
    return choice, corpus


def _figures(corpus: SourceCorpus, config: Config) -> TextFigures:
    """Return the statistics of a text for `choose_settings`; each question with its answer is a document."""
    if not corpus.how.conversations:
        return text_figures(corpus.blocks(), corpus.num_bytes, corpus.num_characters, corpus.num_documents)
    return describe_examples(corpus.with_template(config.data.template).blocks(), corpus.num_documents)


def fitting(text: TextFigures, budget: Budget, config: Config, free: int | None) -> Choice:
    """Choose settings that need at most half of `free` bytes of memory (None: no limit), or else the smallest model."""
    fixed = config.model_dump(exclude_unset=True)
    choice, most = choose_settings(text, budget, fixed), 1e8
    while free is not None and needed(choice.config, choice.vocab_size) > _SHARE_OF_MEMORY * free and most > 1e5:
        choice, most = choose_settings(text, budget, fixed, most_parameters=most), most / 2
    return choice


def needed(config: Config, vocab_size: int) -> int:
    """Estimate the memory that a training needs, in bytes."""
    at_once = config.train.sequences_at_once
    return estimate(config.model, vocab_size, micro_batch_size=at_once, dtype="float32").training_bytes


def reference_seconds(config: Config) -> float:
    """Measure the seconds of the fastest step of the small model REFERENCE, with the device and dtype of `config`.

    On a fast device, also time a larger model, scale its time down to REFERENCE, and return the shorter of the two.
    """
    seconds = _timed(REFERENCE, config)
    if seconds < _QUICK:
        times = (_LARGE.num_blocks * _LARGE.d_model**2) / (REFERENCE.num_blocks * REFERENCE.d_model**2)
        seconds = min(seconds, _timed(_LARGE, config) / times)
    return seconds


def _timed(model: ModelConfig, config: Config) -> float:
    settings = config.train
    device = choose_device(settings.device)
    dtype = choose_dtype(settings.dtype, device, model.d_model)
    of_steps = {"batch_size": REFERENCE_BATCH, "graph": settings.graph, "compile": "off"}
    ids = np.random.default_rng(0).integers(REFERENCE_VOCABULARY, size=50_000, dtype=np.int32)
    timing_config = Config(model=model).changed(train={"device": str(device), "dtype": dtype, **of_steps})
    state = TrainingState.at_the_start(timing_config, ids, REFERENCE_VOCABULARY)
    record_step(state, ignored)  # without it, the time of Python would hide that of a GPU
    times: list[float] = []
    began = time.perf_counter()
    while not times or (time.perf_counter() - began < TIMING_SECONDS and len(times) < 30):
        started = time.perf_counter()
        take_step(state)
        read_outcomes(state)
        times.append(time.perf_counter() - started)
    return min(times)


def seconds_of(configs: Sequence[Config]) -> list[float]:
    """Estimate the training time of each config on this machine, in seconds, at most its max_time.

    The measured time of a step of the model REFERENCE is scaled by the costs that `cost_of` estimates.
    """
    reference, estimates = reference_seconds(configs[0]), list[float]()
    for config in configs:
        model, train, vocab_size = config.model, config.train, estimate_vocab_size(config.tokenizer.model_dump())
        cost = cost_of(model.d_model, model.num_blocks, vocab_size, model.feed_forward_size)
        # a forward pass is about a third of a step
        evaluated = train.eval_tokens / train.eval_every / 3
        tokens = (train.max_steps or math.inf) * (config.tokens_per_step + evaluated)
        seconds = tokens / REFERENCE_TOKENS * cost / REFERENCE_COST * reference
        estimates.append(min(seconds, train.max_time or seconds))
    return estimates
