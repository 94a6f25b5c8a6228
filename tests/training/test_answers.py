"""Training on questions and answers: each example as if it were alone, whatever shares its window or its step."""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from support.helpers import RunCommand, sharp_model, small_config
from support.texts import examples_of

from gpt_cli.config import Config
from gpt_cli.evaluation.nll import Observations
from gpt_cli.text.sft_examples import IGNORED, Examples, pack
from gpt_cli.text.tokenizers import ByteTokenizer
from gpt_cli.training.batches import PackedBatches
from gpt_cli.training.state import TrainingState
from gpt_cli.training.step import compute_gradient, send
from gpt_cli.training.validation import validation_score

FORMS = {
    "learned": (),
    "sinusoidal, windows": ("model.positions=sinusoidal", "model.attention_window=3"),
    "rope, grouped-query, qk_norm": ("model.positions=rope", "model.attention=grouped_query", "model.qk_norm=true"),
    "rope, latent": ("model.positions=rope", "model.attention=latent"),
    "n-grams, post, tied": (
        *("model.ngram_embedding=3", "model.ngram_rows=300"),
        *("model.norm_position=post", "model.tie_embeddings=true"),
    ),
    "parallel": ("model.parallel_branches=true",),
}


@pytest.fixture
def sums(here: Path) -> Config:
    """A config of sums of one or two digits, of which a window holds two or three."""
    pairs = [{"prompt": f"{a}+{b}", "response": str(a + b)} for a in range(5, 12) for b in (3, 70, 8)]
    (here / "sums.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    return small_config("data.source=sums.jsonl", "data.validation_fraction=0.2", "model.dropout=0")


def alone(model: torch.nn.Module, examples: Examples, number: int) -> torch.Tensor:
    """The nats of each learned token of an example that is alone."""
    start, end = examples.bounds[number : number + 2]
    ids = torch.from_numpy(examples.ids[start:end].astype(int))
    nats = -model(ids[None, :-1])[0].log_softmax(dim=-1).gather(-1, ids[1:, None])[:, 0]
    return nats[torch.from_numpy(examples.learned[start + 1 : end])]


@pytest.mark.parametrize("form", FORMS)
def test_an_example_in_a_window_with_others_is_as_alone(sums: Config, form: str) -> None:
    examples, _ = examples_of(sums)
    rows = [row for row in pack(examples.lengths, 16) if len(row) > 1]
    assert len(rows) > 3
    found = []
    for packed in (True, False):
        model = sharp_model(257, "model.dropout=0", *FORMS[form]).train()
        if packed:
            inputs, targets, positions = map(torch.from_numpy, examples.packed(rows, 16))
            logits = model(inputs, None, positions)
            nats = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
            nats = nats[targets.flatten() != IGNORED]
        else:
            nats = torch.cat([alone(model, examples, number) for row in rows for number in row])
        nats.mean().backward()
        found.append([nats.detach(), *(parameter.grad for parameter in model.parameters())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize("micro", [1, 2, 4])
def test_a_step_is_the_mean_over_its_answers_whatever_the_micro_batches(sums: Config, micro: int) -> None:
    config = sums.changed(train={"micro_batch_size": micro})
    examples, _ = examples_of(config)
    state = TrainingState.at_the_start(config, examples, 257)
    loss = compute_gradient(state, send(state, 5)).sum()
    assert isinstance(state.batches, PackedBatches)
    _, windows = (state.batches.windows_per_epoch, state.batches.numbers(5)[:, -1])
    rows = state.batches.numbers(5)[:, 16:32]
    assert (windows == (rows != IGNORED).sum()).all()
    inputs, targets, positions = map(
        torch.from_numpy, state.batches.numbers(5)[:, :48].reshape(4, 3, 16).swapaxes(0, 1)
    )
    expected = F.cross_entropy(state.model(inputs, None, positions).flatten(0, 1), targets.flatten())
    torch.testing.assert_close(loss, expected.detach(), rtol=0, atol=1e-6)
    gradient = torch.autograd.grad(expected, state.model.output_weight)[0]
    torch.testing.assert_close(state.model.output_weight.grad, gradient, rtol=0, atol=1e-6)


def test_each_epoch_has_every_example_once(sums: Config) -> None:
    examples, _ = examples_of(sums)
    batches = PackedBatches(examples, 16, 4, 7)
    count = batches.windows_per_epoch
    steps = range(count)  # four epochs
    seen = [batches.numbers(step)[:, 16:32] for step in steps]
    learned = sum(int((part != IGNORED).sum()) for part in seen)
    assert learned == 4 * int(examples.num_learned.sum())
    assert (batches.numbers(3)[1:3] == batches.numbers(3, slice(1, 3))).all()


def test_an_evaluation_counts_answers_by_example(sums: Config) -> None:
    _, validation = examples_of(sums)
    model, by_window = sharp_model(257), Observations()
    windows = validation.windows(len(validation))
    score = validation_score(
        model, ByteTokenizer(), validation, windows, batch_size=3, dtype="float32", by_window=by_window
    )
    nats = [alone(model, validation, number) for number in range(len(windows))]
    assert score.num_tokens == sum(map(len, nats)) == by_window.amounts.sum()
    assert score.loss == pytest.approx(torch.cat(nats).mean().item(), abs=1e-9)
    assert sorted(by_window.nats) == pytest.approx(sorted(one.sum().item() for one in nats), abs=1e-9)
    # an answer is one byte a token, and end-of-text has none
    num_bytes = score.num_tokens - len(nats)
    assert score.bits_per_byte == pytest.approx(torch.cat(nats).sum().item() / num_bytes / 0.6931471805599453)
    assert len(validation.windows(15)) == 2 < len(windows)


def test_a_run_stores_what_its_loss_counts_and_continues(sums: Config, run: RunCommand) -> None:
    flags = ("--config", "smoke", "--data", "sums.jsonl", "--set", "tokenizer.kind=char", "--out", "runs/sums")
    ended = run("train", *flags, "--max-steps", "4", exits=0)
    assert "next: gpt sample --run runs/sums --chat" in ended.err
    stored = Path("runs/sums/config.yaml").read_text()
    assert "  loss: answers\n  template: '{prompt}\\n'\n" in stored
    run("train", *flags, "--max-steps", "6", "--resume", exits=0)
    changed = run("train", *flags, "--max-steps", "8", "--resume", "--set", "data.loss=all")
    assert (changed.code, "data.loss was" in changed.err) == (4, True)
    Path("b.txt").write_text("letters that it does not know " * 50)
    other = run("train", "--init-from", "runs/sums", "--data", "b.txt", "--max-steps", "1", "--out", "runs/text")
    assert (other.code, "data.loss" in other.err) == (3, False)
