import itertools
import sys
import time
from contextlib import nullcontext

import pytest
import torch
from support.helpers import small_config

from gpt_cli.common.host import NOBODY, Host
from gpt_cli.sampling.fast.c_library import library
from gpt_cli.tools.bench import baselines, bench
from gpt_cli.tools.bench.baselines import READING, Variant, sampling_variants, training_variants, vocab_size_of
from gpt_cli.tools.bench.bench import take_turns
from gpt_cli.training.state import TrainingState

CPU = torch.device("cpu")
CONFIG = small_config("model.dropout=0.1")


def counting(told: list[int]) -> Host:
    """A host that adds to `told` each amount done."""
    return Host(counting=lambda *_: nullcontext(told.append))


def test_forms_take_turns_and_their_figures_are_medians(monkeypatch: pytest.MonkeyPatch) -> None:
    order = []
    # of the warm-up and four rounds
    durations = {"a": iter([9.0, 1.0, 2.0, 3.0, 2.0]), "b": iter([9.0, 4.0, 5.0, 4.0, 40.0])}
    now = 0.0

    def run(name: str) -> None:
        nonlocal now
        order.append(name)
        now += next(durations[name])

    monkeypatch.setattr(time, "perf_counter", lambda: now)
    forms = [
        Variant(name, "float32", lambda name=name: run(name), 20, cost, "float32")
        for name, cost in (("a", 3.0), ("b", 6.0))
    ]
    told = []
    (first, second), limits = take_turns("training", forms, {"float32": 60.0, READING: 1.0}, 4, counting(told))
    assert limits == {"float32": 60.0, READING: 1.0}
    assert order == ["a", "b"] * 5
    assert told == [0] + [1] * 10
    assert (first.seconds, first.tokens_per_second, first.ratio) == (2.0, 10.0, 1.0)
    assert first.share_of_roof == pytest.approx(10 * 3 / 60)
    assert (second.seconds, second.ratio) == (4.5, pytest.approx(2 / 4.5))
    assert second.share_of_roof == pytest.approx(20 / 4.5 * 6 / 60)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[TrainingState]:
    """The state of each training step."""
    states, real = list[TrainingState](), baselines.take_step
    monkeypatch.setattr(baselines, "take_step", lambda state: (states.append(state), real(state)))
    return states


def test_the_plain_form_has_no_dropout_and_ours_is_a_training_step(trained: list[TrainingState]) -> None:
    plain, heads, ours = training_variants(CONFIG, CPU)
    assert [form.name for form in (plain, heads, ours)] == ["plain", "heads", "gpt train"]
    assert {form.num_tokens for form in (plain, heads, ours)} == {4 * 16}
    for form in (plain, heads, ours):
        form.run()
    ours.run()
    assert trained[0].progress.step == 2
    assert trained[0].config.model.dropout == 0.1


def test_sampling_variants_cost_the_weights_they_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)  # whose import takes seconds
    forms = [form for form in sampling_variants(CONFIG, CPU, 3) if "32" not in form.name]
    names = ["gpt sample", *(["gpt sample, compiled"] if library() else [])]
    assert [(form.dtype, form.name) for form in forms] == [
        ("float32", "no cache"),
        *itertools.product(("float32", "bfloat16", "int8"), names),
    ]
    D, V = 16, vocab_size_of(CONFIG)
    weights = 2 * (12 * D * D + (4 + 1 + 1) * D + 4 * D) + 2 * D + V * D  # and biases, and norms
    sizes = {"float32": 4, "bfloat16": 2, "int8": 1}
    assert [form.cost / weights for form in forms] == [sizes[form.dtype] for form in forms]
    for form in forms:
        form.run()
        assert form.num_tokens == 3


def test_the_roof_is_the_best_rate_of_any_way_and_round(monkeypatch: pytest.MonkeyPatch) -> None:
    # of the warm-up and two rounds: the way with the lower cost reaches 8 / 1 a second, the other one 12 / 2
    durations = iter([9.0, 9.0, 2.0, 2.0, 1.0, 3.0])
    now = 0.0

    def run() -> None:
        nonlocal now
        now += next(durations)

    monkeypatch.setattr(time, "perf_counter", lambda: now)
    ways = [Variant(f"{cost}", "float32", run, 1, cost, "float32") for cost in (8.0, 12.0)]
    told = []
    assert take_turns("the roof", ways, {}, 2, counting(told), of=min)[1] == {"float32": 8.0}
    assert sum(told) == len(ways) * (2 + 1)


def test_the_ways_to_the_roof_are_products_of_the_model_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_SIZE", 8)
    monkeypatch.setattr(bench, "_READ", 16)
    ways = bench.roof_variants(CONFIG, CPU)
    V = vocab_size_of(CONFIG)
    shapes = [(8, 8, 8), (64, 16, 64), (64, 64, 16), (64, 16, V)]
    products = {way.name: way.cost for way in ways if way.limit == "float32"}
    assert products == {f"{m} x {n} x {k}": 2 * m * n * k for m, n, k in shapes}
    reading = [way.name for way in ways if way.limit == READING]
    assert reading == ["sum", "product with a vector", *(["compiled product"] if library() else [])]
    assert {way.cost for way in ways if way.limit == READING} == {4 * 16 * 16}
    limits = take_turns("the roof", ways, {}, 1, NOBODY)[1]
    assert {*limits} == {"float32", "bfloat16", READING}


def test_no_share_of_the_roof_exceeds_it() -> None:
    """A variant that is faster than the measured limit is the limit."""
    forms = [
        Variant(name, "float32", lambda: time.sleep(0.001), 20, cost, READING)
        for name, cost in (("a", 3.0), ("b", 6.0))
    ]
    timings, limits = take_turns("sampling", forms, {READING: 1e-9}, 2, NOBODY)
    assert max(each.share_of_roof for each in timings) == 1
    assert limits[READING] == max(each.tokens_per_second * form.cost for each, form in zip(timings, forms, strict=True))


def test_tied_weights_are_read_too_and_short_contexts_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)  # whose import takes seconds
    tied = small_config("model.tie_embeddings=true", "model.context_length=4")
    ours, theirs = (sampling_variants(config, CPU, 2)[1] for config in (tied, CONFIG))
    assert ours.cost == theirs.cost
    ours.run()


def test_more_rounds_than_steps_do_not_train_backwards(trained: list[TrainingState]) -> None:
    *_, ours = training_variants(small_config("train.max_steps=2", "train.warmup_steps=0"), CPU)
    for _ in range(4):
        ours.run()
    assert (trained[0].progress.learning_rate or 0) > 0


def test_a_vocabulary_is_that_of_the_tokenizer() -> None:
    assert vocab_size_of(small_config("tokenizer.kind=tiktoken", "tokenizer.name=cl100k_base")) == 100_257


@pytest.mark.long  # it is imported for seconds
@pytest.mark.usefixtures("transformers")
def test_transformers_has_nothing_to_warn_of() -> None:
    (theirs, _) = (form for form in sampling_variants(CONFIG, CPU, 3) if form.name.startswith("transformers"))
    theirs.run()


def test_heads_that_do_not_divide_the_width_leave_out_transformers() -> None:
    """Its GPT-2 divides the width among the heads, and raises an error where that is impossible."""
    config = small_config("model.num_heads=3", "model.head_size=8")
    assert config.model.d_model % 3 > 0
    assert not any(form.name.startswith("transformers") for form in sampling_variants(config, CPU, 3))
