"""Signals at any time: the run is saved, the exit code tells which it was, and nothing else is to be seen."""

from __future__ import annotations

import random
import shutil
import signal
from pathlib import Path

from faults import RESUME, START, Servers, fingerprint, in_parallel, new_folder, scaled, strays

NAMES = {130: "SIGINT", 143: "SIGTERM", 129: "SIGHUP"}


def test_signals_at_any_time(tmp_path: Path, servers: Servers, tally) -> None:
    template = new_folder(tmp_path / "template", "train.max_steps=40")
    whole = shutil.copytree(template, tmp_path / "whole")
    length = servers.gpt(whole, *START).seconds
    expected = fingerprint(whole / "run")
    draw = random.Random(0)
    count = scaled(200, 6)
    plans = [(draw.uniform(0, length), draw.choice((2, 15, 1)), draw.random() < 0.2) for _ in range(count)]
    latencies: list[float] = []

    def signalled(number: int) -> None:
        after, name, twice = plans[number]
        folder = shutil.copytree(template, tmp_path / str(number))
        ended = servers.gpt(folder, *START, signals=[(after, name), *([(0.01, signal.SIGTERM)] if twice else [])])
        assert ended.code in (0, *NAMES), ended.err
        assert "Traceback" not in ended.err
        assert "ignored" not in ended.err
        if ended.code in NAMES and not twice:
            latencies.append(ended.seconds_after_signal)
            # empty where the command had not yet begun to listen
            assert ended.err == "" or f"stopped by {NAMES[ended.code]} " in ended.err.splitlines()[-1], ended.err
        ended = servers.gpt(folder, *RESUME)
        assert ended.code == 0, ended.err
        assert fingerprint(folder / "run") == expected
        assert strays(folder / "run") == []
        shutil.rmtree(folder)

    in_parallel(signalled, range(count))
    assert latencies
    tally(f"signals at random times, at most {max(latencies):.2f} s until the end: state valid, same weights", count)


def test_the_line_that_resumes_does(tmp_path: Path, servers: Servers) -> None:
    folder = new_folder(tmp_path / "a", "train.max_steps=100000", "train.eval_every=100000")
    ended = servers.gpt(
        folder,
        "train",
        "--config",
        "c.yaml",
        "--out",
        "my run",
        signals=[(folder / "my run/metrics.jsonl", signal.SIGHUP)],
    )
    assert ended.code == 129
    line = ended.err.splitlines()[-1]
    assert line.startswith("warning: stopped by SIGHUP at step ")
    assert line.endswith("which is saved; resume: gpt train --out 'my run' --resume")
    step = int(line.split()[6].rstrip(","))
    ended = servers.gpt(folder, "train", "--out", "my run", "--resume", signals=[(0.5, signal.SIGTERM)])
    assert (ended.code, f"resuming my run at step {step}" in ended.err) == (143, True)


def test_a_second_signal_leaves_the_old_checkpoint(tmp_path: Path, servers: Servers) -> None:
    """The first is remembered in a step that takes long; the second does not wait for it."""
    folder = new_folder(
        tmp_path / "a", "train.max_steps=100000", "train.batch_size=4096", "train.micro_batch_size=4096",
        "train.eval_every=100000", "train.save_every=1",
    )  # fmt: skip
    first = folder / "run/checkpoints/step-00000001.safetensors"
    ended = servers.gpt(folder, *START, signals=[(first, signal.SIGINT), (0.05, signal.SIGINT)])
    assert ended.code == 130
    assert ended.seconds_after_signal < 0.5
    ended = servers.gpt(folder, "info", "run")
    assert ended.code == 0, ended.err


def test_usr1_saves_and_goes_on(tmp_path: Path, servers: Servers) -> None:
    folder = new_folder(tmp_path / "a", "train.max_steps=100000", "train.eval_every=100000", "train.save_every=100000")
    ended = servers.gpt(folder, *START, signals=[(folder / "run/metrics.jsonl", signal.SIGUSR1), (0.5, signal.SIGTERM)])
    assert ended.code == 143
    (line,) = (line for line in ended.err.splitlines() if "SIGUSR1" in line)
    steps = [int(path.stem.split("-")[1]) for path in sorted((folder / "run" / "checkpoints").glob("step-*"))]
    assert line == f"step {steps[0]}: saved as asked by SIGUSR1"
    assert steps[0] < steps[1]
