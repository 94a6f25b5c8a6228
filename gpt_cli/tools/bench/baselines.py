"""The implementations that `gpt bench` times on random tokens: gpt's training and sampling, and plain baselines."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch

from gpt_cli.common.host import ignored
from gpt_cli.common.machine.devices import choose_dtype, supports, synchronize
from gpt_cli.common.machine.memory import available_memory, require_available
from gpt_cli.config import Config
from gpt_cli.distributed.collectives import ALONE, Ranks
from gpt_cli.errors import counted
from gpt_cli.model import GPT
from gpt_cli.model.costs import estimate
from gpt_cli.sampling.decoder import Decoder, cache_bytes
from gpt_cli.sampling.generate import generate
from gpt_cli.sampling.next_token import SamplingParameters, draw_token, probabilities
from gpt_cli.training.auto_config.tokenizer_choice import estimate_vocab_size
from gpt_cli.training.cuda_graphs import record_step
from gpt_cli.training.data_parallel import Replicated
from gpt_cli.training.kernel_trials import choose_kernels
from gpt_cli.training.optimizer import Optimizer
from gpt_cli.training.state import TrainingState, training_costs
from gpt_cli.training.step import read_outcomes, take_step
from gpt_cli.training.validation import cross_entropy

READING = "reading"  # the limit of sampling: reading weights; the limit of training is matrix products in a dtype
PROMPT = list(range(8))
NUM_SAMPLES = 32


@dataclass(frozen=True)
class Variant:
    """One implementation of training or sampling to time; each call of `run` processes `num_tokens` tokens.

    `cost` is operations (training) or bytes read (sampling) a token; `limit` is what bounds speed: a dtype or READING.
    """

    name: str
    dtype: str
    run: Callable[[], object]
    num_tokens: int
    cost: float  # of a token: operations in training, bytes of weights read in sampling
    limit: str  # what bounds the rate: products of this dtype, or READING


def vocab_size_of(config: Config) -> int:
    """Return the vocabulary size of a config, or a typical one if the size depends on the text."""
    return estimate_vocab_size(config.tokenizer.model_dump())


def require_batch(config: Config, num_tokens: int) -> None:
    """Raise EnvironmentFailure if free memory is too small for the benchmark, which samples `num_tokens` tokens.

    The hint suggests a smaller batch that fits, or else a smaller model.
    """

    def needed(batch_size: int) -> int:
        return max(needed_bytes(config.changed(train={"batch_size": batch_size}), num_tokens))

    free, settings = available_memory(), config.train
    unit = settings.micro_batch_size or 1
    smaller = (n for n in (2**k for k in range(16, -1, -1)) if n < settings.batch_size and n % unit == 0)
    hint = next((f"‹train.batch_size={n}›" for n in smaller if needed(n) <= (free or 0)), "choose a smaller model")
    about = f"{counted(settings.batch_size, 'sequence')} of {counted(config.model.context_length, 'token')}"
    require_available("bench", about, needed(settings.batch_size), free, hint=hint)


def needed_bytes(config: Config, num_tokens: int) -> tuple[int, int]:
    """Estimate the bytes of memory that `gpt bench` needs to time training, and to time sampling `num_tokens` tokens.

    The plain training steps take a whole batch at once. Sampling needs gpt's model, decoders of 1 and of 32 sequences
    for each dtype, each with separate weights and cache, and two models of transformers, if installed.
    """
    V, of_model = vocab_size_of(config), config.model
    model = estimate(of_model, V, micro_batch_size=config.train.batch_size, dtype="float32")
    training = model.training_bytes + 2 * 16 * model.parameters  # weights, gradients, moments of both plain variants
    weights = (4 + 2 * (4 + 2 + 2) + 2 * 2 + 4) * model.parameters + 6 * 4 * V * of_model.d_model
    caches = 3 * (1 + NUM_SAMPLES) * cache_bytes(of_model, len(PROMPT) + num_tokens, 4)
    return training, weights + caches + 72 * NUM_SAMPLES * V  # for sampling, as in `row_bytes` of decoder.py


def training_variants(config: Config, device: torch.device) -> list[Variant]:
    """Make the training steps to time on random tokens: two plain ones ("plain", "heads") and that of `gpt train`.

    "plain" computes all heads at once, without dropout, "heads" one by one, with torch's dropout; both use float32.
    """
    dtype = choose_dtype(config.train.dtype, device, config.model.d_model)
    steps = {
        ("plain", "float32"): _plain_step(config, device, fused=True, dropout=0.0),
        ("heads", "float32"): _plain_step(config, device, fused=False, dropout=config.model.dropout),
        ("gpt train", dtype): training_step(config, device, dtype),
    }
    flops = training_costs(config, vocab_size_of(config)).training_flops_per_token
    return [Variant(name, dtype, step, config.tokens_per_step, flops, dtype) for (name, dtype), step in steps.items()]


def _plain_step(config: Config, device: torch.device, *, fused: bool, dropout: float) -> Callable[[], None]:
    sizes, settings = config.model.changed(dropout=dropout), config.train.changed(optimizer="adamw")
    model = GPT(sizes, vocab_size_of(config), torch.Generator().manual_seed(0)).to(device).train().use_fused(fused)
    optimizer = Optimizer(Replicated(dict(model.named_parameters())), settings)
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
    """Return a function that takes one training step on random tokens as `gpt train` does, without torch.compile."""
    state = endless_state(config.changed(train={"dtype": dtype, "device": str(device), "compile": "off"}))
    choose_kernels(state, ignored)
    record_step(state, ignored)

    def step() -> None:
        take_step(state)
        read_outcomes(state)
        synchronize(device)

    return step


def endless_state(config: Config, ranks: Ranks = ALONE) -> TrainingState:
    """Return the state of a new, endless training on random tokens; no setting of `config` may be "auto"."""
    config = config.changed(train={"max_time": None, "max_steps": 2**31 - 1})
    ids = _noise(config, 4 * config.train.batch_size * (config.model.context_length + 1))
    return TrainingState.at_the_start(config, ids, vocab_size_of(config), ranks=ranks)


def _noise(config: Config, num_ids: int) -> np.ndarray:
    return np.random.default_rng(0).integers(vocab_size_of(config), size=num_ids)


def sampling_variants(config: Config, device: torch.device, num_tokens: int) -> list[Variant]:
    """Make the implementations of sampling to time: `num_tokens` tokens after a prompt of 8, in 1 or 32 sequences."""
    model = GPT(config.model, vocab_size_of(config), torch.Generator().manual_seed(0)).to(device).eval()
    num_weights = sum(p.numel() for name, p in model.named_parameters() if "embedding" not in name)
    if config.model.tie_embeddings:
        num_weights += model.token_embedding.weight.numel()

    def variant(name: str, dtype: str, num_samples: int, run: Callable[[], object]) -> Variant:
        size = {"float32": 4, "bfloat16": 2, "int8": 1}[dtype]
        return Variant(name, dtype, run, num_samples * num_tokens, size * num_weights / num_samples, READING)

    variants = [variant("no cache", "float32", 1, lambda: _without_cache(model, num_tokens))]
    for num_samples in (1, NUM_SAMPLES):
        at_once = "" if num_samples == 1 else f", {num_samples} at once"
        dtypes = ["float32", *(["bfloat16"] if supports(device, "bfloat16") else [])]
        dtypes += ["int8"] if device.type == "cpu" else []
        for dtype, compiled in product(dtypes, (False, True)):
            low = torch.float32 if dtype == "float32" else torch.bfloat16
            decoder = Decoder(model, low, int8=dtype == "int8", num_rows=num_samples, compiled=compiled)
            if decoder.compiled == compiled:
                run = partial(sample_once, decoder, num_tokens, num_samples)
                variants.append(variant(f"gpt sample{', compiled' * compiled}{at_once}", dtype, num_samples, run))
        if run_theirs := _transformers(config, device, num_tokens, num_samples):
            variants.append(variant(f"transformers{at_once}", "bfloat16", num_samples, run_theirs))
    return variants


def sample_once(decoder: Decoder, num_tokens: int, num_samples: int = 1) -> None:
    """Draw `num_samples` sequences of `num_tokens` new tokens after a fixed prompt, as `gpt sample` does."""
    prompt = PROMPT[-decoder.config.context_length :]
    for _ in generate(decoder, [prompt], SamplingParameters(), max_new_tokens=num_tokens, num_samples=num_samples):
        pass


@torch.inference_mode()
def _without_cache(model: GPT, num_tokens: int) -> None:
    """Sample without a cache: recompute the whole context for each token."""
    ids = torch.tensor([PROMPT], device=model.token_embedding.weight.device)
    generator = torch.Generator().manual_seed(0)
    for _ in range(num_tokens):
        logits = model.next_logits(ids[:, -model.config.context_length :])
        uniform = torch.rand(1, generator=generator, dtype=torch.float64)
        chosen = draw_token(probabilities(logits.cpu(), SamplingParameters()), uniform)
        ids = torch.cat([ids, chosen[:, None].to(ids.device)], dim=1)


def _transformers(
    config: Config, device: torch.device, num_tokens: int, num_samples: int
) -> Callable[[], object] | None:
    """Return a function that samples `num_samples` texts with the GPT-2 of transformers, in the sizes of `config`.

    Returns None if transformers is not installed, `device` lacks bfloat16, or num_heads does not divide d_model.
    """
    sizes = config.model
    if not supports(device, "bfloat16") or sizes.d_model % sizes.num_heads:
        return None
    try:
        transformers: Any = importlib.import_module("transformers")
        GPT2Config, GPT2LMHeadModel = transformers.GPT2Config, transformers.GPT2LMHeadModel
    except ImportError:
        return None
    end = vocab_size_of(config) - 1  # as in gpt; if the prompt had this id, transformers would warn about padding
    shape = GPT2Config(
        vocab_size=end + 1,
        n_positions=max(sizes.context_length, len(PROMPT) + num_tokens),
        n_embd=sizes.d_model,
        n_layer=sizes.num_blocks,
        n_head=sizes.num_heads,
        n_inner=sizes.hidden_size,
        tie_word_embeddings=sizes.tie_embeddings,
        bos_token_id=0,
        eos_token_id=end,
        pad_token_id=end,
    )
    model = GPT2LMHeadModel(shape).to(device, torch.bfloat16).eval()
    ids = torch.tensor([PROMPT] * num_samples, device=device)
    options = {"do_sample": True, "temperature": 0.8, "top_k": 0}
    options |= {"max_new_tokens": num_tokens, "min_new_tokens": num_tokens}
    return lambda: model.generate(ids, attention_mask=torch.ones_like(ids), **options)
