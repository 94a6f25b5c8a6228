"""What a report knows of a run, in each of its states and whatever is wrong with its files."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from gpt_cli.checkpoints import metrics_files
from gpt_cli.checkpoints.lock import sole_trainer
from gpt_cli.errors import CheckpointError
from gpt_cli.tools.reports.run_record import FIGURES, read_record


def test_a_finished_run_has_everything(smoke_run: Path) -> None:
    found = read_record(smoke_run)
    lines = [json.loads(line) for line in (smoke_run / "metrics.jsonl").read_text().splitlines()]
    assert (found.name, found.state, found.notes) == ("smoke", "finished", ())
    for name in FIGURES:
        np.testing.assert_array_equal(found.metrics[name], [line.get(name, math.nan) for line in lines])
    assert [sample.step for sample in found.samples] == [10, 20]
    assert found.samples[0].text in (smoke_run / "samples.txt").read_text()
    assert found.config["model.d_model"] == 32
    assert found.overview.outcome == json.loads((smoke_run / "outcome.json").read_text())
    assert (found.environment["device"], found.environment["dtype"]) == ("cpu", "float32")
    assert found.environment["version"].startswith("gpt-cli ")
    assert found.corpus["vocab_size"] == 512
    assert found.corpus["num_training_tokens"] == 196_489
    assert found.differs == ("smoke", {})
    assert found.last_line_at == (smoke_run / "metrics.jsonl").stat().st_mtime


def test_a_run_that_is_trained_has_the_lines_that_are_whole(copied: Path) -> None:
    (copied / "outcome.json").unlink()
    with (copied / "metrics.jsonl").open("a") as file:
        file.write('{"step": 25, "loss": 4.5}\n{"step": 30, "lo')
    with sole_trainer(copied, pytest.fail):
        found = read_record(copied)
    assert (found.state, found.notes) == ("training", ())
    assert (found.metrics["step"][-1], found.metrics["loss"][-1]) == (25, 4.5)
    assert np.isnan(found.metrics["seconds"][-1])


def test_damaged_lines_are_left_out_and_counted(copied: Path) -> None:
    wrong = b'nonsense\n[1]\n{"step": true}\n{"step": 20}\n{"step": NaN}\n{"step": 1e999}\n\xff\xfe\n'
    with (copied / "metrics.jsonl").open("ab") as file:
        file.write(wrong + b"[" * 9999 + b'\n{"step": 21, "loss": "high"}\n')
        file.write(b'{"step": 22, "seconds": 1' + b"0" * 400 + b'}\n{"step": 23, "loss": 3}\n')
    found = read_record(copied)
    assert found.metrics["step"].tolist() == [5, 10, 15, 20, 21, 23]
    assert np.isnan(found.metrics["loss"][-2])
    assert found.notes == ('"runs/smoke/metrics.jsonl": the report leaves out 9 lines, damaged or out of order',)


def test_numbers_that_no_training_has_are_left_out(copied: Path) -> None:
    (copied / "metrics.jsonl").write_text(
        '{"step": 1, "tokens": 10, "seconds": 1.5, "loss": 4}\n'
        '{"step": 2, "tokens": 9, "seconds": -1, "loss": 1e308}\n'
        '{"step": 3, "tokens": 30, "seconds": 1.5, "loss": 3.4e38, "gradient_norm": 1e-320, "validation_loss": true}\n'
    )
    metrics = {name: column.tolist() for name, column in read_record(copied).metrics.items()}
    assert metrics["tokens"] == pytest.approx([10, math.nan, 30], nan_ok=True)
    assert metrics["seconds"] == pytest.approx([1.5, math.nan, 1.5], nan_ok=True)
    assert metrics["loss"] == pytest.approx([4, math.nan, 3.4e38], nan_ok=True)
    assert np.isnan([*metrics["gradient_norm"], *metrics["validation_loss"]]).all()


def test_a_damaged_run_is_read_as_far_as_it_goes(copied: Path) -> None:
    newest = copied / "checkpoints" / "step-00000020.safetensors"
    newest.write_bytes(newest.read_bytes()[:1000])
    found = read_record(copied)
    assert found.state == "damaged"
    assert len(found.notes) == 1
    assert "truncated" in found.notes[0]
    assert len(found.metrics["step"]) == 4
    assert found.environment["device"] == "cpu"  # of the checkpoint before


def test_files_beyond_what_a_run_can_have_are_refused(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (copied / "metrics.jsonl").open("a") as file:
        file.write("x" * 2**16 + "\n")
    with pytest.raises(CheckpointError, match=r"metrics.jsonl.*fewer than 65,536 bytes"):
        read_record(copied)
    monkeypatch.setattr(metrics_files, "_MOST", ("a log of a run", 10))
    with pytest.raises(CheckpointError, match="a log of a run has at most 10 bytes"):
        read_record(copied)


def test_runs_are_named_as_in_the_list(copied: Path, here: Path) -> None:
    for place in ("runs/sweep/one", "runs/sweep/smoke", "elsewhere/smoke"):
        shutil.copytree(copied, here / place)
    Path("runs/link").symlink_to("smoke")
    paths = [Path(f"runs/{name}") for name in ("smoke", "link", "sweep/one", "sweep/smoke")]
    names = [read_record(path).name for path in (*paths, Path("elsewhere/smoke"))]
    assert names == ["smoke", "link", "sweep/one", "sweep/smoke", "elsewhere/smoke"]
