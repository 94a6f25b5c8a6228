from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from support.helpers import small_config

from benchmarks.forms import (
    FORMS,
    NUM_LAYERS,
    compare_layers,
    compare_models,
    kept_bytes,
    learn,
    main,
    with_form,
    with_forms,
)
from gpt_cli.config import ModelConfig
from gpt_cli.errors import UsageError
from gpt_cli.model import GPT, CrossAttention, MultiHeadAttention
from gpt_cli.model.costs import estimate
from gpt_cli.text.corpus import Texts

CPU = torch.device("cpu")
CONFIG = small_config("model.num_heads=4", "model.positions=rope", "train.max_steps=3", "train.warmup_steps=0")
CORPUS = Texts(("The model looks back at every token before it. " * 40,))


@contextlib.contextmanager
def silent(what: str, total: int | None, unit: str) -> Iterator[Callable[[int], object]]:
    yield lambda amount: None


def count(config: ModelConfig) -> int:
    return sum(parameter.numel() for parameter in GPT(config, 50).parameters())


def test_the_feed_forward_part_takes_what_a_form_saves() -> None:
    sizes = ModelConfig(d_model=32, num_heads=4, num_blocks=2, bias=False, norm="rmsnorm", positions="rope")
    # two of Wk and Wv of 32 x 32 become 8 x 32: 1,536 fewer in a block, and a unit of width is 2 x 32
    assert with_form(sizes, "grouped_query").feed_forward_size == 128 + 1536 // 64
    # W_DKV 8 x 32, W_KR 4 x 32, W_UK and W_UV 32 x 8, W_QR 16 x 32 in place of two of 32 x 32: 640 fewer
    assert with_form(sizes, "latent").feed_forward_size == 128 + 640 // 64
    assert with_form(sizes, "multi_head") == sizes.changed(feed_forward_size=128)
    for form in FORMS:
        assert count(with_form(sizes, form)) == count(sizes)
        odd = with_form(ModelConfig(d_model=24, num_heads=4, num_blocks=2), form)
        assert abs(count(odd) - count(ModelConfig(d_model=24, num_heads=4, num_blocks=2))) <= 2 * 24 + 1


def test_a_form_that_asks_for_more_makes_the_feed_forward_part_narrower() -> None:
    sizes = ModelConfig(d_model=32, num_heads=4, num_blocks=1, latent_size=64, attention="latent")
    assert with_form(sizes, "latent").hidden_size < 128
    # a unit of width is 2 x 32 and a bias
    assert abs(count(with_form(sizes, "latent")) - count(with_form(sizes, "multi_head"))) <= 65 // 2


def test_sizes_that_do_not_fit_a_form_are_told_before_anything_is_done() -> None:
    for wrong, told in (("num_key_value_heads", "grouped_query"), ("rotary_size", "multi_head")):
        config = CONFIG.changed(model={wrong: 3})
        with pytest.raises(UsageError) as raised:
            with_forms(config)
        assert f"model.{wrong}" in raised.value.lines()[0]
        assert f"(with model.attention {told})" in raised.value.lines()[0]


def test_a_form_that_cannot_be_made_equally_large_is_refused() -> None:
    large = CONFIG.changed(model={"latent_size": 1000})
    with pytest.raises(UsageError, match="more than the feed-forward part can give back"):
        with_forms(large)


def test_the_clock_is_left_out() -> None:
    timed = CONFIG.changed(train={"max_time": 60.0})
    assert {config.train.max_time for config in with_forms(timed).values()} == {None}


def test_layers_are_compared_in_turns_fused_and_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def watch(kind: type, way: str) -> None:
        real = getattr(kind, way)
        monkeypatch.setattr(kind, way, lambda *given: calls.append(f"{type(given[0]).__name__} {way}") or real(*given))

    for kind, fused in ((MultiHeadAttention, "project"), (CrossAttention, "fused_heads")):
        watch(kind, fused)
        watch(kind, "separate_heads")
    runs: list[int] = []
    layers = compare_layers(CONFIG, CPU, 1, runs.append)
    assert [layer.form for layer in layers] == [
        "multi_head",
        "multi_head, each head by itself",
        "query, key, value",
        "query, key, value, each head by itself",
        "grouped_query",
        "latent",
    ]
    assert len(runs) == 2 * NUM_LAYERS
    expected = ["MultiHeadAttention project", "MultiHeadAttention separate_heads"]
    expected += ["CrossAttention fused_heads", "CrossAttention separate_heads"]
    assert calls == 2 * expected
    D = 16
    assert [layer.parameters for layer in layers[:5]] == [4 * D * D + D] * 4 + [2 * D * D + D + 2 * 4 * D]
    assert layers[0].ratio == 1
    assert all(layer.seconds > 0 for layer in layers)


def test_models_of_all_forms_are_trained_and_measured() -> None:
    configs = with_forms(CONFIG)
    models = compare_models(configs, CORPUS, CPU, 1, 2, silent)
    assert [model.form for model in models] == list(FORMS)
    assert models[0].training_ratio == models[0].sampling_ratio == 1
    # in 2 blocks in float32: 2 x 16 numbers a token; 2 x 4 of one head of four; a latent of 4, and 2 that turn
    assert [model.cache_bytes_per_token for model in models] == [2 * 4 * 32, 2 * 4 * 8, 2 * 4 * 6]
    for model, config in zip(models, configs.values(), strict=True):
        assert abs(model.parameters - models[0].parameters) <= 33
        state, loss = learn(config, CORPUS, lambda _: None)
        assert model.validation_loss == loss
        # weights, gradients and two moments of AdamW
        assert model.training_bytes == 16 * model.parameters + kept_bytes(state.model, 4, "float32")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_the_estimate_of_memory_is_near_what_is_kept(form: str, dropout: float) -> None:
    """Not below it by a twentieth, and not above by more than a block takes meanwhile, where activations are most of it."""
    sizes = ModelConfig(d_model=64, num_heads=4, num_blocks=3, dropout=dropout, positions="rope", attention=form)  # type: ignore[arg-type]
    found = kept_bytes(GPT(sizes, 300), 4, "float32")
    expected = estimate(sizes, 300, micro_batch_size=4, dtype="float32")
    assert 0.95 * found < expected.training_bytes - 16 * expected.parameters < 1.6 * found


def test_muon_keeps_one_moment_of_the_matrices_in_blocks() -> None:
    config = CONFIG.changed(train={"optimizer": "muon"})
    configs = {"latent": with_forms(config)["latent"]}
    (model,) = compare_models(configs, CORPUS, CPU, 1, 2, silent)
    state, _ = learn(configs["latent"], CORPUS, lambda _: None)
    in_blocks = sum(p.numel() for block in state.model.blocks for p in block.parameters() if p.dim() == 2)
    assert model.training_bytes == 16 * model.parameters - 4 * in_blocks + kept_bytes(state.model, 4, "float32")


def test_learning_trains_as_the_config_says_and_evaluates_everything() -> None:
    steps: list[int] = []
    state, loss = learn(CONFIG, CORPUS, steps.append)
    assert steps == [1, 1, 1]
    assert learn(CONFIG, CORPUS, steps.append)[1] == loss
    longer = CONFIG.changed(train={"max_steps": 30})
    assert learn(longer, CORPUS, steps.append)[1] < loss - 0.2
    assert state.model.config == CONFIG.model


def test_what_the_forward_pass_keeps_grows_by_the_same_for_each_sequence() -> None:
    model = GPT(CONFIG.model, 50)
    two, three, four = (kept_bytes(model, size, "float32") for size in (2, 3, 4))
    assert four - three == three - two
    # of each sequence at least the logits' softmax and the inputs of all products
    assert three - two > 4 * 16 * (50 + 2 * (16 + 16 + 16 + 64))


def test_what_is_kept_can_be_counted_by_hand() -> None:
    """Of a linear layer and a square: the input, and the output that is squared; weights are not counted."""
    layer = torch.nn.Linear(3, 5)

    class Squared(torch.nn.Module):
        config = ModelConfig(context_length=2, dropout=0.0)
        token_embedding = torch.nn.Embedding(4, 3)

        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, ids: torch.Tensor, masks: object) -> torch.Tensor:
            return self.layer(self.token_embedding(ids)).square()

    found = kept_bytes(Squared(), 7, "float32")  # type: ignore[arg-type]
    tokens = 7 * 2
    # the ids, of which one more stands before the targets, and the targets by themselves; in float32 the embeddings, the
    # layer's output, and of the loss the logarithms of the probabilities and their total weight
    assert found == 8 * (7 * 3 + tokens) + 4 * (tokens * 3 + tokens * 5 + tokens * 5 + 1)


def test_the_tables_show_every_form(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "--config smoke --rounds 1 --tokens 3 --set train.max_steps=2 --set model.positions=rope --json"
    monkeypatch.setattr(sys, "argv", ["forms", *words.split()])
    main()
    *lines, found = capsys.readouterr().out.splitlines()
    assert lines[1] == "one layer of attention without positions, forward and backward, 8 x 32 tokens of 32, float32"
    assert [line.split("  ")[0] for line in lines[4:6]] == ["multi_head, each head by itself", "query, key, value"]
    assert lines[10].startswith("whole models of ")
    assert lines[10].endswith(" parameters, smoke: 2 steps of training in float32, samples in float32")
    assert [line.split("  ")[0] for line in lines[12:15]] == ["multi_head", "grouped_query", "latent"]
    # two blocks of width 32 in float32, two heads of which one is shared, a latent of 8 beside 8 that turn
    caches = [model["cache_bytes_per_token"] for model in json.loads(found)["models"]]
    assert caches == [2 * 64 * 4, 2 * 32 * 4, 2 * (8 + 8) * 4]
    assert list(here.iterdir()) == []
