"""`gpt bench`: variants of training and sampling that take turns, so that a machine that slows down slows all."""

from __future__ import annotations

import contextlib
import importlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from gpt_cli.callbacks import Counting, Host
from gpt_cli.config import Config
from gpt_cli.errors import counted
from gpt_cli.machine.devices import choose_device, choose_dtype, processor, use_threads
from gpt_cli.machine.memory import reuse_memory
from gpt_cli.measuring.needs import NUM_SAMPLES, PROMPT, require_batch, vocab_size_of
from gpt_cli.measuring.request import BenchRequest
from gpt_cli.measuring.roof import Roof, measure_roof, synchronize
from gpt_cli.model import GPT
from gpt_cli.model.costs import Estimate, estimate
from gpt_cli.ranks.ranks import ALONE, Ranks
from gpt_cli.results import WIDTH, Result
from gpt_cli.sampling.decoder import Decoder
from gpt_cli.sampling.generate import generate
from gpt_cli.sampling.next_token import SamplingParameters, choose, probabilities
from gpt_cli.tables import table
from gpt_cli.training.evaluation import cross_entropy
from gpt_cli.training.layout import Replicated
from gpt_cli.training.optimizer import Optimizer
from gpt_cli.training.state import TrainingState
from gpt_cli.training.step import read_outcomes, take_step


@dataclass(frozen=True)
class Variant:
    """A way to do the same work; `run` does it once, for so many tokens."""

    name: str
    dtype: str
    run: Callable[[], object]
    num_tokens: int
    cost: float  # of a token: operations in training, bytes of weights read in sampling


@dataclass(frozen=True)
class Timing:
    """The time of a variant: medians over rounds, its rate against the first one's and against the machine's."""

    form: str
    dtype: str
    seconds: float
    tokens_per_second: float
    ratio: float
    share_of_roof: float


@dataclass(frozen=True)
class Bench(Result):
    """How fast this machine trains and samples, beside plain implementations and what it can do at most."""

    config: str
    device: str
    processor: str
    threads: int
    torch: str
    rounds: int
    tokens_per_step: int
    tokens: int
    roof: Roof
    training: list[Timing]
    sampling: list[Timing]

    def as_text(self, width: int = WIDTH) -> str:
        """The limits of the machine, and a table each for training and sampling."""
        machine = f"{self.processor}, {self.device}, {counted(self.threads, 'thread')}, torch {self.torch}"
        rates = ", ".join(f"{dtype} {flops / 1e9:,.0f} GFLOP/s" for dtype, flops in self.roof.flops.items())
        tokens = f"{self.tokens_per_step:,} tokens a step"
        return (
            f"{machine}, {counted(self.rounds, 'round')}\n"
            f"roof: {rates}, reading {self.roof.bytes_read / 1e9:,.1f} GB/s\n\n"
            f"training {self.config}, {tokens}; the roof is products\n{_timings(self.training)}\n\n"
            f"sampling {self.config}, {self.tokens} tokens after 8; the roof is reading the weights\n"
            f"{_timings(self.sampling)}"
        )


def _timings(timings: Sequence[Timing]) -> str:
    rows = [("implementation", "dtype", "seconds", "tokens/s", "ratio", "of roof")]
    for found in timings:
        figures = f"{found.seconds:.3f}", f"{found.tokens_per_second:,.1f}", f"{found.ratio:.2f}"
        rows.append((found.form, found.dtype, *figures, f"{found.share_of_roof:.0%}"))
    return table(rows)


def bench(request: BenchRequest, config: Config, host: Host) -> Bench:
    """Time training and sampling; raises EnvironmentFailure where memory is too small for them."""
    use_threads(config.train.threads)
    reuse_memory()
    device, rounds, counting = choose_device(config.train.device), request.rounds, _announcing(host)
    if device.type == "cpu":  # a GPU refuses by itself
        require_batch(config, request.tokens)
    with counting("the roof", 3 * (rounds + 1), "rounds") as count:
        roof = measure_roof(device, rounds, count)
    with host.working("building models to train"):
        variants = training_variants(config, device)
    with counting("training", len(variants) * (rounds + 1), "runs") as count:
        training = take_turns(variants, lambda form: roof.flops[form.dtype], rounds, count)
    del variants  # their memory is for the next ones
    with host.working("building models to sample from"):
        variants = sampling_variants(config, device, request.tokens)
    with counting("sampling", len(variants) * (rounds + 1), "runs") as count:
        sampling = take_turns(variants, lambda _: roof.bytes_read, rounds, count)
    return Bench(
        config=request.config,
        device=str(device),
        processor=processor(),
        threads=torch.get_num_threads(),
        torch=torch.__version__,
        rounds=rounds,
        tokens_per_step=config.tokens_per_step,
        tokens=request.tokens,
        roof=roof,
        training=training,
        sampling=sampling,
    )


def _announcing(host: Host) -> Counting:
    """A bar that begins at once; its beginning is a notice too, for those who see no bar."""

    @contextlib.contextmanager
    def counting(what: str, total: int | None, unit: str) -> Iterator[Callable[[int], object]]:
        host.notice(f"measuring {what}" + ("" if total is None else f": {total:,} {unit}"))
        with host.counting(what, total, unit) as count:
            count(0)
            yield count

    return counting


def time_in_turns(runs: Sequence[Callable[[], object]], rounds: int, count: Callable[[int], object]) -> list[float]:
    """Each once to warm up, then `rounds` times: medians in seconds; `count` receives 1 for each run."""
    seconds: list[list[float]] = [[] for _ in runs]
    for number in range(rounds + 1):
        for run, found in zip(runs, seconds, strict=True):
            started = time.perf_counter()
            run()
            if number:
                found.append(time.perf_counter() - started)
            count(1)
    return [statistics.median(found) for found in seconds]


def take_turns(
    variants: Sequence[Variant], roof: Callable[[Variant], float], rounds: int, count: Callable[[int], object]
) -> list[Timing]:
    """Time variants in turns, beside the first of them and the machine's roof; `count` receives 1 for each run."""
    medians = time_in_turns([variant.run for variant in variants], rounds, count)
    rates = [variant.num_tokens / median for variant, median in zip(variants, medians, strict=True)]
    return [
        Timing(variant.name, variant.dtype, median, rate, rate / rates[0], rate * variant.cost / roof(variant))
        for variant, median, rate in zip(variants, medians, rates, strict=True)
    ]


def costs(config: Config, dtype: str) -> Estimate:
    """What a token costs."""
    settings = config.train
    return estimate(config.model, vocab_size_of(config), micro_batch_size=settings.sequences_at_once, dtype=dtype)


def training_variants(config: Config, device: torch.device) -> list[Variant]:
    """A training step in plain variants, and as `gpt train` takes it, on random tokens.

    plain: all heads fused, float32, no dropout; heads: each head by itself, float32, dropout drawn by torch.
    """
    dtype = choose_dtype(config.train.dtype, device, config.model.d_model)
    num_tokens = config.tokens_per_step
    flops = costs(config, dtype).training_flops_per_token

    def variant(name: str, dtype: str, run: Callable[[], object]) -> Variant:
        return Variant(name, dtype, run, num_tokens, flops)

    return [
        variant("plain", "float32", _plain_step(config, device, fused=True, dropout=0.0)),
        variant("heads", "float32", _plain_step(config, device, fused=False, dropout=config.model.dropout)),
        variant("gpt train", dtype, training_step(config, device, dtype)),
    ]


def _plain_step(config: Config, device: torch.device, *, fused: bool, dropout: float) -> Callable[[], None]:
    sizes, settings = config.model.changed(dropout=dropout), config.train.changed(optimizer="adamw")
    model = GPT(sizes, vocab_size_of(config), torch.Generator().manual_seed(0)).to(device).train().use_fused(fused)
    optimizer = Optimizer(Replicated(model), settings)
    ids = torch.from_numpy(_noise(config, settings.batch_size * (sizes.context_length + 1))).to(device)
    ids = ids.view(settings.batch_size, -1)

    def step() -> None:
        cross_entropy(model(ids[:, :-1]), ids[:, 1:]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.gradient_clip or float("inf"))
        optimizer.step(1.0)
        optimizer.zero_grad()
        synchronize(device)

    return step


def training_step(config: Config, device: torch.device, dtype: str) -> Callable[[], None]:
    """A step as `gpt train` takes it, on random tokens."""
    state = endless_state(config.changed(train={"dtype": dtype, "device": str(device), "compile": "off"}))

    def step() -> None:
        take_step(state)
        read_outcomes(state)
        synchronize(device)

    return step


def endless_state(config: Config, ranks: Ranks = ALONE) -> TrainingState:
    """A training on random tokens that no limit ends; the config is resolved."""
    config = config.changed(train={"max_time": None, "max_steps": 2**31 - 1})
    ids = _noise(config, 4 * config.train.batch_size * (config.model.context_length + 1))
    return TrainingState.at_the_start(config, ids, vocab_size_of(config), ranks=ranks)


def _noise(config: Config, num_ids: int) -> np.ndarray:
    return np.random.default_rng(0).integers(vocab_size_of(config), size=num_ids)


def sampling_variants(config: Config, device: torch.device, num_tokens: int) -> list[Variant]:
    """Sampling one sequence and 32, after a prompt of 8 tokens, with random weights; drawing is part of it."""
    model = GPT(config.model, vocab_size_of(config), torch.Generator().manual_seed(0)).to(device).eval()
    num_weights = sum(p.numel() for name, p in model.named_parameters() if "embedding" not in name)
    if config.model.tie_embeddings:
        num_weights += model.token_embedding.weight.numel()

    def variant(name: str, dtype: str, num_samples: int, run: Callable[[], object]) -> Variant:
        size = {"float32": 4, "bfloat16": 2, "int8": 1}[dtype]
        return Variant(name, dtype, run, num_samples * num_tokens, size * num_weights / num_samples)

    variants = [variant("no cache", "float32", 1, lambda: _without_cache(model, num_tokens))]
    for num_samples in (1, NUM_SAMPLES):
        decoders = {"float32": Decoder(model), "bfloat16": Decoder(model, torch.bfloat16)}
        if device.type == "cpu":
            decoders["int8"] = Decoder(model, int8=True, num_rows=num_samples)
        for dtype, decoder in decoders.items():
            name = "gpt sample" if num_samples == 1 else f"gpt sample, {num_samples} at once"
            variants.append(variant(name, dtype, num_samples, partial(sample_once, decoder, num_tokens, num_samples)))
        if run_theirs := _transformers(config, device, num_tokens, num_samples):
            name = "transformers" if num_samples == 1 else f"transformers, {num_samples} at once"
            variants.append(variant(name, "bfloat16", num_samples, run_theirs))
    return variants


def sample_once(decoder: Decoder, num_tokens: int, num_samples: int = 1) -> None:
    """Some sequences of so many new tokens after the same prompt, as `gpt sample` draws them."""
    prompt = PROMPT[-decoder.config.context_length :]
    for _ in generate(decoder, [prompt], SamplingParameters(), max_new_tokens=num_tokens, num_samples=num_samples):
        pass


@torch.inference_mode()
def _without_cache(model: GPT, num_tokens: int) -> None:
    """The plain loop: computes everything that the model sees again for each token."""
    ids = torch.tensor([PROMPT], device=model.token_embedding.weight.device)
    generator = torch.Generator().manual_seed(0)
    for _ in range(num_tokens):
        logits = model.next_logits(ids[:, -model.config.context_length :])
        uniform = torch.rand(1, generator=generator, dtype=torch.float64)
        chosen = choose(probabilities(logits.cpu(), SamplingParameters()), uniform)
        ids = torch.cat([ids, chosen[:, None].to(ids.device)], dim=1)


def _transformers(
    config: Config, device: torch.device, num_tokens: int, num_samples: int
) -> Callable[[], object] | None:
    """`generate` of a GPT-2 of the same sizes, as its users call it; None where it is not installed or broken."""
    sizes = config.model
    try:
        transformers: Any = importlib.import_module("transformers")
        GPT2Config, GPT2LMHeadModel = transformers.GPT2Config, transformers.GPT2LMHeadModel
    except ImportError:
        return None
    shape = GPT2Config(
        vocab_size=vocab_size_of(config),
        n_positions=max(sizes.context_length, len(PROMPT) + num_tokens),
        n_embd=sizes.d_model,
        n_layer=sizes.num_blocks,
        n_head=sizes.num_heads,
        n_inner=sizes.hidden_size,
        tie_word_embeddings=sizes.tie_embeddings,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    model = GPT2LMHeadModel(shape).to(device, torch.bfloat16).eval()
    ids = torch.tensor([PROMPT] * num_samples, device=device)
    options = {"do_sample": True, "temperature": 0.8, "top_k": 0}
    options |= {"max_new_tokens": num_tokens, "min_new_tokens": num_tokens}
    return lambda: model.generate(ids, attention_mask=torch.ones_like(ids), **options)
