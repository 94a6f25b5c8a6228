"""What `gpt bench --check-device` checks, with the bounds of each difference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpt_cli.measuring.side import Figures, Side, closing_loss, estimated, explained, losses, weights

Pair = tuple[Callable[[], Figures], Callable[[], Figures]]  # two ways to the same numbers


@dataclass(frozen=True)
class Bound:
    """How far numbers may be apart: as they are, or in units of 2^-bits of the largest number of their array.

    `reason` is what `python -m benchmarks.orders` measured; a bound is about ten times as much.
    """

    most: float
    unit: str
    reason: str
    bits: int | None = None

    def difference(self, expected: Figures, found: Figures) -> float:
        """How far the numbers that differ most are apart; NaN or infinite where they cannot be compared."""
        assert expected.keys() == found.keys()
        return float(
            np.max([self._of_one(expected[name].astype(float), found[name].astype(float)) for name in expected])
        )

    def _of_one(self, expected: np.ndarray, found: np.ndarray) -> float:
        if expected.shape != found.shape:
            return np.inf
        apart, largest = np.abs(expected - found).max(), np.abs(expected).max()
        return apart if self.bits is None or not apart else apart / largest * 2**self.bits


GRADIENT = Bound(256, "roundings", "other orders of sums differ by up to 24 on a CPU", bits=24)
GRADIENT_16 = Bound(64, "roundings", "other orders of sums differ by up to 5 on a CPU", bits=9)
NATS = Bound(1e-5, "nats", "other orders of sums differ by up to 5e-7 on a CPU, the rounding of a loss")
NATS_16 = Bound(2e-3, "nats", "other orders of sums differ by up to 2e-4 on a CPU")
WEIGHTS = Bound(8_000, "roundings", "other orders of sums differ by up to 700 on a CPU", bits=24)
NUMBERS = Bound(64, "roundings", "other orders of sums differ by up to 7 on a CPU", bits=24)
BITS = Bound(0, "", "they are only copied")
MEMORY = Bound(0.5, "of the estimate", "an estimate, not a measurement", bits=0)

GROUPED = "model.attention=grouped_query", "model.positions=rope"
LATENT = "model.attention=latent", "model.positions=rope"
RARER = "model.ngram_embedding=3", "model.norm=rmsnorm", "model.norm_position=post", "model.activation=relu2"
WIDE = ("model.num_heads=1",)
MUON, MICRO, HALF = "train.optimizer=muon", "train.micro_batch_size=2", "train.dtype=bfloat16"


def checks(cpu: Side, other: Side) -> list[tuple[str, Bound, dict[str, Pair]]]:
    """All that is checked, in groups: a title, a bound, and two ways to each of its numbers."""

    def both(compute: Callable[[Side], Figures]) -> Pair:
        return lambda: compute(cpu), lambda: compute(other)

    def gradient(*settings: str) -> Pair:
        return both(lambda side: side.gradient(settings))

    def training(*settings: str) -> Pair:
        return both(lambda side: losses(side.trained(settings)))

    def sampling(*settings: str) -> Pair:
        return both(lambda side: side.sampled(cpu.trained(settings), greedy=True))

    def here() -> Path:
        return cpu.trained()

    def there() -> Path:
        return other.trained()

    gradients = {
        "multi-head, dropout": gradient(),
        "multi-head, no dropout": gradient("model.dropout=0"),
        "multi-head, dropout, micro-batches": gradient(MICRO),
        "grouped-query, rope": gradient(*GROUPED),
        "latent, rope": gradient(*LATENT),
        "n-grams, RMSNorm after the sum, ReLU squared": gradient(*RARER),
    }
    trainings = {
        "multi-head, AdamW": training(),
        "multi-head, Muon": training(MUON),
        "grouped-query, AdamW, micro-batches": training(MICRO, *GROUPED),
        "latent, Muon, micro-batches": training(MUON, MICRO, *LATENT),
        "begun on the device, ended on the CPU": (
            lambda: losses(here()),
            lambda: losses(cpu.continued(other.half_trained())),
        ),
        "begun on the CPU, ended on the device": (
            lambda: losses(here()),
            lambda: losses(other.continued(cpu.half_trained())),
        ),
    }
    repeated = {
        "the same seed twice": (lambda: weights(there()), lambda: weights(other.trained(again=True))),
        "left after 6 steps, continued from its file": (
            lambda: weights(there()),
            lambda: weights(other.continued(other.half_trained())),
        ),
    }
    on_text = {
        "gpt eval": both(lambda side: side.evaluated(here())),
        "gpt eval on the CPU, beside the training on the device": (
            lambda: closing_loss(there()),
            lambda: cpu.evaluated(there()),
        ),
        "gpt sample --greedy: tokens and their log-probabilities": sampling(),
        "gpt sample --greedy, grouped-query, rope: the same": sampling(MICRO, *GROUPED),
        "gpt sample --greedy, latent, rope: the same": sampling(MUON, MICRO, *LATENT),
        "gpt sample, 4 at once: the same": both(lambda side: side.sampled(here(), seed=7, num_samples=4)),
        "gpt heads --ablate zero": both(lambda side: side.scored(here(), ablate="zero", dtype="float32")),
    }
    on_text_16 = {
        "gpt eval": both(lambda side: side.evaluated(here(), "bfloat16")),
        # of a size for which devices have kernels of their own
        "gpt eval, a head of 64 numbers": both(lambda side: side.evaluated(cpu.trained(WIDE), "bfloat16")),
    }
    on_prompt = {
        "gpt attn-dump: every stage": both(lambda side: side.attended(here())),
        "gpt heads: scores": both(lambda side: side.scored(here())),
        "gpt explain in float64, beside attention on the device": (
            lambda: explained(here()),
            lambda: other.first_head(here()),
        ),
    }
    exported = lambda: weights(there()), lambda: other.reopened(there())
    return [
        ("gradient of a first step in float32", GRADIENT, gradients),
        ("the same in bfloat16", GRADIENT_16, {"multi-head": gradient(HALF), "latent, rope": gradient(HALF, *LATENT)}),
        ("losses of 12 steps in float32", NATS, trainings),
        ("the same in bfloat16", NATS_16, {"AdamW": training(HALF), "latent, Muon": training(HALF, MUON, *LATENT)}),
        ("weights after 12 steps on the device", WEIGHTS, repeated),
        ("weights in files", BITS, {"exported for transformers, imported again": exported}),
        ("a model on a text in float32", NATS, on_text),
        ("the same in bfloat16", NATS_16, on_text_16),
        ("a model on a prompt", NUMBERS, on_prompt),
        ("memory", MEMORY, {"gpt's estimate for a training, and its peak": (lambda: estimated(other), other.peak)}),
    ]
