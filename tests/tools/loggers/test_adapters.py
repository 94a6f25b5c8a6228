"""The real packages, where they are installed: offline, and read back with what they or others read them with."""

import importlib
import importlib.util
import json
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.helpers import CORPUS_TEXT, RunCommand

from gpt_cli.checkpoints.run_paths import RunFiles

LOGGED = [5, 10, 15, 20]  # the steps of the smoke config
SAMPLED = [10, 20]
RUN = RunFiles(Path("runs/smoke"))


def where_installed(name: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(name) is None
    return pytest.mark.skipif(missing, reason=f"{name} is not installed: pip install -e '.[{name}]'")


def train_in_two_parts(run: RunCommand, name: str) -> None:
    """Train the smoke config with a logger, stopped after step 10 and continued."""
    Path("corpus.txt").write_text(CORPUS_TEXT)
    words = ("train", "--config", "smoke", "--data", "corpus.txt", "--quiet", "--set", "tokenizer.kind=byte")
    for part in (("--max-steps", "10"), ("--max-steps", "20", "--resume")):
        outcome = run(*words, "--set", f"train.log_to={name}", *part)
        assert (outcome.code, outcome.err) == (0, "")


@pytest.fixture(autouse=True)
def _no_variables(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing of the user's own, and a home directory in which nothing may appear."""
    for name in list(os.environ):
        if name.startswith(("WANDB_", "TRACKIO_", "SWANLAB_")):
            monkeypatch.delenv(name)
    home = here / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    yield
    assert list(home.iterdir()) == []
    assert {path.name for path in here.iterdir()} == {"home", "corpus.txt", "runs"}


def losses() -> list[float]:
    return [json.loads(line)["loss"] for line in RUN.metrics.read_text().splitlines()]


@where_installed("tensorboard")
def test_tensorboard_reads_the_curves_the_samples_and_the_config(run: RunCommand) -> None:
    train_in_two_parts(run, "tensorboard")
    reader = importlib.import_module("tensorboard.backend.event_processing.event_accumulator").EventAccumulator
    events: Any = reader(str(RUN.logs / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("loss")] == LOGGED
    assert [event.value for event in events.Scalars("loss")] == pytest.approx(losses())
    assert [event.step for event in events.Scalars("validation_loss")] == [10, 20]
    names = set(json.loads(RUN.metrics.read_text().splitlines()[-1])) - {"step"}
    assert set(events.Tags()["scalars"]) == names
    samples = {event.step: event.tensor_proto.string_val[0].decode() for event in events.Tensors("sample")}
    assert list(samples) == SAMPLED
    written = RUN.samples.read_text().partition("=== step 10 ===\n")[2]
    assert written.startswith(samples[10].splitlines()[0].strip())
    (config, *_) = (event.tensor_proto.string_val[0].decode() for event in events.Tensors("config"))
    assert "      d_model: 32\n" in config
    hyperparameters = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    assert b"model.d_model" in hyperparameters


@where_installed("trackio")
def test_trackio_has_one_run_with_each_step_once(run: RunCommand) -> None:
    train_in_two_parts(run, "trackio")
    with sqlite3.connect(RUN.logs / "trackio/small-gpt.db") as table:
        rows = table.execute("select run_id, step, metrics from metrics order by step").fetchall()
        (config,) = table.execute("select config from configs").fetchone()
    table.close()
    assert len({run_id for run_id, *_ in rows}) == 1
    assert [step for _, step, _ in rows] == LOGGED
    given = [json.loads(metrics) for *_, metrics in rows]
    assert [figures["loss"] for figures in given] == losses()
    assert [step for step, figures in zip(LOGGED, given, strict=True) if "sample" in figures] == SAMPLED
    assert json.loads(config)["model"]["d_model"] == 32


@where_installed("wandb")
def test_wandb_keeps_what_its_sync_would_send_and_leaves_no_process(run: RunCommand) -> None:
    """Offline, each part is a folder of the same run."""
    train_in_two_parts(run, "wandb")
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(Path.cwd()) not in listed
    files = sorted((RUN.logs / "wandb/wandb").glob("offline-run-*/run-*.wandb"))
    assert len(files) == 2
    assert len({file.name for file in files}) == 1
    assert [step for file in files for step, _ in history_of_wandb(file)] == LOGGED
    assert [float(loss) for file in files for _, loss in history_of_wandb(file)] == losses()
    assert len(list((RUN.logs / "wandb/wandb").rglob("sample_*.html"))) == len(SAMPLED)


def history_of_wandb(path: Path) -> list[tuple[int, str]]:
    """The steps of a log of wandb and their losses; it is a LevelDB log of protobuf records."""
    content = path.read_bytes()[7:]
    internal = importlib.import_module("wandb.proto.wandb_internal_pb2")
    found, at = [], 0
    while at + 7 <= len(content):
        size, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        assert kind == 1, "so short a log has whole records"
        record = internal.Record.FromString(content[at + 7 : at + 7 + size])
        if record.WhichOneof("record_type") == "history":
            values = {item.key or item.nested_key[0]: item.value_json for item in record.history.item}
            found.append((record.history.step.num, values["loss"]))
        at += 7 + size
    return found


@where_installed("swanlab")
def test_swanlab_keeps_what_its_sync_would_send(run: RunCommand) -> None:
    train_in_two_parts(run, "swanlab")
    folders = sorted((RUN.logs / "swanlab").glob("run-*"))
    assert len(folders) == 2
    assert len({folder.name.rpartition("-")[2] for folder in folders}) == 1
    records = [record for folder in folders for record in records_of_swanlab(folder)]
    scalars = [record.scalar for record in records if record.HasField("scalar")]
    given = {scalar.step: scalar.value.number for scalar in scalars if scalar.key == "loss"}
    assert sum(scalar.key == "loss" for scalar in scalars) == len(given)
    assert list(given) == LOGGED
    assert list(given.values()) == pytest.approx(losses())
    assert [record.media.step for record in records if record.HasField("media")] == SAMPLED


def records_of_swanlab(folder: Path) -> list[Any]:
    """What a folder of swanlab keeps, as its own sync reads it."""
    store: Any = importlib.import_module("swanlab.sdk.internal.core_python.store").DataStoreReader()
    record = importlib.import_module("swanlab.proto.swanlab.record.v1.record_pb2").Record
    (file,) = folder.glob("*.swanlab")
    store.open(file)
    records = [record.FromString(content) for content in store]
    store.close()
    return records
