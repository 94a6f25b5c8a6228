"""Steps that a device repeats by itself, on a simulated device that records them."""

import gc
import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from support.accelerator import Accelerator, on_cpu
from support.helpers import CORPUS_TEXT, run_command, small_config
from support.simulated_graph import SimulatedGraph, give_graphs
from torch import Tensor, nn

from gpt_cli.common.machine.devices import supports
from gpt_cli.config import Config
from gpt_cli.distributed.collectives import Ranks
from gpt_cli.model import GPT
from gpt_cli.model.dropout import drop_keys
from gpt_cli.text.chat_templates import plain_template
from gpt_cli.text.conversations import Conversation, Turn
from gpt_cli.text.sft_examples import gather
from gpt_cli.text.token_files import TokenWriter
from gpt_cli.text.tokenizers import ByteTokenizer
from gpt_cli.training.cuda_graphs import WholeStep, record_step
from gpt_cli.training.state import TrainingState
from gpt_cli.training.step import Diverged, read_outcomes, send, take_step

# rates of which float32 knows every share, so that a device takes the same steps as a CPU, to the bit
RATES = ("train.learning_rate=0.0078125", "train.muon_learning_rate=0.0625", "train.warmup_steps=2")
SIZES = ("model.num_blocks=1", "model.dropout=0.3", "train.micro_batch_size=2", "train.max_steps=4")


def config(device: str, *settings: str) -> Config:
    return small_config(*RATES, *SIZES, "train.compile=off", *settings).changed(train={"device": device})


def state_on(device: str, *settings: str) -> TrainingState:
    ids = np.random.default_rng(0).integers(257, size=2000)
    return TrainingState.at_the_start(config(device, *settings), ids, 257)


def bits(state: TrainingState) -> list[Tensor]:
    """What four more steps leave."""
    for _ in range(4):
        take_step(state)
    return [on_cpu(tensor).detach() for tensor in state.optimizer.changing()]


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(map(torch.equal, one, other))


@pytest.mark.parametrize("setting", ["train.optimizer=muon", "train.rank=2"])
def test_a_repeated_step_has_the_bits_of_the_cpu(accelerator: Accelerator, setting: str) -> None:
    """Dropout, two micro-batches, and a rate that rises and falls; the host waits for the step before alone, and copies once."""
    graphs = give_graphs(accelerator)
    expected = bits(state_on("cpu", setting))
    repeated, computed = state_on("sim", setting), state_on("sim", setting, "train.graph=off")
    assert record_step(repeated, pytest.fail)
    assert record_step(computed, pytest.fail) is None
    for state in (repeated, computed):
        waits, copies = len(accelerator.syncs), len(accelerator.copies.to_device)
        assert same(bits(state), expected)
        assert len(accelerator.syncs) == waits
        assert len(accelerator.copies.to_device) == copies + 4
    assert [graph.num_replays for graph in graphs] == [1, 2 + 4]  # of one number, and of the step, twice to try it


def test_compiled_blocks_are_sent_the_keys_of_dropout(
    accelerator: Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By numbers of the host they would be compiled anew in each step."""
    monkeypatch.setattr(GPT, "compile_blocks", lambda model: model)  # which would start a compiler
    state = state_on("sim", "train.compile=on")
    _, found = send(state, 3)
    expected = drop_keys(state.config.train.seed, 3, state.config.model.num_blocks)
    assert isinstance(found, Tensor)
    assert np.array_equal(on_cpu(found).numpy().view(np.uint64)[..., 0], expected)
    for device, settings in (
        ("sim", ["train.compile=on", "model.dropout=0"]),
        ("cpu", ["train.compile=on"]),
        ("sim", []),
    ):
        assert isinstance(send(state_on(device, *settings), 3)[1], np.ndarray)


@pytest.mark.parametrize("setting", ["train.graph=off", "train.micro_batch_size=4"], ids=["whole step", "step"])
def test_a_training_that_is_over_leaves_its_memory_without_the_garbage_collector(
    accelerator: Accelerator, setting: str
) -> None:
    """No lack of memory on a device calls the collector of Python."""
    give_graphs(accelerator)
    left, took = [], 0
    for _ in range(2):  # the first one tries what the device can do
        gc.collect()
        gc.disable()
        try:
            state = state_on("sim", setting)
            if "graph" in setting:
                record_step(state, pytest.fail)
            take_step(state)
            took = torch.accelerator.memory_allocated("sim")
            del state
            left.append(torch.accelerator.memory_allocated("sim"))
        finally:
            gc.enable()
    assert took > left[1] + 50_000
    assert left[1] == left[0]


def test_tokens_of_the_disk_and_answers_reach_a_repeated_step(accelerator: Accelerator, tmp_path: Path) -> None:
    """Answers in windows with several examples, and another number of them in each step."""
    graphs = give_graphs(accelerator)
    writer = TokenWriter(tmp_path, np.uint16)
    writer.add(np.random.default_rng(0).integers(257, size=2000).astype(np.uint16))
    pairs = [Conversation((Turn("user", f"{n}"), Turn("assistant", f"{n * n}"))) for n in range(1, 99)]
    for text in (writer.finish({}), gather(pairs, ByteTokenizer(), plain_template(), 16)):
        expected, repeated = (TrainingState.at_the_start(config(device), text, 257) for device in ("cpu", "sim"))
        assert record_step(repeated, pytest.fail)
        assert same(bits(repeated), bits(expected))
        assert graphs[-1].num_replays == 2 + 4


def test_a_repeated_step_that_diverges_is_noticed_as_any_other(accelerator: Accelerator) -> None:
    give_graphs(accelerator)
    state = state_on("sim")
    assert record_step(state, pytest.fail)
    take_step(state)
    with torch.no_grad():
        state.model.final_norm.weight[0] = torch.inf
    take_step(state)
    take_step(state)
    with pytest.raises(Diverged) as found:
        read_outcomes(state)
    assert found.value.step == 2


class Two(Ranks):
    """One of two processes."""

    size = 2


def spoiled(state: TrainingState, spoil: Callable[[Tensor], Tensor]) -> TrainingState:
    """A training whose logits something changes."""

    def hook(_module: nn.Module, _inputs: object, logits: Tensor) -> Tensor:
        return spoil(logits)

    state.model.register_forward_hook(hook)
    return state


def growing(share: float) -> Callable[[Tensor], Tensor]:
    """Makes logits larger at each call, which it counts on the host."""
    calls = itertools.count()
    return lambda logits: logits * (1 + share * next(calls))


WAITS = "operation not permitted when stream is capturing"


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda logits: logits * (1 if logits.sum().item() else 2), f'"{WAITS}"'),
        (lambda logits: logits + torch.ones(257).to("sim"), f'"{WAITS}"'),
        (growing(1.0), "because the replay gives other numbers"),
    ],
    ids=["reads a number", "copies one", "counts on the host"],
)
def test_a_step_that_cannot_be_repeated_is_computed_each_time(
    accelerator: Accelerator, spoil: Callable[[Tensor], Tensor], why: str
) -> None:
    give_graphs(accelerator)
    state, warnings = spoiled(state_on("sim"), spoil), list[str]()
    before = [on_cpu(tensor) for tensor in state.optimizer.changing()]
    assert record_step(state, warnings.append) is None
    assert warnings == [f"sim:0 cannot replay a recorded step, {why}; computing each step anew, with the same result"]
    assert same([on_cpu(tensor) for tensor in state.optimizer.changing()], before)
    take_step(state)
    read_outcomes(state)
    assert state.progress.step == 1


@pytest.mark.parametrize("rate_is_recorded", [False, True])
def test_a_step_with_other_bits_each_time_is_repeated_as_nearly_as_it_is_computed(
    accelerator: Accelerator, monkeypatch: pytest.MonkeyPatch, rate_is_recorded: bool
) -> None:
    """As flash kernels give them; a rate of another step is still noticed."""
    give_graphs(accelerator)
    state, warnings = spoiled(state_on("sim", "model.dropout=0"), growing(1e-6)), list[str]()
    if rate_is_recorded:
        step = state.optimizer.step
        monkeypatch.setattr(state.optimizer, "step", lambda share: step(share if calls.pop() else 1.0))
        calls = [False] + [True] * 6  # three times two steps, then what is recorded; from the end
    record_step(state, warnings.append)
    assert [line.split(", ")[1].split(";")[0] for line in warnings] == (
        ["because the replay gives other numbers"] if rate_is_recorded else []
    )


def test_a_graph_that_forgets_the_step_before_is_not_used(
    accelerator: Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each replay updates the weights of step 0, so that the first one alone is right."""
    give_graphs(accelerator)
    state, warnings, calls = state_on("sim"), list[str](), itertools.count()
    step, weight = state.optimizer.step, state.optimizer.changing()[0]
    at_first = weight.detach().clone()

    def forgetful(share: Tensor) -> None:
        is_recorded, before = next(calls) == 6, weight.detach().clone()
        step(share)
        if is_recorded:
            with torch.no_grad():
                weight.copy_(at_first + (weight - before))

    monkeypatch.setattr(state.optimizer, "step", forgetful)
    assert record_step(state, warnings.append) is None
    assert "because the replay gives other numbers" in warnings[0]


def test_the_host_stays_one_repeated_step_ahead(accelerator: Accelerator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the rate by the clock, the limit of time and signals would be those of the last log line."""
    give_graphs(accelerator)
    state, said = state_on("sim"), list[str]()
    record_step(state, pytest.fail)
    assert isinstance(state.whole_step, WholeStep)
    state.whole_step._replayed = None

    class Noted:
        made = 0

        def __init__(self, _: object):
            Noted.made += 1
            self.number = Noted.made

        def record(self) -> None:
            said.append(f"end of {self.number}")

        def synchronize(self) -> None:
            said.append(f"wait for {self.number}")

    monkeypatch.setattr(torch, "Event", Noted)
    for _ in range(3):
        take_step(state)
    assert said == ["end of 1", "end of 2", "wait for 1", "end of 3", "wait for 2"]


def test_a_slower_graph_is_not_used(accelerator: Accelerator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its replays take a second each; without it, no step does."""
    graphs, state, replay = give_graphs(accelerator), state_on("sim"), SimulatedGraph.replay
    seconds = [0.0]

    def slow(graph: SimulatedGraph) -> None:
        seconds[0] += 1
        replay(graph)

    monkeypatch.setattr(SimulatedGraph, "replay", slow)
    monkeypatch.setattr("gpt_cli.training.cuda_graphs.time", SimpleNamespace(perf_counter=lambda: seconds[0]))
    assert record_step(state, pytest.fail) is None
    replays = graphs[-1].num_replays
    take_step(state)
    assert graphs[-1].num_replays == replays == 2


@pytest.mark.parametrize("share", [0.5, 1.01], ids=["a copy of the weights", "a step"])
def test_without_memory_to_try_it_the_training_takes_ordinary_steps(accelerator: Accelerator, share: float) -> None:
    """The device has more than the training holds, by this share of the weights and moments."""
    give_graphs(accelerator)
    state, warnings = state_on("sim"), list[str]()
    changing = state.optimizer.changing()
    before = [on_cpu(tensor) for tensor in changing]
    assert supports(state.device, "graphs")
    accelerator.resize(accelerator.pools[0].allocated + int(share * sum(tensor.nbytes for tensor in changing)))
    assert record_step(state, warnings.append) is None
    assert "sim out of memory" in warnings[0]
    assert same([on_cpu(tensor) for tensor in changing], before)
    accelerator.resize(2**30)
    assert same(bits(state), bits(state_on("sim", "train.graph=off")))


def test_devices_without_graphs_and_many_processes_take_ordinary_steps(accelerator: Accelerator) -> None:
    for state in (state_on("sim"), state_on("cpu")):
        assert record_step(state, pytest.fail) is None
        assert state.whole_step is None
    give_graphs(accelerator)
    supports.cache_clear()
    state = state_on("sim")
    state.layout.ranks = Two()
    assert record_step(state, pytest.fail) is None
    assert state.whole_step is None


def train_on_and_off(*words: str) -> None:
    """Train four steps in a run `on`, and in a run `off` that replays no graph."""
    Path("text.txt").write_text(CORPUS_TEXT[:600])
    words += ("model.dropout=0.2", "model.num_blocks=1", "model.context_length=16", "data.source=text.txt")
    for name, graph in (("on", "auto"), ("off", "off")):
        flags = [flag for word in (*words, f"train.graph={graph}") for flag in ("--set", word)]
        run_command("train", "--config", "smoke", "--device", "sim", "--max-steps", "4", "--out", name, *flags, exits=0)


def test_a_whole_training_ends_the_same_with_repeated_steps(accelerator: Accelerator, here: Path) -> None:
    """Evaluations, samples, snapshots and a start from a checkpoint see the weights that the graph has changed."""
    graphs = give_graphs(accelerator)
    periods = [f"{what}every=2" for what in ("train.eval_", "train.sample_", "train.save_", "inspect.")]
    train_on_and_off(*periods, "inspect.prompt=The value")
    assert 2 + 4 in [graph.num_replays for graph in graphs]
    files = sorted(path.relative_to("on") for path in Path("on").rglob("*.safetensors"))
    assert len(files) > 3
    stopped = Path(shutil.copytree("on", "stopped"))
    for path in stopped.glob("checkpoints/*4.safetensors"):
        path.unlink()
    run_command("train", "--out", "stopped", "--resume", "--device", "sim", exits=0)
    assert 2 + 2 in [graph.num_replays for graph in graphs]
    for name in ("off", "stopped"):
        for file in files:
            ours, others = (load_file(Path(folder) / file) for folder in ("on", name))
            assert all(torch.equal(ours[key].nan_to_num(), others[key].nan_to_num()) for key in ours), (name, file)
        assert (Path(name) / "samples.txt").read_text() == Path("on/samples.txt").read_text()


def test_each_of_several_models_has_a_graph_of_its_own(accelerator: Accelerator, here: Path) -> None:
    """The last one has another weight decay, and no dropout, than a graph of the others would repeat."""
    graphs = give_graphs(accelerator)
    models = "train.teacher_share=0.25", "train.num_models=3", "train.weight_decay=1"
    train_on_and_off(*models, "train.sample_every=null")
    assert [graph.num_replays for graph in graphs][-3:] == [2 + 1, 2 + 1, 2 + 2]
    ours, others = (load_file(f"{name}/checkpoints/step-00000004.safetensors") for name in ("on", "off"))
    assert all(torch.equal(ours[key].nan_to_num(), others[key].nan_to_num()) for key in ours)
