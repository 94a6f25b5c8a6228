"""Processes meet in a folder, compare what they are about to do, and wait for each other."""

import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpt_cli.common.machine.devices import CPU
from gpt_cli.distributed import rendezvous as module
from gpt_cli.distributed.environment import RankEnvironment
from gpt_cli.distributed.failure_detector import LeftToAnother
from gpt_cli.distributed.rendezvous import Rendezvous, differences, shared_gpus
from gpt_cli.errors import EnvironmentFailure, GptError, UsageError

HOST = f"(host {socket.gethostname()}, pid {os.getpid()})"


@pytest.fixture(autouse=True)
def _joined_without_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks in threads of one process cannot be joined: one that finds no difference just goes on."""
    monkeypatch.setattr(module.dist, "init_process_group", lambda *_, **__: None)


def nothing() -> tuple[str, None]:
    return "nothing was saved", None


def meetings(folder: Path, size: int, run_directories: Sequence[Path | None] = ()) -> list[Rendezvous]:
    """Ranks that meet in this process, each in a thread of its own."""
    directories = run_directories or [None] * size
    rank_envs = [RankEnvironment(rank, size, rank, size, "gpt", str(folder)) for rank in range(size)]
    return [
        Rendezvous(rank_env, directory, nothing) for rank_env, directory in zip(rank_envs, directories, strict=True)
    ]


def meet(ranks: Sequence[Rendezvous], records: Sequence[Mapping[str, str]]) -> list[list[str]]:
    """The lines that each rank would print; no two of these records may be equal."""

    def one(rank: Rendezvous, record: Mapping[str, str]) -> list[str]:
        with pytest.raises(GptError) as raised:
            rank.meet(record, CPU)
        return raised.value.lines()

    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(one, ranks, records))


def test_all_ranks_find_the_same_differences(tmp_path: Path) -> None:
    records = [{"train.seed": seed, "train.batch_size": "4", "text": "5" * 64} for seed in ("1", "1", "2")]
    records[1]["text"] = "6" * 64
    said = meet(meetings(tmp_path, 3), records)
    assert said == 3 * [
        [
            f"error: process 1 of 3 {HOST}: its text differs from that of process 0",
            f'error: process 2 of 3 {HOST}: its train.seed is "2", but process 0 has "1"',
        ]
    ]


def test_a_run_directory_that_is_not_shared_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PROBE_SECONDS", 0.1)
    directories = [tmp_path / name / "run" for name in ("here", "there", "here")]
    for directory in directories[:2]:
        directory.mkdir(parents=True)
    (directories[0] / ".lock").write_text("process 7 on a since today\n")
    said = meet(meetings(tmp_path, 3, directories), 3 * [{}])
    assert said == 3 * [
        [
            f"error: process 1 of 3 {HOST}: it does not see the run directory of process 0, "
            "but all processes must share it",
            "hint: name a directory on a shared filesystem with --out",
        ]
    ]


def test_each_rank_tells_how_many_threads_it_computes_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = iter([2, 1])
    # in this module alone: another thread of the tests asks torch itself
    threads = SimpleNamespace(get_num_threads=lambda: next(numbers), __version__="2")
    monkeypatch.setattr(module, "torch", threads)
    said = meet(meetings(tmp_path, 2), 2 * [{}])
    assert all("process 1 of 2" in lines[0] and "it computes with" in lines[0] for lines in said)


def test_a_rank_that_waits_leaves_when_another_says_why_all_end(tmp_path: Path) -> None:
    first, second = meetings(tmp_path, 2)

    def fail() -> None:
        time.sleep(0.2)
        assert second.heartbeats.claim(3)

    threading.Thread(target=fail).start()
    with pytest.raises(LeftToAnother) as raised:
        first.meet({}, CPU)
    assert raised.value.exit_code == 3


def test_the_first_rank_of_a_host_prepares_before_the_others(tmp_path: Path) -> None:
    done: list[int] = []

    def prepare(rank: Rendezvous) -> None:
        for _ in range(2):
            with rank.local_rank_zero_first():
                if rank.rank_env.rank == 0:
                    time.sleep(0.2)
                done.append(rank.rank_env.rank)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(prepare, meetings(tmp_path, 2)))
    assert done[0] == 0
    assert sorted(done) == [0, 0, 1, 1]
    assert done.index(1) < len(done) - 1 - done[::-1].index(1)


def test_ranks_wait_no_longer_for_a_leader_that_failed(tmp_path: Path) -> None:
    leader, other = meetings(tmp_path, 2)
    with pytest.raises(ValueError, match="text"), leader.local_rank_zero_first():
        raise ValueError("no such text")
    leader.heartbeats.claim(3)
    with pytest.raises(LeftToAnother), other.local_rank_zero_first():
        pass


WHERE = ["host a, pid 1", "host b, pid 2"]


def test_unequal_threads_are_refused_because_sums_depend_on_them() -> None:
    (problem,) = differences([{"threads": "1"}, {"threads": "2"}], WHERE)
    assert isinstance(problem, UsageError)
    assert problem.lines() == [
        "error: process 1 of 2 (host b, pid 2): it computes with 2 threads, but process 0 with 1, which changes sums",
        "hint: --threads 1, or the same OMP_NUM_THREADS for all",
    ]


@pytest.mark.parametrize(
    ("first", "second", "sentences"),
    [
        ({"text": "a"}, {"text": "a"}, []),
        ({"code": "a"}, {"code": "b"}, ["its source code of gpt differs from that of process 0"]),
        # a setting that only one rank has
        ({}, {"train.graph": "off"}, ['its train.graph is "off", but process 0 has ""']),
    ],
)
def test_records_are_compared(first: dict[str, str], second: dict[str, str], sentences: list[str]) -> None:
    assert [problem.sentence for problem in differences([first, second], WHERE)] == sentences


def test_two_processes_must_not_have_the_same_gpu() -> None:
    def gpus(*found: str) -> list[str]:
        abouts = [{"host": rank_env[0], "gpu": rank_env[1:]} for rank_env in found]
        return [str(problem) for problem in shared_gpus(abouts, WHERE)]

    assert gpus("a", "a") == []  # processors
    assert gpus("a1", "a2") == []
    assert gpus("a1", "b1") == []
    assert gpus("a1", "a1") == ["process 1 of 2 (host b, pid 2): it uses the same GPU as process 0"]


def test_a_store_that_cannot_be_opened_is_the_environments_fault() -> None:
    """A port of this machine that another program has."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        rank_env = RankEnvironment(0, 2, 0, 2, "torchrun", f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(EnvironmentFailure) as raised:
            Rendezvous(rank_env, None, nothing)
    assert raised.value.where == "process 0 of 2"
    assert "cannot listen" in raised.value.sentence


def served(size: int) -> list[Rendezvous]:
    """Ranks as torchrun starts them without its agent, which meet at a free port of this machine; the first serves the store."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    rank_envs = [RankEnvironment(rank, size, rank, size, "torchrun", address) for rank in range(size)]
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(lambda rank_env: Rendezvous(rank_env, None, nothing), rank_envs))


def test_ranks_that_meet_at_a_port_see_beats_and_claims_and_the_server_leaves_last() -> None:
    first, second = served(2)
    assert first.heartbeats.beats() == [0, 0]
    second.heartbeats.beat()
    assert first.heartbeats.beats() == [0, 1]
    assert first.heartbeats.speaker() is None
    assert [second.heartbeats.claim(4), first.heartbeats.claim(5)] == [True, False]
    assert first.heartbeats.speaker() == (1, 4)
    began = time.monotonic()

    def leave(rank: Rendezvous, after: float) -> float:
        time.sleep(after)
        rank.__exit__(ValueError)
        return time.monotonic() - began

    with ThreadPoolExecutor(2) as pool:
        stayed, _ = pool.map(leave, (first, second), (0, 0.3))
    assert stayed >= 0.3


def test_differences_are_found_at_a_port_as_in_a_folder() -> None:
    said = meet(served(2), [{"text": "a"}, {"text": "b"}])
    assert said == 2 * [[f'error: process 1 of 2 {HOST}: its text is "b", but process 0 has "a"']]


def test_ranks_that_cannot_be_joined_are_told_what_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a host's own name leads to its loopback interface."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("connectFullMesh failed: Connection refused\nException raised from ...")

    monkeypatch.setattr(module.dist, "init_process_group", fail)
    said = meet(meetings(tmp_path, 2), [{"text": "5"}, {"text": "5"}])
    assert said == [
        [
            f"error: process {rank} of 2: it cannot connect to the others: connectFullMesh failed: Connection refused",
            "hint: between hosts, name the network interface, as in GLOO_SOCKET_IFNAME=eth0",
        ]
        for rank in (0, 1)
    ]
