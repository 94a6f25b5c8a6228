"""The choice of a kernel for attention with dropout and of a compiled loss, on a simulated device; twins in torch."""

import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.accelerator import Accelerator, on_cpu
from support.attention import by_products
from support.helpers import CORPUS_TEXT, small_config
from support.simulated_graph import SimulatedGraph, give_graphs
from torch import Tensor

from gpt_cli.checkpoints.checkpoint import read_checkpoint
from gpt_cli.common.host import Host
from gpt_cli.model.dropout import DropMasks
from gpt_cli.training import kernel_trials, step_time
from gpt_cli.training.cuda_graphs import record_step
from gpt_cli.training.kernel_trials import choose_kernels, compare_with_plain
from gpt_cli.training.loop import train_whole
from gpt_cli.training.request import Plan
from gpt_cli.training.resume import environment
from gpt_cli.training.state import TrainingState
from gpt_cli.training.step import take_step
from gpt_cli.training.step_time import time_steps
from gpt_cli.training.validation import cross_entropy


class Twin:
    """A kernel that draws the mask itself, and counts its calls."""

    def __init__(self, scale_of_output: float = 1.0) -> None:
        self.num_calls, self.scale_of_output = 0, scale_of_output

    def __call__(self, queries: Tensor, keys: Tensor, values: Tensor, masks: DropMasks, scale: float) -> Tensor:
        self.num_calls += 1
        return by_products(queries, keys, values, masks, scale) * self.scale_of_output


def of_half_a_key(queries: Tensor, keys: Tensor, values: Tensor, masks: DropMasks, scale: float) -> Tensor:
    """A kernel that draws masks from the upper half of each key alone."""
    assert isinstance(masks.keys, Tensor)
    upper = masks.keys * torch.tensor([0, 1], dtype=torch.int32, device=masks.keys.device)
    return by_products(queries, keys, values, masks._replace(keys=upper), scale)


def scaled_gradient(factors: Tensor) -> Callable[..., Tensor]:
    """Return a kernel with the right output, whose gradient of the values is multiplied by `factors`."""

    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, values: Tensor) -> Tensor:
            return values.clone()

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Tensor:
            return gradients[0] * factors.to(gradients[0])

    def kernel(queries: Tensor, keys: Tensor, values: Tensor, masks: DropMasks, scale: float) -> Tensor:
        return by_products(queries, keys, Scale.apply(values), masks, scale)

    return kernel


def broken(*_: object, **__: object) -> Tensor:
    raise OSError("no compiler")  # whatever Triton raises


@pytest.fixture
def install(accelerator: Accelerator, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make a kernel the one that Triton would give, and `loss` the compiled one; by the clock, each plain form takes 1 s.

    A graph takes as long as what it has recorded.
    """
    give_graphs(accelerator)
    recordings: list[SimulatedGraph] = []

    def install(
        kernel: Callable[..., Tensor],
        seconds: float,
        compiled_seconds: float = 1.0,
        loss: Callable[..., Tensor] = cross_entropy,
        loss_seconds: float = 1.0,
    ) -> None:
        now, more = [0.0], dict[SimulatedGraph, float]()
        enter, leave, replay = SimulatedGraph.__enter__, SimulatedGraph.__exit__, SimulatedGraph.replay

        def entered(graph: SimulatedGraph) -> None:
            recordings.append(graph)
            enter(graph)

        def left(graph: SimulatedGraph, *error: Any) -> None:
            recordings.remove(graph)
            leave(graph, *error)

        def replayed(graph: SimulatedGraph) -> None:
            now[0] += more.get(graph, 0.0)
            replay(graph)

        for name, way in (("__enter__", entered), ("__exit__", left), ("replay", replayed)):
            monkeypatch.setattr(SimulatedGraph, name, way)

        def compiled(function: Callable[..., Tensor], **_: bool) -> Callable[..., Tensor]:
            return timed(loss, loss_seconds) if function is cross_entropy else timed(function, compiled_seconds)

        def timed(function: Callable[..., Tensor], seconds: float) -> Callable[..., Tensor]:
            def call(*arguments: object, **named: object) -> Tensor:
                if recordings:
                    more[recordings[-1]] = seconds - 1
                return function(*arguments, **named)

            return call

        def read() -> float:
            now[0] += 1
            return now[0]

        monkeypatch.setattr(time, "perf_counter", read)
        monkeypatch.setattr(torch, "compile", compiled)
        monkeypatch.setattr(kernel_trials, "find_spec", lambda name: SimpleNamespace(name=name))
        module = SimpleNamespace(dropout_attention=timed(kernel, seconds))
        monkeypatch.setitem(sys.modules, "gpt_cli.model.triton_attention", module)

    return install


def state_on(device: str, *settings: str, vocab_size: int = 257) -> TrainingState:
    ids = np.random.default_rng(0).integers(257, size=2000)
    config = small_config("model.dropout=0.3", "train.compile=off", "train.learning_rate=0.0078125", *settings)
    return TrainingState.at_the_start(config.changed(train={"device": device}), ids, vocab_size)


def record(state: TrainingState, warn: Callable[[str], object]) -> float | None:
    choose_kernels(state, warn)
    return record_step(state, warn)


def continued(*settings: str, **choices: str) -> TrainingState:
    """A training that goes on at step 3, for which an earlier process had made these choices."""
    state = state_on("sim", *settings)
    state.progress = replace(state.progress, step=3, environment=environment(state.config) | choices)
    return state


def assert_same_after_two_steps(one: TrainingState, other: TrainingState) -> None:
    for state in (one, other):
        for _ in range(2):
            take_step(state)
    pairs = zip(one.optimizer.changing(), other.optimizer.changing(), strict=True)
    assert all(torch.equal(*map(on_cpu, pair)) for pair in pairs)


def kernels(state: TrainingState) -> list[bool]:
    return [block.attention.kernel is not None for block in state.model.blocks]


def test_a_faster_kernel_that_agrees_trains_to_the_same_weights(install: Callable[..., None]) -> None:
    """The twin has the bits of the plain form, and its mask comes from the same keys in the recorded step too."""
    twin = Twin()
    install(twin, 0.5)
    by_kernel, plain = state_on("sim"), state_on("sim", "train.graph=off")
    assert record(by_kernel, pytest.fail)
    assert kernels(by_kernel) == [True, True]
    assert by_kernel.progress.environment["attention"] == "triton"
    calls = twin.num_calls
    assert calls > 4  # of the trial and of the recording
    record(plain, pytest.fail)
    plain.model.use_kernel(None)
    assert_same_after_two_steps(by_kernel, plain)


@pytest.mark.parametrize(
    ("kernel", "seconds"),
    [
        (Twin(), 0.9),
        (Twin(1.01), 0.1),
        (of_half_a_key, 0.1),
        (broken, 0.1),
        (lambda *_: torch.full((), torch.nan), 0.1),
    ],
    ids=["hardly faster", "wrong", "another mask", "fails", "not a number"],
)
def test_a_slow_or_wrong_kernel_is_not_used(
    install: Callable[..., None], kernel: Callable[..., Tensor], seconds: float
) -> None:
    install(kernel, seconds)
    state = state_on("sim")
    choose_kernels(state, pytest.fail)
    assert kernels(state) == [False, False]
    assert "attention" not in state.progress.environment


@pytest.mark.parametrize(
    "settings",
    [
        ["train.graph=off"],
        ["model.dropout=0"],
        ["model.context_length=15"],  # the kernel draws masks by pairs of tokens
        ["model.attention=latent", "model.latent_size=4", "model.positions=rope", "model.rotary_size=4"],
    ],
    ids=["steps that no graph replays", "no dropout", "an odd context", "keys wider than values"],
)
def test_a_training_for_which_the_kernel_is_not_made_tries_none(
    install: Callable[..., None], settings: list[str]
) -> None:
    twin = Twin()
    install(twin, 0.1)
    choose_kernels(state_on("sim", *settings), pytest.fail)
    assert twin.num_calls == 0


def test_a_kernel_whose_gradients_are_wrong_for_the_last_tokens_is_found_out() -> None:
    """These are small: few queries attend to the last keys and values."""
    for factor, agrees in ((1.0, True), (0.5, False)):
        factors = torch.ones(1024, 1)
        factors[-128:] = factor
        shape, cpu = (1, 1, 1024, 16), torch.device("cpu")
        result, *_ = compare_with_plain(scaled_gradient(factors), shape, "bfloat16", cpu, 0.1)
        assert result == agrees


@pytest.mark.parametrize(
    ("compiles", "num_steps", "seconds", "used"),
    [
        ("auto", 30, 0.9, True),
        ("auto", 30, None, False),
        ("off", 30, 0.9, True),
        ("off", 30, 1.1, False),
        ("auto", 19, 0.9, False),  # of less than twenty seconds, no kernel is compiled
        ("off", 19, 0.9, False),
    ],
)
def test_a_kernel_stays_only_if_whole_steps_are_replayed_and_not_slower_with_it_in_a_long_training(
    install: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    compiles: str,
    num_steps: int,
    seconds: float | None,
    used: bool,
) -> None:
    """A graph of a step takes 1 s without the kernel; alone, the kernel takes a tenth of the time."""
    twin = Twin()
    install(twin, 0.1)
    monkeypatch.setattr(step_time, "record_step", lambda state, _: seconds if any(kernels(state)) else 1.0)
    state = state_on("sim", f"train.compile={compiles}", f"train.max_steps={num_steps}")
    time_steps(state, Host(warn=pytest.fail), may_compile=True, must_compile=False)
    assert kernels(state) == [used, used]
    assert ("attention" in state.progress.environment) == used
    assert (twin.num_calls > 0) == (num_steps == 30)


def test_a_run_that_continues_keeps_its_kernel_where_nothing_compiles(
    install: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its trial compares results alone, so it needs no compiled attention."""
    install(Twin(), 0.1)
    monkeypatch.setattr(torch, "compile", broken)
    state = continued(attention="triton")
    state.config = state.config.changed(train={"compile": "on"})
    choose_kernels(state, pytest.fail)
    assert kernels(state) == [True, True]


def test_blocks_with_a_window_stay_plain(install: Callable[..., None]) -> None:
    install(Twin(), 0.1)
    state = state_on("sim", "model.attention_window=[4,null]")
    choose_kernels(state, pytest.fail)
    assert kernels(state) == [False, True]


@pytest.mark.parametrize(("used", "seconds"), [(True, 9.0), (False, 0.1)])
def test_a_run_that_continues_does_as_it_did_before(install: Callable[..., None], used: bool, seconds: float) -> None:
    """Whatever the clock says now, since other kernels give other digits."""
    install(Twin(), seconds)
    state = continued(**({"attention": "triton"} if used else {}))
    choose_kernels(state, pytest.fail)
    assert kernels(state) == [used, used]


@pytest.mark.parametrize("compiles", ["off", "on"])
def test_a_run_that_continues_without_its_kernel_says_so(install: Callable[..., None], compiles: str) -> None:
    install(broken, 0.1)
    state, warnings = continued(f"train.compile={compiles}", attention="triton"), list[str]()
    choose_kernels(state, warnings.append)
    assert warnings == ["not bit-exact from here on: attention triton -> plain"]
    assert state.progress.environment == environment(state.config)


def test_compiled_blocks_use_a_kernel_that_beats_compiled_attention(install: Callable[..., None]) -> None:
    """Plain attention would take 1 s, the kernel 0.45: 0.6 / 0.45 is more than 1.15."""
    twin = Twin()
    install(twin, 0.45, compiled_seconds=0.6)
    by_kernel, plain = state_on("sim", "train.compile=on"), state_on("sim", "train.compile=on", "train.graph=off")
    time_steps(by_kernel, Host(warn=pytest.fail), may_compile=True, must_compile=True)
    assert kernels(by_kernel) == [True, True]
    assert "attention" in by_kernel.progress.environment
    assert twin.num_calls > 4  # of the trial are 4
    assert_same_after_two_steps(by_kernel, plain)


def test_a_new_run_whose_blocks_are_compiled_after_a_trial_tries_again(install: Callable[..., None]) -> None:
    """0.5 / 0.45 is less than 1.15."""
    install(Twin(), 0.45, compiled_seconds=0.5)
    state = state_on("sim")
    choose_kernels(state, pytest.fail)
    assert kernels(state) == [True, True]
    state.compile_blocks(True)
    choose_kernels(state, pytest.fail)
    assert kernels(state) == [False, False]
    assert state.progress.environment == environment(state.config)


def wrong_loss(logits: Tensor, targets: Tensor) -> Tensor:
    return 1.01 * cross_entropy(logits, targets)


def loss_of_targets_alone(logits: Tensor, targets: Tensor) -> Tensor:
    """The right loss, whose gradient lacks all small numbers: those of logits that are not targets."""
    others = torch.ones_like(logits).scatter(-1, targets[..., None], 0.0).bool()
    return cross_entropy(torch.where(others, logits.detach(), logits), targets)


def num_compiled_losses(state: TrainingState) -> int:
    """Take a step; return for how many of its micro-batches the compiled loss was computed."""
    chosen, calls = state.cross_entropy, list[Tensor]()
    if chosen is not cross_entropy:
        state.cross_entropy = lambda *arguments: calls.append(arguments[0]) or chosen(*arguments)
    take_step(state)
    return len(calls)


@pytest.mark.parametrize(
    ("compiles", "loss", "seconds", "used"),
    [
        ("on", cross_entropy, 0.8, True),
        ("on", cross_entropy, 0.9, False),
        ("on", wrong_loss, 0.1, False),
        ("on", broken, 0.1, False),
        ("off", cross_entropy, 0.1, False),
    ],
    ids=["faster", "hardly faster", "wrong", "fails", "blocks are not compiled"],
)
def test_a_compiled_loss_is_used_where_it_agrees_and_is_faster(
    install: Callable[..., None], compiles: str, loss: Callable[..., Tensor], seconds: float, used: bool
) -> None:
    install(broken, 0.1, loss=loss, loss_seconds=seconds)
    state = state_on("sim", f"train.compile={compiles}")
    choose_kernels(state, pytest.fail)
    assert state.progress.environment.get("loss") == ("compiled" if used else None)
    assert num_compiled_losses(state) == (state.config.train.num_micro_batches if used else 0)


@pytest.mark.parametrize(("loss", "used"), [(cross_entropy, True), (loss_of_targets_alone, False)])
def test_a_compiled_loss_in_bfloat16_needs_its_small_gradients_too(
    install: Callable[..., None], loss: Callable[..., Tensor], used: bool
) -> None:
    """Those of 4,096 logits are 1 / 4,096 of the largest on average."""
    install(broken, 0.1, loss=loss, loss_seconds=0.1)
    state = state_on("sim", "train.compile=on", "train.dtype=bfloat16", vocab_size=4096)
    choose_kernels(state, pytest.fail)
    assert ("loss" in state.progress.environment) == used


def test_a_compiled_loss_needs_room_for_the_logits_once_more(
    install: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sequences of 16 tokens and 257 logits each, in float32, beside what the training is estimated to take."""
    install(broken, 0.1, loss_seconds=0.1)
    state = state_on("sim", "train.compile=on")
    needed = state.costs.training_bytes + state.config.train.sequences_at_once * 16 * 257 * 4
    needed -= sum(tensor.nbytes for tensor in state.optimizer.changing())  # is allocated
    for free, used in ((needed - 1, False), (needed, True)):
        monkeypatch.setattr(kernel_trials, "free_memory", lambda _, free=free: free)
        choose_kernels(state, pytest.fail)
        assert ("loss" in state.progress.environment) == used


@pytest.mark.parametrize(("loss", "warning"), [(cross_entropy, []), (broken, ["loss compiled -> plain"])])
def test_a_run_that_continues_keeps_its_compiled_loss_or_says_that_it_cannot(
    install: Callable[..., None], loss: Callable[..., Tensor], warning: list[str]
) -> None:
    install(broken, 0.1, loss=loss, loss_seconds=9.0)
    state, warnings = continued("train.compile=on", loss="compiled"), list[str]()
    choose_kernels(state, warnings.append)
    assert warnings == [f"not bit-exact from here on: {line}" for line in warning]
    assert state.progress.environment == environment(state.config) | ({} if warning else {"loss": "compiled"})


def test_a_stop_before_a_step_keeps_the_record_of_a_loss_that_fails(
    accelerator: Accelerator, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the run would go on with the plain loss once all is well again, and say nothing."""
    give_graphs(accelerator)
    monkeypatch.setattr(kernel_trials, "_FASTER", 0.0)
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    Path("a.txt").write_text(CORPUS_TEXT[:600], encoding="utf-8")
    small = ("data.source=a.txt", "model.num_blocks=1", "train.sample_every=null")
    config = small_config(*small, "train.compile=on").changed(train={"device": "sim"})
    plan, step_4 = Plan(directory=Path("run"), config=config), Path("run/checkpoints/step-00000004.safetensors")

    def record_after(plan: Plan, stop: Callable[[], int | None]) -> tuple[int, str | None, list[str]]:
        warnings = list[str]()
        list(train_whole(plan, Host(stop=stop, warn=warnings.append)))
        newest = read_checkpoint(max(Path("run/checkpoints").glob("step-*")))
        return newest.progress.step, newest.progress.environment.get("loss"), warnings

    assert record_after(plan, lambda: signal.SIGINT if step_4.exists() else None) == (4, "compiled", [])
    monkeypatch.setattr(torch, "compile", lambda function, **_: broken if function is cross_entropy else function)
    warning = "not bit-exact from here on: loss compiled -> plain"
    assert record_after(replace(plan, resume=True), lambda: signal.SIGINT) == (4, "compiled", [warning])
