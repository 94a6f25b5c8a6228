from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import processes as module
from benchmarks.processes import WORKS, compare_together, threads_each
from gpt_cli.config import Config
from gpt_cli.errors import EnvironmentFailure

# answers each work with its number, of which the first one of a process is 1, and twice as many processor seconds
ANSWERING = """
import json, os, sys
config = json.loads(sys.stdin.readline())
assert config["train"]["threads"] == (1 if os.environ["WORLD_SIZE"] == "4" else 4), config["train"]["threads"]
for number, line in enumerate(sys.stdin, 1):
    print(json.dumps([number + int(os.environ["RANK"]), 2 * number]), flush=True)
"""


def answered_by(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMMAND", ("-S", "-c", script))


def test_works_take_turns_and_the_slowest_process_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the four processes the last takes 3 longer; in three rounds the first one warms up."""
    answered_by(ANSWERING, monkeypatch)
    monkeypatch.setattr(module, "cores", lambda: 4)
    counted: list[int] = []
    alone, *found = compare_together(Config(), 4, 2, counted.append)
    assert counted == [1] * 3 * len(WORKS)
    assert (alone.num_processes, alone.threads, alone.seconds, alone.processor_seconds) == (1, 4, 2.5, 5.0)
    assert [each.work for each in found] == ["gpt train", "DistributedDataParallel", "exchange", "all_reduce"]
    # the first work is the 5th and the 9th that the processes do
    assert [each.seconds for each in found] == [7 + 3, 8 + 3, 9 + 3, 10 + 3]
    assert found[0].processor_seconds == 4 * 2 * 7
    assert {(each.num_processes, each.threads) for each in found} == {(4, 1)}


def test_a_process_that_ends_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    answered_by(
        "import os, sys\nif os.environ['RANK'] == '1': sys.exit(7)\n" + ANSWERING.replace("assert", "#"), monkeypatch
    )
    with pytest.raises(EnvironmentFailure, match="process 1 of 2: it ended with 7 while it was to do: gpt train"):
        compare_together(Config(), 2, 1, lambda _: None)


def test_each_process_has_its_part_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cores", lambda: 6)
    assert [threads_each(Config(), number) for number in (2, 4, 8)] == [3, 1, 1]
    assert threads_each(Config().changed(train={"threads": 5}), 2) == 5


@pytest.mark.long
def test_the_step_of_torch_does_the_same_work(tmp_path: Path) -> None:
    """Two micro-batches by each way end with the same weights; in a process of its own, which may open a group."""
    script = f"""
import torch, torch.distributed as dist
from gpt_cli.config.load import read_config
from gpt_cli.tools.bench.baselines import endless_state
from benchmarks.process import _ddp_step
from gpt_cli.distributed.collectives import ALONE
from gpt_cli.training.step import take_step
dist.init_process_group("gloo", store=dist.FileStore({str(tmp_path / "store")!r}, 1), rank=0, world_size=1)
config = read_config("smoke").changed(train=dict(micro_batch_size=4, device="cpu", dtype="float32", compile="off"))
ours, theirs = endless_state(config), endless_state(config)
before = [parameter.clone() for parameter in ours.model.parameters()]
step = _ddp_step(theirs, ALONE)
take_step(ours)
step()
# the first rate of the schedule is a part of the highest one
for old, a, b in zip(before, ours.model.parameters(), theirs.model.parameters()):
    moved = [(new - old).flatten() for new in (a, b)]
    assert torch.nn.functional.cosine_similarity(*moved, dim=0) > 0.999
dist.destroy_process_group()
"""
    variables = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=variables)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_it_measures_real_processes(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["processes", "--config", "smoke", "--rounds", "1"])
    module.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == (
        "a step of smoke in float32, 2 micro-batches of 4 sequences; "
        "each process exchanges gradients and weights of 236.3 kB"
    )
    works = ["gpt train", "gpt train", "DistributedDataParallel", "exchange", "all_reduce"]
    assert [line.split("  ")[0] for line in lines[3:8]] == works
    assert list(here.iterdir()) == []


def test_processes_that_cannot_share_a_batch_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sys, "argv", ["processes", "--processes", "4", "--config", "smoke", "--set", "train.batch_size=6"]
    )
    with pytest.raises(SystemExit, match="4 processes cannot share a batch of 6 sequences evenly"):
        module.main()
