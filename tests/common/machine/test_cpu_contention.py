import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from support.helpers import RunCommand, wait_until

from gpt_cli import load
from gpt_cli.common.machine import cpu_contention as module
from gpt_cli.common.machine.cpu_contention import Usage, cores, is_busy, read_usage, sharing, used_by_others

needs_openmp = pytest.mark.skipif(not sys.platform.startswith("linux") or cores() < 2, reason="GNU OpenMP, two cores")


def test_what_others_use_is_what_all_use_less_the_own() -> None:
    before, after = Usage(at=10.0, everyone=100.0, this_process=4.0), Usage(at=12.0, everyone=103.5, this_process=5.5)
    assert used_by_others(before, after) == 1.0  # 2 core seconds in 2 seconds
    assert used_by_others(before, Usage(at=12.0, everyone=101.0, this_process=5.1)) == 0.0  # the clocks differ a little


@pytest.mark.parametrize(
    ("num_threads", "num_cores", "by_others", "busy"),
    [
        (2, 2, 0.5, False),
        (2, 2, 0.7, True),
        (1, 2, 1.0, False),  # a core for each
        (1, 1, 1.0, False),  # a single thread waits for no other
        (4, 2, 0.0, False),  # more threads than cores lack none because of others
        (4, 2, 0.7, True),
        (4, 16, 12.0, False),
        (16, 16, 1.0, True),
    ],
)
def test_a_machine_is_busy_where_threads_lack_cores(
    num_threads: int, num_cores: int, by_others: float, busy: bool
) -> None:
    assert is_busy(num_threads, num_cores, by_others, was=False) == busy


def test_a_busy_machine_stays_so_until_clearly_quiet() -> None:
    assert [is_busy(2, 2, by_others, was=True) for by_others in (0.5, 0.3)] == [True, False]


def test_only_the_cores_that_this_program_may_use_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = tmp_path / "stat"
    lines = ("cpu 9 9 9 9 9 9 9 9 9 9", "cpu0 9 9 9 9 9 9 9 9 9 9", "cpu1 100 20 30 5000 600 7 8 35 100 0", "intr 1")
    stat.write_text("\n".join(lines))
    monkeypatch.setattr(module, "_STAT", stat)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1})
    monkeypatch.setattr(os, "sysconf", lambda _: 100)
    usage = read_usage()
    assert usage is not None
    assert usage.everyone == 2.0  # 100 + 20 + 30 + 7 + 8 + 35 ticks: neither idle nor waiting for a disk
    monkeypatch.setattr(module, "_STAT", tmp_path / "none")
    assert read_usage() is None


@pytest.mark.parametrize(("num_threads", "size"), [(1, 3), (2, 2), (3, None), (4, None), (8, None)])
def test_a_team_makes_one_thread_more_than_cores(
    num_threads: int, size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On two cores; OpenMP would take a negative size for four thousand million threads."""
    teams: list[int] = []
    openmp = SimpleNamespace(omp_get_num_procs=lambda: 2)
    monkeypatch.setattr(module, "_loaded_openmp", lambda: "libgomp.so.1")
    monkeypatch.setattr(module.ctypes, "CDLL", lambda _: openmp)
    monkeypatch.setattr(module, "_may_start", teams.append)
    assert module._idle_team(num_threads) is None
    assert teams == ([] if size is None else [size])


def test_without_threads_to_be_had_there_is_no_team(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenMP would end the process."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert module._idle_team(2) is None
    with sharing() as shared:
        assert not shared.busy


def busy_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports a machine whose cores other programs use as well, and looks at it at once."""
    started = time.monotonic()

    def read() -> Usage:
        at = time.monotonic()
        return Usage(at, 2 * (at - started) + time.process_time(), time.process_time())

    monkeypatch.setattr(module, "read_usage", read)
    monkeypatch.setattr(module, "WATCH_EVERY", 0.01)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)


def idle_teams() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "idle team"}


@needs_openmp
@pytest.mark.usefixtures("two_threads")
def test_beside_other_programs_an_idle_team_is_held_and_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    before = idle_teams()
    busy_from_the_start(monkeypatch)
    remarks: list[str] = []
    with sharing() as shared:
        wait_until("nobody notices that the machine is busy", lambda: shared.busy)
        shared.remark(remarks.append)
        shared.remark(remarks.append)
        held = idle_teams() - before  # and perhaps that of the tests themselves, which now look at a busy machine too
    assert remarks == [f"the machine is busy, so gpt is slower: other programs use 2.0 of its {cores()} cores"]
    assert held
    wait_until("the idle team is not let go", lambda: held - idle_teams())


@pytest.mark.parametrize("variable", module.CHOSEN_BY_USER)
def test_a_user_who_chose_how_threads_wait_is_left_alone(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    busy_from_the_start(monkeypatch)
    monkeypatch.setenv(variable, "active")
    before = threading.active_count()
    with sharing():
        assert threading.active_count() == before


@needs_openmp
@pytest.mark.parametrize("words", ["sample --prompt The --max-new-tokens 2 --seed 1", "eval"])
def test_short_commands_do_not_say_that_the_machine_is_busy(
    words: str, smoke_run: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextlib.contextmanager
    def importing_slowly() -> Iterator[None]:
        time.sleep(0.2)
        yield

    busy_from_the_start(monkeypatch)
    monkeypatch.setattr("gpt_cli.cli.console.importing_torch", importing_slowly)
    outcome = run(*words.split(), "--run", str(smoke_run))
    assert (outcome.code, outcome.err.count("the machine is busy")) == (0, 0)


@needs_openmp
@pytest.mark.usefixtures("two_threads")
def test_training_beside_other_programs_gives_the_same_weights(
    here: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ("--set", "tokenizer.kind=byte", "--set", "train.sample_every=null", "--max-steps", "6")
    small = ("train", "--config", "smoke", *settings)
    run(*small, "--out", "runs/alone", exits=0)
    busy_from_the_start(monkeypatch)
    outcome = run(*small, exits=0)
    assert outcome.err.count("the machine is busy") == 1
    weights, expected = (load(here / "runs" / name).model.state_dict() for name in ("smoke", "alone"))
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


# prints the processor time of 40 short products whose threads wait 5 ms after each, spinning and beside an idle team
_MEASURED = """
import time, torch
from gpt_cli.common.machine.cpu_contention import _idle_team
torch.set_num_threads(2)

def used():
    before = time.process_time()
    for _ in range(40):
        torch.ones(100_000).sum()
        time.sleep(0.005)
    return time.process_time() - before

used()
spinning = used()
ended = _idle_team(2)
time.sleep(0.1)
sleeping = used()
ended.set()
time.sleep(0.1)
print(spinning, sleeping, used())
"""


@needs_openmp
@pytest.mark.long
def test_threads_sleep_beside_an_idle_team_and_spin_without_it() -> None:
    """A thread that spins uses about 1 to 3 ms of a core after each product, one that sleeps next to nothing."""
    environment = {name: value for name, value in os.environ.items() if name not in module.CHOSEN_BY_USER}
    command = [sys.executable, "-c", _MEASURED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    spinning, sleeping, again = map(float, done.stdout.split())
    assert sleeping < spinning / 3
    assert sleeping < again / 3
