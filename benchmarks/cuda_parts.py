"""What `python -m benchmarks.cuda` measures, part by part; each yields its figures as soon as it has them."""

from __future__ import annotations

import contextlib
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from benchmarks.cuda_commands import differences, prepare
from benchmarks.shakespeare import PlainGPT, plain_optimizer, plain_text
from gpt_cli.common.host import NOBODY, ignored
from gpt_cli.common.machine.devices import (
    autocast,
    choose_dtype,
    product_dtype,
    supports,
    synchronize,
)
from gpt_cli.config import Config
from gpt_cli.config.load import read_config
from gpt_cli.model import GPT
from gpt_cli.sampling.decoder import Decoder
from gpt_cli.sampling.generate import generate
from gpt_cli.sampling.next_token import CpuDraws, SamplingParameters, Uniforms
from gpt_cli.tools.bench import bench
from gpt_cli.tools.bench.baselines import NUM_SAMPLES, PROMPT, endless_state, sample_once, vocab_size_of
from gpt_cli.training.cuda_graphs import WholeStep, record_step
from gpt_cli.training.kernel_trials import choose_kernels, compare_with_plain
from gpt_cli.training.state import training_costs
from gpt_cli.training.step import read_outcomes, take_step, time_step

TARGET = 1.4697  # nats per character of tinyshakespeare: the best that nanoGPT's README reports


@dataclass(frozen=True)
class Figure:
    """What was measured: a number and its unit, or words."""

    what: str
    value: float | str
    unit: str = ""

    def shown(self) -> str:
        """The number with four digits that count."""
        if isinstance(self.value, str):
            return self.value
        number = f"{self.value:,.0f}" if abs(self.value) >= 1000 else f"{self.value:.4g}"
        return f"{number} {self.unit}".strip()


@dataclass(frozen=True)
class Scale:
    """Where a part measures, on what text, and whether in the size of a test."""

    device: torch.device
    data: str
    small: bool

    def config(self, name: str, *settings: str, **train: Any) -> Config:
        """A shipped config on this device in its number format; that of a test at small scale."""
        config = read_config("smoke" if self.small else name, list(settings))
        dtype = choose_dtype("auto", self.device, config.model.d_model)
        return config.changed(train={"device": str(self.device), "dtype": dtype, "compile": "off", **train})

    def gpt(self, *words: object) -> dict[str, Any]:
        """What a command of gpt answers with --json; raises RuntimeError with its error."""
        command = [sys.executable, "-m", "gpt_cli", *map(str, words), "--quiet", "--json"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(" ".join(done.stderr.split("\n")[-3:]).strip())
        return json.loads(done.stdout.splitlines()[-1])


def roof(scale: Scale) -> Iterator[Figure]:
    """Products of large matrices, and reading."""
    for limit, rate in _limits(scale).items():
        if limit == bench.READING:
            yield Figure(limit, rate / 1e9, "GB/s")
        else:
            yield Figure(f"products in {limit}", rate / 1e12, "TFLOP/s")


def _limits(scale: Scale) -> dict[str, float]:
    if scale.small:
        bench._SIZE, bench._READ = 128, 2**8
    ways = bench.roof_variants(scale.config("small"), scale.device)
    return bench.take_turns("the roof", ways, {}, 1 if scale.small else 5, NOBODY, of=min)[1]


def training(scale: Scale) -> Iterator[Figure]:
    """The default model: operation by operation, with compiled blocks, and as a graph of either."""
    flops = _limits(scale)
    for batch_size in (4,) if scale.small else (16, 128):
        for compiled in ("off",) if scale.small else ("off", "on"):
            config = scale.config("small", batch_size=batch_size, compile=compiled)
            if compiled == "on":  # or the second size would be compiled for any size
                torch.compiler.reset()
            dtype, state, warnings = config.train.dtype, endless_state(config), list[str]()
            choose_kernels(state, warnings.append)
            time_step(state)  # compiles
            kind = f"{batch_size} sequences, {dtype}, {'compiled' if compiled == 'on' else 'eager'}"
            for graph in (False, True):
                if graph and record_step(state, warnings.append) is None:
                    yield Figure(f"{kind}, graph", warnings[0] if warnings else f"{scale.device} has no graphs")
                    continue
                rate = config.tokens_per_step / _seconds(
                    scale, lambda state=state: take_step(state), 2 if scale.small else 30
                )
                read_outcomes(state)
                share = rate * training_costs(config, vocab_size_of(config)).training_flops_per_token / flops[dtype]
                yield Figure(f"{kind}{', graph' if graph else ''}", rate, "tokens/s")
                yield Figure("  of the roof of its products", 100 * share, "%")
            by_trial = [part for part in ("attention", "loss") if part in state.progress.environment]
            yield Figure("  other kernels, by trial", ", ".join(by_trial) or "none")


def attention(scale: Scale) -> Iterator[Figure]:
    """Attention with dropout, forward and backward, by torch's products, the same compiled, and the Triton kernel."""
    if not find_spec("triton"):
        yield Figure("Triton", "is not installed")
        return
    from gpt_cli.model.triton_attention import dropout_attention

    dtype = "float32" if scale.small else choose_dtype("auto", scale.device, 512)
    shapes = ((16, 8, 128, 64), (128, 8, 128, 64), (64, 6, 256, 64), (8, 12, 1024, 64))
    for shape in ((1, 1, 32, 16),) if scale.small else shapes:
        agrees, plain, kernel = compare_with_plain(dropout_attention, shape, dtype, scale.device, 0.1)
        torch.compiler.reset()  # or the second size would be compiled for any size
        _, compiled, _ = compare_with_plain(dropout_attention, shape, dtype, scale.device, 0.1, compiled=True)
        what = f"{shape[0]} sequences of {shape[2]}, {shape[1]} heads of {shape[3]}, {dtype}"
        yield Figure(f"{what}, torch", 1e3 * plain, "ms")
        yield Figure(f"{what}, torch, compiled", 1e3 * compiled, "ms")
        yield Figure(f"{what}, kernel", 1e3 * kernel, "ms")
        yield Figure("  agrees", "yes" if agrees else "no")


def _seconds(scale: Scale, run: Callable[[], object], times: int) -> float:
    """The seconds of one of many runs that nobody waits for in between, the median of three rounds after one."""
    found = []
    for _ in range(4):
        synchronize(scale.device)
        started = time.perf_counter()
        for _ in range(times):
            run()
        synchronize(scale.device)
        found.append((time.perf_counter() - started) / times)
    return statistics.median(found[1:])


def _peak_memory(device: torch.device) -> int | None:
    """The most bytes that tensors have taken of an accelerator; None for a CPU, and where torch does not know."""
    if device.type == "cpu":
        return None
    # mps keeps no books
    with contextlib.suppress(RuntimeError):
        return torch.accelerator.max_memory_allocated(device) or None
    return None


def memory(scale: Scale) -> Iterator[Figure]:
    """The most that tensors took in two steps, beside the estimate of `gpt info`."""
    for batch_size in (4,) if scale.small else (16, 128):
        config = scale.config("small", batch_size=batch_size)
        expected = training_costs(config, vocab_size_of(config)).training_bytes
        yield Figure(f"{batch_size} sequences, estimate", expected / 1e6, "MB")
        if _peak_memory(scale.device) is not None:
            torch.accelerator.reset_peak_memory_stats(scale.device)
        state = endless_state(config)
        choose_kernels(state, ignored)
        if supports(scale.device, "graphs"):
            state.whole_step = WholeStep(state)  # whose keys the attention kernel draws from
        take_step(state)
        take_step(state)
        read_outcomes(state)
        peak = _peak_memory(scale.device)
        measured = "torch reports no peak" if peak is None else peak / 1e6
        yield Figure(f"{batch_size} sequences, measured", measured, "MB")
        del state  # or it would count for the next one too


def decoding(scale: Scale) -> Iterator[Figure]:
    """The default model with random weights, after a prompt of 8 tokens."""
    num_tokens, config, generator = 12 if scale.small else 400, scale.config("small"), torch.Generator().manual_seed(0)
    model = GPT(config.model, vocab_size_of(config), generator).to(scale.device).eval()
    for num_rows, dtype in product((1, NUM_SAMPLES), dict.fromkeys(("float32", config.train.dtype))):
        decoder = Decoder(model, product_dtype(dtype), num_rows=num_rows)
        what = f"gpt sample{'' if num_rows == 1 else f', {num_rows} at once'}, {dtype}"
        for times, more in ((1, ""), (3, f", {3 * num_tokens:,} tokens")):
            run = partial(sample_once, decoder, times * num_tokens, num_rows)
            yield Figure(what + more, times * num_tokens * num_rows / _seconds(scale, run, 1), "tokens/s")
        run = partial(_draw_anew, decoder, num_tokens // 4, num_rows)
        yield Figure("  each token anew", num_tokens // 4 * num_rows / _seconds(scale, run, 1), "tokens/s")
        steps = generate(decoder, [PROMPT], SamplingParameters(), max_new_tokens=num_tokens, num_samples=num_rows)
        recorded = [[draw.token if draw else None for draw in step] for step in steps]
        equal = recorded == _draw_anew(decoder, num_tokens, num_rows)
        yield Figure("  tokens of both", "equal" if equal else "differ")


def _draw_anew(decoder: Decoder, num_tokens: int, num_samples: int) -> list[list[int]]:
    """Sample as `sample_once`, without a graph; return the ids of each step."""
    draws = CpuDraws(decoder, [PROMPT] * num_samples, SamplingParameters(), Uniforms(0, num_samples, 1), num_tokens)
    return [[draw.token for draw in draws.next()] for _ in range(num_tokens)]


def shakespeare(scale: Scale) -> Iterator[Figure]:
    """`gpt train --config shakespeare` as a whole process, from its start to its closing evaluation."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["--set", "tokenizer.kind=char"] if scale.small else []
        config = "smoke" if scale.small else "shakespeare"
        started = time.perf_counter()
        found = scale.gpt(
            *("train", "--config", config, "--data", scale.data, "--out", f"{folder}/run", "--device", scale.device),
            *words,
        )
        whole = time.perf_counter() - started
        started = time.perf_counter()
        words += ["--out", f"{folder}/none", "--device", scale.device, "--dry-run"]
        scale.gpt("train", "--config", config, "--data", scale.data, *words)
        start = time.perf_counter() - started - (imported := _import_seconds())
    yield Figure("whole process", whole, "s")
    yield Figure("training steps", found["seconds"], "s")
    yield Figure("import of torch", imported, "s")
    yield Figure("start without it, by a dry run: text, model, first step", start, "s")
    yield Figure("all else: evaluations, files, picture", whole - found["seconds"] - imported - start, "s")
    yield Figure("validation loss", found["validation_loss"], "nats/character")
    yield Figure(f"below {TARGET}", "yes" if found["validation_loss"] <= TARGET else "no")


def _import_seconds() -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    return time.perf_counter() - started


def choice(scale: Scale) -> Iterator[Figure]:
    """`gpt train --data` without a config, for a minute: how long it looks at text and device, and what comes of it."""
    with tempfile.TemporaryDirectory() as folder:
        seconds, shared = ("3s" if scale.small else "1m"), ("--data", scale.data, "--device", scale.device)
        started = time.perf_counter()
        scale.gpt("train", *shared, "--max-time", seconds, "--out", f"{folder}/none", "--dry-run")
        whole = time.perf_counter() - started
        found = scale.gpt("train", *shared, "--max-time", seconds, "--out", f"{folder}/run")
    yield Figure("dry run without the import of torch", whole - _import_seconds(), "s")
    yield Figure(f"after {seconds}", found["bits_per_byte"], "bits/byte")


def runs(scale: Scale) -> Iterator[Figure]:
    """Weights of short runs by the same seed, bit for bit: of a small model, and of one with n-grams and Muon."""
    cases: dict[str, tuple[object, ...]] = {"smoke": ("--set", "train.micro_batch_size=4", "--max-steps", 4)}
    if not scale.small:
        cases = {"tiny": ("--set", "train.micro_batch_size=8"), "shakespeare": ("--data", scale.data)}
        cases = {config: (*words, "--max-steps", 60) for config, words in cases.items()}
    others: dict[str, tuple[object, ...]] = {"the same again": (), "without a graph": ("--set", "train.graph=off")}
    if scale.device.type == "cpu" or torch.accelerator.device_count() > 1:
        others["by two processes"] = ("--processes", 2)
    else:
        yield Figure("by two processes", "there is one device")
    with tempfile.TemporaryDirectory() as folder:

        def weights(name: str, *more: object) -> dict[str, Tensor]:
            out = Path(folder, name)
            words = ["--out", out, "--device", scale.device, "--set", "train.compile=off"]
            words += ["--threads", 1] if scale.device.type == "cpu" else []  # as each of two processes has
            scale.gpt("train", *words, *more)
            return load_file(max(out.glob("checkpoints/step-*")))

        for config, words in cases.items():
            first = weights(config, "--config", config, *words)
            for name, more in others.items():
                other = weights(f"{config}, {name}", "--config", config, *words, *more)
                gaps = {key: float((first[key].double() - other[key].double()).abs().max()) for key in first}
                most = max(gaps, key=lambda key: gaps[key])
                verdict = "equal bits" if not gaps[most] else f"apart by {gaps[most]:.2g} in {most}"
                yield Figure(f"{config}, {name}", verdict)


def check(scale: Scale) -> Iterator[Figure]:
    """`gpt bench --check-device`: gradients, trainings, samples, attention and more beside the CPU's."""
    words = ("bench", "--check-device", scale.device, "--quiet")
    done = subprocess.run([sys.executable, "-m", "gpt_cli", *map(str, words)], capture_output=True, text=True)
    for line in done.stdout.splitlines():
        name, _, verdict = line.strip().rpartition("  ")
        if verdict.strip() in ("differs", "refused"):
            yield Figure(" ".join(name.split()), verdict.strip())
    if not done.stdout:
        raise RuntimeError(done.stderr.strip())
    yield Figure("all checks", done.stdout.splitlines()[-1].partition("checks: ")[2])


def commands(scale: Scale) -> Iterator[Figure]:
    """Every command that reads a model beside the same on the CPU: the largest difference of a number."""
    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name))
        for command, found in differences(str(scale.device), Path(name)):
            yield Figure(command, "equal" if found == 0 else found)


def nanogpt(scale: Scale) -> Iterator[Figure]:
    """A plain trainer with nanoGPT's settings for Shakespeare: until it reaches the same loss, or 5,000 steps."""
    trainer = NanoTrainer(scale)
    started, best, step = time.perf_counter(), math.inf, 0
    steps, every = (4, 2) if scale.small else (NanoTrainer.STEPS, 250)
    while step < steps and best > TARGET:
        for _ in range(every):
            trainer.step(step)
            step += 1
        best = min(best, trainer.validation_loss())
        print(f"step {step}: {best:.4f}", file=sys.stderr)
    yield Figure(f"best loss, {'compiled' if trainer.compiled else 'eager'}", best, "nats/character")
    yield Figure("after steps", step)
    yield Figure("time, compiling and evaluations included", time.perf_counter() - started, "s")


class NanoTrainer:
    """6 blocks of 6 heads, 384 wide, context 256, batches of 64, dropout 0.2; 1e-3 falls to 1e-4 as half a cosine."""

    STEPS, WARMUP, BATCH_SIZE, CONTEXT_LENGTH = 5000, 100, 64, 256

    def __init__(self, scale: Scale):
        torch.manual_seed(1337)
        self.device, small = scale.device, scale.small
        text = plain_text(scale.data)
        places = {symbol: place for place, symbol in enumerate(sorted(set(text)))}
        ids = torch.tensor([places[symbol] for symbol in text], device=self.device)
        self.ids, self.validation_ids = ids[: len(ids) * 9 // 10], ids[len(ids) * 9 // 10 :]
        self.context_length = 16 if small else self.CONTEXT_LENGTH
        sizes = (24, 2, 2) if small else (384, 6, 6)
        model = PlainGPT(len(places), *sizes, context_length=self.context_length, dropout=0.2)
        for name, weight in model.named_parameters():
            if name.endswith(("projection_layer.weight", "contract.weight")):
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * sizes[2]))
        self.model = model.to(self.device)
        self.dtype = choose_dtype("auto", self.device, sizes[0])
        self.optimizer = plain_optimizer(self.model)
        self.optimizer.param_groups[0]["fused"] = self.optimizer.param_groups[1]["fused"] = self.device.type != "cpu"
        self.compiled = self.device.type == "cuda"
        self.forward: Callable[[Tensor], Tensor] = torch.compile(self.model) if self.compiled else self.model

    def step(self, number: int) -> None:
        """Take a step on windows at random places."""
        T = self.context_length
        starts = torch.randint(len(self.ids) - T, (self.BATCH_SIZE,), device=self.device)
        windows = self.ids[starts[:, None] + torch.arange(T + 1, device=self.device)]
        falling = (1 + math.cos(math.pi * (number - self.WARMUP) / (self.STEPS - self.WARMUP))) / 2
        rate = 1e-3 * (number + 1) / (self.WARMUP + 1) if number < self.WARMUP else 1e-4 + falling * 9e-4
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        with autocast(self.device, self.dtype):
            loss = F.cross_entropy(self.forward(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    @torch.no_grad()
    def validation_loss(self) -> float:
        """The loss on the whole validation text, in windows that begin without context."""
        self.model.eval()
        windows = self.validation_ids.unfold(0, self.context_length + 1, self.context_length)
        with autocast(self.device, self.dtype):
            losses = [
                F.cross_entropy(self.model(part[:, :-1]).flatten(0, 1).float(), part[:, 1:].flatten(), reduction="sum")
                for part in windows.split(self.BATCH_SIZE)
            ]
        self.model.train()
        return float(torch.stack(losses).sum()) / (len(windows) * self.context_length)


@dataclass(frozen=True)
class Part:
    """A part: what it measures, the most seconds that it may take, how, and whether by time, with the device alone."""

    what: str
    seconds: float
    measure: Callable[[Scale], Iterator[Figure]]
    by_time: bool = True


PARTS = {
    "roof": Part("what the device can do at most", 40, roof),
    "memory": Part("most memory in training the default model", 40, memory),
    "shakespeare": Part(f"gpt learns Shakespeare by characters to {TARGET}", 60, shakespeare),
    "choice": Part("gpt chooses the settings", 100, choice),
    "training": Part("training the default model", 150, training),
    "attention": Part("attention with dropout", 70, attention),
    "decoding": Part("sampling from the default model", 70, decoding),
    "runs": Part("the same training in several ways", 110, runs, by_time=False),
    "check": Part("the device beside the CPU", 110, check, by_time=False),
    "commands": Part("commands on the device and on the CPU", 110, commands, by_time=False),
    "nanogpt": Part(f"a plain trainer with nanoGPT's settings, to {TARGET}", 200, nanogpt),
}
