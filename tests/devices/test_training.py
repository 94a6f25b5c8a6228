"""Training on an accelerator: weights, losses and files have the bits of the CPU, and no step waits."""

import json
import shutil
from pathlib import Path
from threading import Event
from time import sleep
from typing import Any

import numpy as np
import pytest
import torch
from support.accelerator import Accelerator, on_cpu
from support.faults import RESUME, START, Fault, fingerprint, in_parallel, new_folder, some_of, strays
from support.forks import Servers
from support.helpers import CORPUS_TEXT, RunCommand, small_config
from support.runs import finish, start

from gpt_cli.checkpoints.checkpoint import Checkpoint, read_checkpoint
from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.errors import EnvironmentFailure
from gpt_cli.evaluation.nll import Observations, Score
from gpt_cli.text.token_files import validation_windows
from gpt_cli.training import loop
from gpt_cli.training.events import Finished, Saved, Stepped, TrainingEvent
from gpt_cli.training.loop import train
from gpt_cli.training.run import Run
from gpt_cli.training.state import TrainingState
from gpt_cli.training.step import read_outcomes, take_step
from gpt_cli.training.validation import validation_score

IDS = np.frombuffer(CORPUS_TEXT.encode(), np.uint8)
FORMS = {
    "default": "model.dropout=0.2",
    "muon, micro-batches": "model.dropout=0.2 train.optimizer=muon train.micro_batch_size=1",
    "latent, rope, n-grams": "model.dropout=0.2 model.attention=latent model.positions=rope model.query_latent_size=4 "
    "model.ngram_embedding=3 train.optimizer=muon",
    "grouped-query, rmsnorm, relu2": "model.attention=grouped_query model.positions=rope model.norm=rmsnorm "
    "model.activation=relu2 model.bias=false",
    "sinusoidal, post, tied": "model.dropout=0.2 model.positions=sinusoidal model.norm_position=post "
    "model.tie_embeddings=true train.gradient_clip=null",
    "no positions, one head": "model.positions=none model.scale=none model.num_heads=1 train.micro_batch_size=2",
}


def _trained(device: str, *settings: str) -> TrainingState:
    """A state after three steps."""
    config = small_config("train.dtype=float32", *settings)
    state = TrainingState.at_the_start(config.changed(train={"device": device}), IDS, 257)
    for _ in range(3):
        take_step(state)
    return state


def _numbers(state: TrainingState) -> dict[str, torch.Tensor]:
    tensors = {**state.model.state_dict(), **state.optimizer.state_dict()}
    return {name: on_cpu(tensor.detach()) for name, tensor in tensors.items()}


@pytest.mark.parametrize("form", some_of(list(FORMS), least=3))
def test_steps_have_the_bits_of_the_cpu_and_do_not_wait(accelerator: Accelerator, form: str) -> None:
    expected, state = (_trained(device, *FORMS[form].split()) for device in ("cpu", "sim:1"))
    assert [step for step, _, _ in state.unread] == [1, 2, 3]
    read_outcomes(state)
    ours, theirs = _numbers(state), _numbers(expected)
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []
    assert state.progress.loss == expected.progress.loss
    # of what is done after the ids and the model arrived, reading the outcomes alone waits
    waits = [sync for sync in accelerator.syncs if "training/step.py" in sync or "model/" in sync]
    assert len(waits) == 1
    # what travels in a step is where its sequences start, all at once
    starts = [event.num_bytes for event in accelerator.copies.to_device if "machine/devices.py" in event.where]
    assert starts == [4 * 8] * 3  # sequences, bytes of an int64


RUNS = {
    "watched": ("inspect.prompt=4 squared", "inspect.every=4"),
    "muon": ("train.optimizer=muon", "model.attention=latent", "model.positions=rope", "train.micro_batch_size=1"),
}
# without dropout, devices have a kernel for attention that rounds otherwise than ours
OF_A_DEVICE = ("device", "best_loss", "validation_loss", "validation_loss_error", "bits_per_byte")
ON_DISK = {"gpt_cli.text.corpus.CACHE_FROM": 1, "gpt_cli.text.encode.IN_MEMORY": 0}
SIM = ("--device", "sim")
SELDOM = ("train.eval_every=100", "train.save_every=100", "train.sample_every=null")


@pytest.fixture(scope="module")
def expected(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs that the CPU trained without being disturbed, by their settings."""
    found = {}
    for name, settings in RUNS.items():
        folder = new_folder(tmp_path_factory.mktemp("cpu") / "folder", *settings)
        servers.gpt(folder, *START, exits=0)
        found[name] = folder / "run"
    return found


def metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def train_here(run: RunCommand, out: str, device: str, *flags: str) -> None:
    """Train what new_folder has left in `folder`."""
    words = ("--config", "folder/c.yaml", "--data", "folder/corpus.txt", "--out", out, "--device", device)
    run("train", *words, *flags, exits=0)


def assert_as_expected(run: Path, expected: Path) -> None:
    """The bits of everything but the evaluations, and these as far as kernels round alike."""
    assert fingerprint(run, OF_A_DEVICE) == fingerprint(expected, OF_A_DEVICE)
    for ours, theirs in zip(metrics(run), metrics(expected), strict=True):
        assert ours.get("validation_loss", 0) == pytest.approx(theirs.get("validation_loss", 0), rel=1e-6)
    assert strays(run) == []


@pytest.mark.parametrize(("name", "constants"), [("watched", None), ("muon", ON_DISK)], ids=["in memory", "on disk"])
def test_a_run_leaves_what_it_leaves_on_the_cpu(
    servers: Servers, tmp_path: Path, expected: dict[str, Path], name: str, constants: dict[str, int] | None
) -> None:
    """Weights, moments, metrics, evaluations, samples and snapshots, with tokens in memory or on disk."""
    folder = new_folder(tmp_path / "folder", *RUNS[name])
    servers.gpt(folder, *START, *SIM, accelerator=True, constants=constants, exits=0)
    assert json.loads((folder / "run" / "outcome.json").read_text())["device"] == "sim"
    assert_as_expected(folder / "run", expected[name])


@pytest.mark.parametrize("devices", some_of([("sim", "sim"), ("cpu", "sim:1"), ("sim", "cpu")], least=1), ids="-".join)
@pytest.mark.parametrize("name", some_of(list(RUNS), least=1))
def test_a_killed_run_continues_on_the_same_device_or_another(
    servers: Servers, tmp_path: Path, expected: dict[str, Path], name: str, devices: tuple[str, str]
) -> None:
    before, after = devices
    template = new_folder(tmp_path / "template", *RUNS[name])

    def killed_at(number: int) -> None:
        folder = tmp_path / str(number)
        shutil.copytree(template, folder)
        fault = Fault(number, "kill")
        servers.gpt(folder, *START, "--device", before, fault=fault, accelerator=True, exits=137)
        servers.gpt(folder, *RESUME, "--device", after, accelerator=True, exits=0)
        assert_as_expected(folder / "run", expected[name])

    in_parallel(killed_at, some_of(range(50, 230, 5), least=1))


@pytest.mark.long
def test_two_processes_train_on_a_device_each(servers: Servers, tmp_path: Path, expected: dict[str, Path]) -> None:
    folder = new_folder(tmp_path / "folder", *RUNS["muon"])
    servers.gpt(folder, *START, *SIM, accelerator=True, processes=2, exits=0)
    assert_as_expected(folder / "run", expected["muon"])


def test_the_host_waits_once_for_each_line_of_the_log(accelerator: Accelerator, here: Path, run: RunCommand) -> None:
    """Between the first step and the last nothing else waits, where nothing else is due."""
    new_folder(here / "folder", "train.log_every=3", *SELDOM)
    train_here(run, "run", "sim")
    reads = [number for number, sync in enumerate(accelerator.syncs) if "tolist at gpt_cli/training/step.py" in sync]
    assert len(metrics(here / "run")) == len(reads) == 4
    assert len(set(accelerator.syncs[reads[0] : reads[-1] + 1])) == 1


def test_an_evaluation_waits_once_and_gives_the_loss_of_the_cpu(accelerator: Accelerator, tmp_path: Path) -> None:
    losses = []
    for device in ("cpu", "sim"):
        run = start(tmp_path / device, small_config().changed(train={"device": device}))
        windows = validation_windows(len(run.validation_ids), run.config.model.context_length)
        accelerator.copies.syncs.clear()
        how = {"batch_size": 4, "dtype": "float32", "by_window": Observations()}
        score = validation_score(run.state.model, run.tokenizer, run.validation_ids, windows, **how)
        losses.append(score.loss)
    assert len(accelerator.syncs) == 1
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)


SAVING = (
    "train.sample_every=null",
    "train.save_every=2",
    "train.max_steps=6",
    "train.eval_every=100",
    "train.keep_checkpoints=1",
)


def run_on(device: str, folder: Path, *settings: str) -> Run:
    return start(folder / device, small_config(*SAVING, *settings).changed(train={"device": device}))


def test_steps_and_the_closing_evaluation_go_on_while_a_file_is_written(
    accelerator: Accelerator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of step 4 has its weights, and is written after step 5; that of step 6 after the evaluation of its weights."""
    awaited, save = {4: Event(), 6: Event()}, RunDirectory.save

    def save_later(directory: RunDirectory, checkpoint: Checkpoint, keep: int) -> None:
        step = checkpoint.progress.step
        assert step not in awaited or awaited[step].wait(60)
        save(directory, checkpoint, keep)

    def measure(*arguments: Any, **settings: Any) -> Score:
        awaited[6].set()
        return validation_score(*arguments, **settings)

    def trained(device: str) -> tuple[list[TrainingEvent], dict[int, Checkpoint]]:
        events, saved = list[TrainingEvent](), dict[int, Checkpoint]()
        for event in train(run_on(device, tmp_path, "train.eval_every=6")):
            events.append(event)
            if isinstance(event, Stepped) and event.step == 5:
                awaited[4].set()
            if isinstance(event, Saved):  # its file is there until the next one is written
                saved[event.step] = read_checkpoint(event.path, everything=True)
        return events, saved

    (*_, of_cpu), expected = trained("cpu")
    awaited[4].clear()
    monkeypatch.setattr(RunDirectory, "save", save_later)
    monkeypatch.setattr(loop, "validation_score", measure)
    (*events, finished), saved = trained("sim")
    assert list(saved) == list(expected) == [2, 4, 6]
    for step, ours in saved.items():
        assert all(map(torch.equal, ours.weights.values(), expected[step].weights.values()))
        assert all(map(torch.equal, ours.optimizer_state.values(), expected[step].optimizer_state.values()))
    order = [(type(event), getattr(event, "step", None)) for event in events]
    # without a first checkpoint, nothing would explain the metrics of later steps
    assert order.index((Saved, 2)) < order.index((Stepped, 3))
    assert order.index((Stepped, 5)) < order.index((Saved, 4))
    assert isinstance(finished, Finished)
    assert isinstance(of_cpu, Finished)
    assert finished.best_step == 6
    assert finished.summary["validation_loss"] == pytest.approx(of_cpu.summary["validation_loss"], rel=1e-6)


@pytest.mark.parametrize("refused", [4, 6])
def test_a_file_that_a_thread_cannot_write_ends_the_training(
    accelerator: Accelerator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: int
) -> None:
    save = RunDirectory.save

    def save_some(directory: RunDirectory, checkpoint: Checkpoint, keep: int) -> None:
        if checkpoint.progress.step == refused:
            raise EnvironmentFailure("the disk", "it is full")
        save(directory, checkpoint, keep)

    monkeypatch.setattr(RunDirectory, "save", save_some)
    run = run_on("sim", tmp_path)
    with pytest.raises(EnvironmentFailure, match=f"it is full; the checkpoint of step {refused - 2} is intact"):
        finish(run)
    assert not run.directory.outcome.exists()


def test_an_error_waits_for_the_file_that_a_thread_is_writing(
    accelerator: Accelerator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the thread would write into a directory that another training may have locked."""
    save = RunDirectory.save

    def save_slowly(directory: RunDirectory, checkpoint: Checkpoint, keep: int) -> None:
        sleep(0.2)
        save(directory, checkpoint, keep)

    monkeypatch.setattr(RunDirectory, "save", save_slowly)
    run = run_on("sim", tmp_path)
    events = train(run)
    next(event for event in events if isinstance(event, Stepped) and event.step == 5)
    events.close()
    assert read_checkpoint(run.directory.step_file(4)).progress.step == 4


def test_a_device_that_lacks_much_trains_the_same(accelerator: Accelerator, here: Path, run: RunCommand) -> None:
    accelerator.lacks(torch.float64, torch.bfloat16, "deterministic", "pinned")
    new_folder(here / "folder", *RUNS["watched"], "train.dtype=auto", "train.max_steps=4", "train.sample_every=4")
    for device in ("cpu", "sim"):
        train_here(run, device, device)
    assert_as_expected(Path("sim"), Path("cpu"))


def test_bfloat16_keeps_to_the_curve_of_the_cpu(accelerator: Accelerator, here: Path, run: RunCommand) -> None:
    """Its sums are in float32, which those of the CPU are not everywhere, so that the bits differ."""
    new_folder(here / "folder", "train.optimizer=muon", "train.learning_rate=0.01", *SELDOM)
    losses = []
    for device, dtype in (("cpu", "float32"), ("cpu", "bfloat16"), ("sim", "bfloat16")):
        train_here(run, device + dtype, device, "--set", f"train.dtype={dtype}")
        losses.append(np.array([line["loss"] for line in metrics(here / (device + dtype)) if "loss" in line]))
    exact, of_cpu, of_sim = losses
    assert exact[0] - exact[-1] > 0.3  # it learns
    assert np.abs(of_sim - exact).max() < 0.01
    assert not np.array_equal(of_sim, of_cpu)
