import numpy as np
import pytest
import torch

from gpt_cli.config import ModelConfig
from gpt_cli.evaluation.nll import Observations, standard_error
from gpt_cli.model import GPT
from gpt_cli.text.token_files import validation_windows
from gpt_cli.text.tokenizers import ByteTokenizer, CharTokenizer
from gpt_cli.training.validation import cross_entropy, validation_score

SIZES = ModelConfig(context_length=8, d_model=16, num_heads=2, num_blocks=1, dropout=0.5)


def guessing(vocab_size: int) -> GPT:
    """A model that finds every token equally likely."""
    model = GPT(SIZES, vocab_size, torch.Generator().manual_seed(0))
    assert model.output_layer is not None
    torch.nn.init.zeros_(model.output_layer.weight)
    return model


def test_several_targets_of_a_position_are_those_of_their_frequencies() -> None:
    """Loss and gradient are those of torch's cross-entropy against probabilities, here 0.75 and 0.25."""
    logits = torch.randn(2, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    targets = torch.tensor([4, 1, 4, 4]).expand(2, 3, 4)
    probabilities = torch.zeros(2, 3, 5, dtype=torch.float64)
    probabilities[..., 4], probabilities[..., 1] = 0.75, 0.25
    plain = torch.nn.functional.cross_entropy(logits.flatten(0, 1), probabilities.flatten(0, 1))
    (expected,) = torch.autograd.grad(plain, logits)
    loss = cross_entropy(logits, targets)
    (gradient,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(loss, plain, rtol=0, atol=1e-15)
    torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-15)


def test_bits_are_counted_per_byte_of_the_predicted_text() -> None:
    """Four symbols of 3, 3, 1 bytes and end-of-text, which has none."""
    tokenizer = CharTokenizer("今天a")
    ids = np.array([0, 1, 2, 3, 1])  # predicted: 天 a end-of-text 天
    found = validation_score(guessing(4), tokenizer, ids, validation_windows(5, 8), batch_size=2, dtype="float32")
    assert found.bits_per_byte == pytest.approx(4 * 2 / 7)


def test_an_evaluation_leaves_mode_and_random_state_alone_also_where_it_is_stopped() -> None:
    def stop(_: int) -> None:
        raise KeyboardInterrupt

    model, state = guessing(257).train(), torch.get_rng_state()
    validation_score(model, ByteTokenizer(), np.arange(20), [(0, 8)], batch_size=2, dtype="float32")
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)
    with pytest.raises(KeyboardInterrupt):
        validation_score(model, ByteTokenizer(), np.arange(20), [(0, 8)], batch_size=2, dtype="float32", count=stop)
    assert model.training


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("size", [1, 5, 100])
def test_the_loss_is_the_cross_entropy_to_the_bit_with_and_without_its_error(size: int, dtype: str) -> None:
    model = GPT(SIZES, 257, torch.Generator().manual_seed(1)).eval()
    ids = np.random.default_rng(0).integers(0, 257, 60)
    windows = validation_windows(60, 8)  # seven of 8 tokens, and one of 3
    nats, by_window, parts = 0.0, list[float](), Observations()
    for chosen in (*(windows[at : min(at + size, 7)] for at in range(0, 7, size)), windows[7:]):
        batch = torch.tensor(np.array([ids[a : b + 1] for a, b in chosen]))
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
            logits = model(batch[:, :-1])
            nats += cross_entropy(logits, batch[:, 1:], "sum").item()
            by_window += cross_entropy(logits, batch[:, 1:], "none").view(len(chosen), -1).sum(dim=1).tolist()
    for noted in (None, parts):
        found = validation_score(model, ByteTokenizer(), ids, windows, batch_size=size, dtype=dtype, by_window=noted)
        assert found.loss == nats / 59
    error = standard_error(np.array(by_window), np.array([8] * 7 + [3]))
    assert parts.standard_error() == pytest.approx(error, rel=1e-4)
