"""Other processes in the run's directory: a second trainer is refused, and readers never see half of a file."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.faults import ENDLESS, START, new_folder, scaled
from support.forks import Servers

from gpt_cli.checkpoints.load import load
from gpt_cli.common.file_signatures import LOCK

STARTERS = scaled(20, 3)
STARTER = """
import os, sys, time
from pathlib import Path
from gpt_cli.checkpoints.lock import sole_trainer
from gpt_cli.errors import GptError

folder = Path(sys.argv[1])
print("ready", flush=True)
while not (folder / "go").exists():
    time.sleep(0.0001)
try:
    with sole_trainer(folder / "runs" / "a", print):
        print("won", flush=True)
        time.sleep(600)
except GptError as error:
    print(error)
    sys.exit(error.exit_code)
"""


def line(starter: subprocess.Popen[str]) -> str:
    assert starter.stdout is not None
    return starter.stdout.readline()


def test_one_of_many_starters_wins(tmp_path: Path, tally) -> None:
    """When all others have ended, the test kills the winner; the next race is for the same directory."""
    count = scaled(20)
    for race in range(count):
        (tmp_path / "go").unlink(missing_ok=True)
        with contextlib.ExitStack() as stack:
            command = [sys.executable, "-c", STARTER, tmp_path]
            pipe = subprocess.PIPE
            starters = [stack.enter_context(subprocess.Popen(command, stdout=pipe, text=True)) for _ in range(STARTERS)]
            for starter in starters:
                stack.callback(starter.kill)
            assert [line(starter) for starter in starters] == ["ready\n"] * STARTERS
            (tmp_path / "go").touch()
            answers = {starter.pid: line(starter) for starter in starters}
            (winner,) = (starter for starter in starters if answers[starter.pid] == "won\n")
            others = [starter.wait(30) for starter in starters if starter is not winner]
            assert others == [5] * (STARTERS - 1), f"race {race}"
    assert (tmp_path / "runs" / "a" / LOCK).exists()  # a killed trainer left it, and it stops nobody
    tally(f"races of {STARTERS} starters for one directory: one winner, killed, and its lock is free", count)


@contextlib.contextmanager
def training(servers: Servers, folder: Path, until: str) -> Iterator[None]:
    """A training that goes on meanwhile, from when it has made a file."""
    enough = folder / "enough"
    with ThreadPoolExecutor(1) as pool:
        trainer = pool.submit(servers.gpt, folder, *START, signals=[(enough.exists, signal.SIGTERM)], exits=143)
        try:
            while not (folder / "run" / until).exists():
                assert not trainer.done(), trainer.result().err
                time.sleep(0.01)
            yield
        finally:
            enough.touch()
        trainer.result()


def test_a_second_trainer_is_refused(tmp_path: Path, servers: Servers) -> None:
    folder = new_folder(tmp_path / "a", *ENDLESS)
    (folder / "b").mkdir()
    with training(servers, folder, "metrics.jsonl"):
        before = sorted(os.listdir(folder / "run"))
        for flags in ((), ("--resume",), ("--overwrite",)):
            ended = servers.gpt(folder / "b", "train", "--config", "../c.yaml", "--out", "../run", *flags, exits=5)
            assert re.fullmatch(
                r'error: "../run": process \d+ on \S+ since [\d:+ -]+ is training this run, and only one process may train a run\n'
                "hint: wait for it, stop it, or name another directory with --out\n",
                ended.err,
            ), ended.err
        assert sorted(os.listdir(folder / "run")) == before


def test_readers_meet_whole_files_while_a_trainer_saves_each_step(tmp_path: Path, servers: Servers, tally) -> None:
    settings = ("train.save_every=1", "train.eval_every=7", "train.keep_checkpoints=1")
    folder = new_folder(tmp_path / "a", *ENDLESS, *settings)
    count = scaled(300, 30)
    with training(servers, folder, "checkpoints/best.safetensors"):
        steps = {load(folder / "run", ("last", "best", None)[number % 3], pytest.fail).step for number in range(count)}
    assert len(steps) > 1  # the training continued meanwhile
    tally("reads while a trainer saved each step: none failed", count)
