from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import busy as module
from benchmarks.busy import compare_beside, share_left
from gpt_cli.tools.bench.baselines import Variant


@pytest.mark.parametrize(
    ("num_cores", "num_threads", "num_programs", "share"),
    [(2, 2, 1, 2 / 3), (2, 2, 2, 1 / 2), (16, 16, 1, 16 / 17), (4, 1, 1, 1.0), (2, 1, 2, 2 / 3)],
)
def test_the_share_left_is_a_fair_one_or_the_idle_cores(
    num_cores: int, num_threads: int, num_programs: int, share: float
) -> None:
    assert share_left(num_cores, num_threads, num_programs) == pytest.approx(share)


def test_work_is_timed_alone_and_beside_programs_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    running: list[subprocess.Popen[bytes]] = []
    shared: list[bool] = [False]
    start = subprocess.Popen

    def started(*words: object, **options: object) -> subprocess.Popen[bytes]:
        running.append(start(*words, **options))  # type: ignore[call-overload]
        return running[-1]

    @contextlib.contextmanager
    def sharing() -> Iterator[None]:
        shared[0] = True
        yield
        shared[0] = False

    clock = [0.0]
    met: list[tuple[int, bool]] = []

    def work() -> None:
        alive = sum(program.poll() is None for program in running)
        met.append((alive, shared[0]))
        clock[0] += 1.0 + alive

    monkeypatch.setattr(module.subprocess, "Popen", started)
    monkeypatch.setattr(module, "sharing", sharing)
    monkeypatch.setattr(module.time, "sleep", lambda _: None)
    monkeypatch.setattr(module.time, "perf_counter", lambda: clock[0])
    counted: list[int] = []
    (found,) = compare_beside([Variant("work", "float32", work, 10, 1.0, "float32")], 2, 1, counted.append)
    assert met == [(0, True), (2, False), (2, True)] * 2  # a round to warm up, and one that counts
    assert counted == [1] * 6
    assert (found.tokens_per_second, found.spinning, found.sleeping) == (10.0, 1 / 3, 1 / 3)
    assert all(program.poll() is not None for program in running)


def test_short_work_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    def work() -> None:
        clock[0] += 0.125

    monkeypatch.setattr(module.time, "perf_counter", lambda: clock[0])
    assert module._seconds(work) == 0.125
    assert clock[0] == module.MIN_SECONDS


def test_busy_programs_end_with_the_process_that_began_them() -> None:
    """Also where it is killed; they hold none of its streams."""
    script = (
        "import os, signal, subprocess\n"
        "from benchmarks import busy\n"
        "begin = subprocess.Popen\n"
        "def begun(*words, **options):\n"
        "    program = begin(*words, **options)\n"
        "    print(program.pid, flush=True)\n"
        "    return program\n"
        "subprocess.Popen = begun\n"
        "with busy.busy_programs(1):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    pid = int(done.stdout)
    for _ in range(1000):
        if not alive(pid):
            return
        time.sleep(0.01)
    raise AssertionError("it runs on")


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended may wait for its parent to notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
