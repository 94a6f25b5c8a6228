from __future__ import annotations

import subprocess

import pytest

from gpt_cli.measuring import beside as module
from gpt_cli.measuring.bench import Variant
from gpt_cli.measuring.beside import busy_programs, compare_beside, share_left


@pytest.mark.parametrize(
    ("num_cores", "num_threads", "num_programs", "share"),
    [(2, 2, 1, 2 / 3), (2, 2, 2, 1 / 2), (16, 16, 1, 16 / 17), (4, 1, 1, 1.0), (2, 1, 2, 2 / 3)],
)
def test_the_share_left_is_a_fair_one_or_the_idle_cores(
    num_cores: int, num_threads: int, num_programs: int, share: float
) -> None:
    assert share_left(num_cores, num_threads, num_programs) == pytest.approx(share)


def test_work_is_timed_alone_and_beside_programs_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    running: list[list[subprocess.Popen[bytes]]] = [[]]
    start = subprocess.Popen

    def started(*words: object, **options: object) -> subprocess.Popen[bytes]:
        running[0].append(start(*words, **options))  # type: ignore[call-overload]
        return running[0][-1]

    clock = [0.0]
    beside: list[int] = []

    def work() -> None:
        alive = sum(program.poll() is None for program in running[0])
        beside.append(alive)
        clock[0] += 1.0 + alive

    monkeypatch.setattr(module.subprocess, "Popen", started)
    monkeypatch.setattr(module.time, "sleep", lambda _: None)
    monkeypatch.setattr(module.time, "perf_counter", lambda: clock[0])
    counted: list[int] = []
    (found,) = compare_beside([Variant("work", "float32", work, 10, 1.0)], 2, 1, counted.append)
    assert beside == [0, 2, 2, 0, 2, 2]  # a round to warm up, and one that counts
    assert counted == [1] * 6
    assert (found.tokens_per_second, found.spinning, found.sleeping) == (10.0, 1 / 3, 1 / 3)
    assert all(program.poll() is not None for program in running[0])


def test_busy_programs_end_with_their_context() -> None:
    with pytest.raises(KeyError), busy_programs(1):
        raise KeyError
