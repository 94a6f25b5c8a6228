from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from gpt_cli.config import ModelConfig
from gpt_cli.model import GPT
from gpt_cli.text.tokenizer import ByteTokenizer, CharTokenizer
from gpt_cli.text.tokens import validation_windows
from gpt_cli.training.evaluation import cross_entropy, evaluate

SIZES = ModelConfig(context_length=8, d_model=16, num_heads=2, num_blocks=1, dropout=0.5)


def guessing(vocab_size: int) -> GPT:
    """A model that finds every token equally likely."""
    model = GPT(SIZES, vocab_size, torch.Generator().manual_seed(0))
    assert model.output_layer is not None
    torch.nn.init.zeros_(model.output_layer.weight)
    return model


def test_guessing_costs_the_logarithm_of_the_vocabulary() -> None:
    found = evaluate(
        guessing(257),
        ByteTokenizer(),
        np.arange(20),
        validation_windows(20, 8),
        batch_size=2,
        dtype="float32",
    )
    assert found.loss == pytest.approx(math.log(257))
    assert found.num_tokens == 19
    assert found.bits_per_byte == pytest.approx(math.log2(257))


def test_bits_are_counted_per_byte_of_the_predicted_text() -> None:
    """Four symbols of 3, 3, 1 bytes and end-of-text, which has none."""
    tokenizer = CharTokenizer("今天a")
    ids = np.array([0, 1, 2, 3, 1])  # predicted: 天 a end-of-text 天
    found = evaluate(guessing(4), tokenizer, ids, validation_windows(5, 8), batch_size=2, dtype="float32")
    assert found.bits_per_byte == pytest.approx(4 * 2 / 7)


def test_the_loss_is_the_mean_over_all_windows_however_they_are_batched() -> None:
    model = GPT(SIZES, 257, torch.Generator().manual_seed(1)).eval()
    ids = np.random.default_rng(0).integers(0, 257, 60)
    windows = validation_windows(60, 8)
    nats = sum(
        cross_entropy(model(torch.tensor(ids[None, a:b])), torch.tensor(ids[None, a + 1 : b + 1]), "sum").item()
        for a, b in windows
    )
    for batch_size in (1, 3, 100):
        found = evaluate(model, ByteTokenizer(), ids, windows, batch_size=batch_size, dtype="float32")
        assert found.loss == pytest.approx(nats / 59, rel=1e-5)


def test_evaluation_leaves_mode_and_random_state_alone() -> None:
    model = guessing(257).train()
    state = torch.get_rng_state()
    evaluate(model, ByteTokenizer(), np.arange(20), [(0, 8)], batch_size=2, dtype="float32")
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)


def test_an_evaluation_that_is_stopped_leaves_the_mode_alone() -> None:
    def stop(_: int) -> None:
        raise KeyboardInterrupt

    model = guessing(257).train()
    with pytest.raises(KeyboardInterrupt):
        evaluate(model, ByteTokenizer(), np.arange(20), [(0, 8)], batch_size=2, dtype="float32", count=stop)
    assert model.training
