"""Tokens that a device repeats by itself, on a simulated device that records them."""

import copy
import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from support.accelerator import Accelerator
from support.simulated_graph import SimulatedGraph, give_graphs
from torch import Tensor

from gpt_cli.common.machine import devices
from gpt_cli.config import ModelConfig
from gpt_cli.errors import CheckpointError
from gpt_cli.model import GPT
from gpt_cli.sampling.decoder import Decoder
from gpt_cli.sampling.generate import generate
from gpt_cli.sampling.kv_cache import Cache, DecodeStep
from gpt_cli.sampling.next_token import Draw, SamplingParameters, draw_next
from gpt_cli.sampling.recorded import TRIAL_TOKENS, RecordedStep

SIZES = ModelConfig(context_length=16, d_model=16, num_heads=2, num_blocks=2, dropout=0.0)
PROMPTS = [[1, 2, 3, 4, 5], [6]]
NUM_TOKENS = 36  # beyond the window, three times
PENALISING = SamplingParameters(0.9, top_k=20, top_p=0.95, min_p=0.01, repetition_penalty=1.2)

Rows = list[list[Draw | None]]


@pytest.fixture(autouse=True)
def graphs(accelerator: Accelerator, monkeypatch: pytest.MonkeyPatch) -> list[SimulatedGraph]:
    """A device that records, and a clock that says that replays are faster: each reading comes later than the last."""
    clock = iter(1.3**number for number in range(2000))
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr("gpt_cli.sampling.generate.TRIAL_TOKENS", 8)  # so that short texts are worth a trial
    return give_graphs(accelerator)


def model_of(**sizes: Any) -> GPT:
    model = GPT(SIZES.model_copy(update=sizes), 30, torch.Generator().manual_seed(1)).eval()
    with torch.no_grad():
        for weight in model.parameters():  # so that tokens are not all equally probable
            weight.mul_(4)
    return model


def drawn(model: GPT, device: str, parameters: SamplingParameters = PENALISING, **options: Any) -> Rows:
    decoder = Decoder(copy.deepcopy(model).to(device), options.pop("dtype", torch.float32))
    options = {"max_new_tokens": NUM_TOKENS, "num_samples": 2, "seed": 3, "warn": pytest.fail} | options
    return list(generate(decoder, PROMPTS, parameters, **options))


def tokens(rows: Rows) -> list[list[int | None]]:
    return [[draw.token if draw else None for draw in row] for row in rows]


REFUSAL = "sim:0 cannot replay a recorded token, {}; computing each token anew, with the same result"
OTHER_NUMBERS = "because the replay gives other numbers"


def assert_refused(model: GPT, why: str = OTHER_NUMBERS) -> None:
    """The device draws the tokens of the host, after a warning that says why it does not record them."""
    warnings = list[str]()
    assert tokens(drawn(model, "sim", warn=warnings.append)) == tokens(drawn(model, "cpu"))
    assert warnings == [REFUSAL.format(why)]


@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"positions": "sinusoidal", "tie_embeddings": True, "norm_position": "post"},
        {"positions": "rope", "attention_window": (4, None)},
        {"positions": "rope", "attention": "grouped_query", "num_key_value_heads": 1, "qk_norm": True},
        {"positions": "none", "ngram_embedding": 3, "ngram_rows": 64, "activation": "swiglu"},
        {"positions": "rope", "attention": "latent", "latent_size": 4, "rotary_size": 4, "ngram_embedding": 2},
    ],
    ids=str,
)
def test_recorded_tokens_are_those_of_the_host(sizes: dict[str, Any], graphs: list[SimulatedGraph]) -> None:
    """Two samples of two prompts of different length, far beyond the window."""
    model = model_of(**sizes)
    expected, recorded = drawn(model, "cpu"), drawn(model, "sim")
    assert tokens(recorded) == tokens(expected)
    pairs = [
        (draw, other)
        for row, others in zip(recorded, expected, strict=True)
        for draw, other in zip(row, others, strict=True)
    ]
    assert all(abs(draw.log_probability - other.log_probability) < 1e-4 for draw, other in pairs if draw and other)
    assert graphs[-1].num_replays > NUM_TOKENS // 2


@pytest.mark.parametrize(("rounding", "used"), [(1.0, True), (1.01, True), (1.05, False)])
def test_products_in_bfloat16_are_recorded_if_logits_differ_as_roundings_do(
    rounding: float, used: bool, graphs: list[SimulatedGraph], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 64 rows, some draw another token where logits differ by a hundredth."""
    plain_compute, warnings = Decoder.compute, list[str]()

    def compute(self: Decoder, x: Tensor, step: DecodeStep) -> Tensor:
        return plain_compute(self, x, step) * (rounding if isinstance(step, RecordedStep) else 1)

    monkeypatch.setattr(Decoder, "compute", compute)
    options = {"dtype": torch.bfloat16, "num_samples": 32}
    rows = drawn(model_of(), "sim", SamplingParameters(), warn=warnings.append, **options)
    assert (graphs[-1].num_replays > NUM_TOKENS // 2) == used
    assert warnings == ([] if used else [REFUSAL.format(OTHER_NUMBERS)])
    equal = tokens(rows) == tokens(drawn(model_of(), "cpu", SamplingParameters(), **options))
    assert equal == (rounding != 1.01)


def test_a_device_that_draws_other_tokens_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the same logits as the host."""

    def draw_first(*arguments: Any) -> list[Tensor]:
        ids, *rest = draw_next(*arguments)
        return [0 * ids, *rest]

    monkeypatch.setattr("gpt_cli.sampling.recorded.draw_next", draw_first)
    assert_refused(model_of())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("of_keys", "of_values"), [(-1, -1), (0, 1), (1, 0)])
def test_a_graph_that_caches_other_keys_or_values_is_not_used(
    of_keys: int, of_values: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One token of many hardly shows that, so the next token may be the same."""
    plain_write, warnings = RecordedStep.write, list[str]()

    def write(self: RecordedStep, cache: Cache, slots: Tensor, new: Tensor) -> None:
        plain_write(self, cache, slots, torch.stack((of_keys * new[:, 0], of_values * new[:, 1]), dim=1))

    monkeypatch.setattr(RecordedStep, "write", write)
    rows, prompt = list[list[int | None]](), [number % 29 for number in range(60)]
    for device in ("sim", "cpu"):
        decoder = Decoder(model_of(positions="rope", context_length=64).to(device), dtype)
        steps = generate(decoder, [prompt], SamplingParameters(0), max_new_tokens=20, warn=warnings.append)
        rows += tokens(list(steps))
    assert warnings == [REFUSAL.format(OTHER_NUMBERS)]
    assert rows[:20] == rows[20:]


def test_a_graph_that_writes_to_another_slot_too_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the host continues without what it wrote there."""
    plain_write = RecordedStep.write

    def write(self: RecordedStep, cache: Cache, slots: Tensor, new: Tensor) -> None:
        plain_write(self, cache, slots, new)
        slots[..., 1, :] = 100

    monkeypatch.setattr(RecordedStep, "write", write)
    assert_refused(model_of(positions="rope"))


def test_the_host_neither_waits_nor_sends_anything_for_a_recorded_token(accelerator: Accelerator) -> None:
    decoder = Decoder(model_of(positions="rope").to("sim"))
    steps = generate(decoder, PROMPTS, PENALISING, max_new_tokens=NUM_TOKENS)
    started = list[str]()
    accelerator.listeners.append(lambda op, *_: started.append(str(op)))
    counts = [(len(accelerator.syncs), len(accelerator.copies.to_device), len(started)) for _ in steps]
    waits, copies, work = zip(*counts, strict=True)
    assert waits[0] < waits[2] < waits[3] == waits[-1]  # the trials are at the third and fourth token
    assert copies[3] == copies[-1]
    assert work[5] == work[4]
    assert work[1] - work[0] > 100  # what one graph replaces


def test_one_graph_serves_all_tokens(graphs: list[SimulatedGraph]) -> None:
    """Caches have room for all of them from the start."""
    drawn(model_of(positions="rope"), "sim")
    _, graph = graphs  # the first tries what the device can do
    assert graph.num_replays == 2 * 2 + NUM_TOKENS - 4 + 1  # two trials, and one that nobody reads


def test_a_graph_that_freezes_its_step_is_not_used(
    graphs: list[SimulatedGraph], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It repeats the step that it recorded, so only the next one can show that its slot is frozen."""

    def record_graph(device: torch.device, work: Callable[[], None]) -> Any:
        freezes[0] = True
        return devices.record_graph(device, work)

    freezes, last_slots = [False], list[dict[int, Tensor]]()

    def compute(self: Decoder, x: Tensor, step: DecodeStep) -> Tensor:
        if isinstance(step, RecordedStep):
            if freezes[0]:
                step, freezes[0] = replace(step, slots=last_slots[-1]), False
            else:
                last_slots.append({reach: slot.clone() for reach, slot in step.slots.items()})
        return plain_compute(self, x, step)

    plain_compute = Decoder.compute
    monkeypatch.setattr(Decoder, "compute", compute)
    monkeypatch.setattr("gpt_cli.sampling.recorded.record_graph", record_graph)
    assert_refused(model_of(positions="rope"))
    assert graphs[-1].num_replays == 4


def test_an_error_in_a_trial_changes_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes after the last of three ways to compute a token has changed all that changes."""
    calls = itertools.count(1)

    def synchronize(device: torch.device) -> None:
        if next(calls) == 12:  # of six for the recorded token, and six for the next one
            raise RuntimeError("out of memory")

    monkeypatch.setattr("gpt_cli.sampling.recorded.synchronize", synchronize)
    assert_refused(model_of(positions="rope"), '"out of memory"')


def test_uniform_numbers_do_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpt_cli.sampling.next_token._AHEAD", 7)
    model = model_of()
    assert tokens(drawn(model, "sim")) == tokens(drawn(model, "cpu"))


def test_a_row_ends_where_the_host_ends_it(graphs: list[SimulatedGraph]) -> None:
    model = model_of()
    whole = tokens(drawn(model, "cpu"))
    end = whole[20][0]
    for device in ("cpu", "sim"):
        assert tokens(drawn(model, device, end_of_text=end)) == tokens(drawn(model, "cpu", end_of_text=end))
        assert len(drawn(model, device, done=lambda row: True)) == 1
    assert graphs


def test_a_prompt_that_fills_the_window_is_recorded_after_it(graphs: list[SimulatedGraph]) -> None:
    decoder, prompt = Decoder(model_of().to("sim")), list(range(14))
    assert len(list(generate(decoder, [prompt], PENALISING, max_new_tokens=24, warn=pytest.fail))) == 24
    assert graphs[-1].num_replays > 10


@pytest.mark.parametrize("count", [1, 3, TRIAL_TOKENS + 2])
def test_a_short_text_is_not_worth_a_trial(
    count: int, graphs: list[SimulatedGraph], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpt_cli.sampling.generate.TRIAL_TOKENS", TRIAL_TOKENS)
    assert len(drawn(model_of(), "sim", max_new_tokens=count)) == count
    assert not graphs


@pytest.mark.parametrize("slow", [1, 2], ids=["the recorded token", "the next one"])
def test_a_slower_graph_is_not_used(slow: int, graphs: list[SimulatedGraph], monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial reads the clock eight times: three times two for the token, and two for the host."""
    clock = iter(number**2 if number < 8 * (slow - 1) else 10**9 + number**0.5 for number in range(10**6))
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    model = model_of()
    assert tokens(drawn(model, "sim")) == tokens(drawn(model, "cpu"))
    assert graphs[-1].num_replays == 2 * slow


def waits(decoder: Decoder) -> None:
    compute = decoder.compute
    decoder.compute = lambda x, step: compute(x * (1 if x.sum().item() else 2), step)  # type: ignore[method-assign]


def gives_no_numbers(decoder: Decoder) -> None:
    compute = decoder.compute
    decoder.compute = lambda x, step: compute(x, step) * (torch.nan if isinstance(step, RecordedStep) else 1)  # type: ignore[method-assign]


def counts_on_the_host(decoder: Decoder) -> None:
    compute, calls = decoder.compute, iter(range(10**6))
    decoder.compute = lambda x, step: compute(x + 0 * next(calls), step) * (1 + next(calls))  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (waits, '"operation not permitted when stream is capturing"'),
        (counts_on_the_host, OTHER_NUMBERS),
        (gives_no_numbers, OTHER_NUMBERS),
    ],
)
def test_a_token_that_cannot_be_repeated_is_computed_each_time(spoil: Callable[[Decoder], None], why: str) -> None:
    decoder, warnings = Decoder(model_of().to("sim")), list[str]()
    spoil(decoder)
    assert len(list(generate(decoder, [[1, 2]], PENALISING, max_new_tokens=20, warn=warnings.append))) == 20
    assert warnings == [REFUSAL.format(why)]


def test_no_trial_follows_where_all_rows_have_ended(graphs: list[SimulatedGraph]) -> None:
    third = tokens(drawn(model_of(), "cpu", num_samples=1))[2]
    decoder = Decoder(model_of().to("sim"))
    steps = generate(decoder, PROMPTS, PENALISING, max_new_tokens=20, seed=3, done=lambda row: len(rows) == 3)
    rows = list[list[Draw | None]]()
    for row in steps:
        rows.append(row)
    assert tokens(rows)[2] == third
    assert graphs[-1].num_replays == 2


def test_logits_that_are_not_finite_are_noticed_as_on_the_host() -> None:
    model = model_of(positions="rope").to("sim")
    decoder = Decoder(model)
    steps = generate(decoder, [[1, 2]], PENALISING, max_new_tokens=30, warn=pytest.fail)
    for _ in range(6):
        next(steps)
    with torch.no_grad():
        norm: Tensor = next(decoder.final_norm.parameters())
        norm[0] = torch.nan
    with pytest.raises(CheckpointError, match="logits that are not finite"):
        list(steps)
