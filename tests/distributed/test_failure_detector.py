"""A rank that no longer answers is noticed, and one that is only suspended is not."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.helpers import unread_pipe

from gpt_cli.distributed import failure_detector
from gpt_cli.distributed.environment import RankEnvironment
from gpt_cli.distributed.failure_detector import PATIENCE, FailureDetector, FolderHeartbeats


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(failure_detector, "time", SimpleNamespace(monotonic=clock))
    return clock


def watcher(rank: int, size: int = 3) -> FailureDetector:
    board = FolderHeartbeats(Path("nowhere"), rank, size)
    rank_env = RankEnvironment(rank, size, rank, size, "gpt", "nowhere")
    watching = FailureDetector(rank_env, board, lambda: ("nothing", None))
    watching.patience = PATIENCE
    return watching


def silent_after(watching: FailureDetector, clock: Clock, moving: list[int], seconds: int) -> int | None:
    """Who is given up within a number of seconds, in which the beats of some move."""
    for second in range(1, seconds + 1):
        clock.now += 1
        watching._beats = [second if rank in moving else 0 for rank in range(watching.rank_env.size)]
        if (rank := watching.silent()) is not None:
            assert second > PATIENCE, "too early"
            return rank
    return None


@pytest.mark.parametrize(
    ("rank", "moving", "seconds", "given_up"),
    [
        pytest.param(0, [0, 1, 2], 200, None, id="all beat"),
        pytest.param(0, [0, 1], 60, 2, id="one is silent for half a minute"),
        pytest.param(2, [], 60, 0, id="no beat arrives, so the first has failed, which serves them"),
    ],
)
def test_a_rank_without_a_beat_is_given_up(
    clock: Clock, rank: int, moving: list[int], seconds: int, given_up: int | None
) -> None:
    assert silent_after(watcher(rank), clock, moving, seconds) == given_up


def test_a_rank_is_given_more_time_before_all_are_joined(clock: Clock) -> None:
    watching = watcher(0)
    watching.patience = 600.0
    assert silent_after(watching, clock, [0, 1], 590) is None


def test_a_rank_that_was_suspended_itself_begins_to_count_anew(clock: Clock) -> None:
    """Ctrl-Z stops all; afterwards some run before others."""
    watching = watcher(0)
    assert silent_after(watching, clock, [0, 1], 25) is None
    clock.now += 3600
    assert silent_after(watching, clock, [0, 1], 25) is None


def test_beats_in_a_folder_move_and_take_no_space(tmp_path: Path) -> None:
    ours, others = FolderHeartbeats(tmp_path, 0, 2), FolderHeartbeats(tmp_path, 1, 2)
    assert ours.beats() == [0, 0]
    others.beat()
    first = ours.beats()[1]
    assert first > 0
    time.sleep(0.02)
    others.beat()
    assert ours.beats()[1] > first
    assert {path.stat().st_size for path in tmp_path.iterdir()} == {0}


def test_the_first_claim_is_granted_and_all_learn_the_exit_code(tmp_path: Path) -> None:
    boards = [FolderHeartbeats(tmp_path, rank, 3) for rank in range(3)]
    assert boards[1].speaker() is None
    assert [boards[2].claim(5), boards[0].claim(3), boards[2].claim(5)] == [True, False, False]
    assert boards[1].speaker() == (2, 5)


def test_a_board_serves_on_where_a_cleaner_removes_its_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    boards = [FolderHeartbeats(tmp_path / "a", rank, 2) for rank in range(2)]
    for board in boards:
        board.beat()
    first = boards[0].beats()[1]
    shutil.rmtree(tmp_path / "a")
    time.sleep(0.02)
    boards[1].beat()
    assert boards[0].beats()[1] > first
    assert [board.claim(5) for board in reversed(boards)] == [True, False]
    assert boards[0].speaker() == (1, 5)


def test_where_the_folder_is_gone_the_first_rank_speaks(tmp_path: Path) -> None:
    boards = [FolderHeartbeats(tmp_path / "gone", rank, 2) for rank in range(2)]
    boards[0].beat()
    assert [board.claim(5) for board in boards] == [True, False]
    assert boards[0].speaker() is None
    assert boards[0].beats() == [0, 0]


GIVES_UP = """
import sys, time
from pathlib import Path
from gpt_cli.distributed import failure_detector
from gpt_cli.distributed.environment import RankEnvironment
failure_detector.LOOK_EVERY, failure_detector.BEAT_EVERY = 0.02, 0.02
folder, rank = sys.argv[1], int(sys.argv[2])
intact = lambda: ("the newest checkpoint is of step 40", "continue with gpt train --out r --resume")
rank_env = RankEnvironment(rank, 3, rank, 3, "gpt", folder, launcher_pid=int(sys.argv[3]))
heartbeats = failure_detector.FolderHeartbeats(Path(folder), rank, 3)
watcher = failure_detector.FailureDetector(rank_env, heartbeats, intact)
watcher.patience = float(sys.argv[4])
watcher.where = ["host a, pid 1", "host a, pid 2", "host a, pid 3"]
watcher.start()
time.sleep(60)
"""


def rank_of_its_own(
    folder: Path, rank: int, patience: float, launcher: int | None = None, stderr: int = subprocess.PIPE
) -> subprocess.Popen[str]:
    given = map(str, (folder, rank, launcher or os.getpid(), patience))
    return subprocess.Popen([sys.executable, "-c", GIVES_UP, *given], stderr=stderr, text=True)


def test_one_of_all_says_who_does_not_answer_and_all_end_though_their_main_threads_wait(tmp_path: Path) -> None:
    ranks = [rank_of_its_own(tmp_path, rank, 2) for rank in (0, 1)]
    said = [rank.communicate(timeout=30)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [5, 5]
    assert sorted(said) == [
        "",
        "error: process 2 of 3: it has not answered for 2 s (host a, pid 3); the newest checkpoint is of step 40\n"
        "hint: continue with gpt train --out r --resume\n",
    ]


def test_a_rank_gives_up_though_the_disk_of_the_run_is_lost_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def lost() -> tuple[str, str | None]:
        raise OSError(5, "Input/output error")

    codes, timers = list[int](), list[tuple[float, object]]()
    monkeypatch.setattr(failure_detector.os, "_exit", codes.append)

    def timer(seconds: float, function: object, _: object) -> SimpleNamespace:
        timers.append((seconds, function))
        return SimpleNamespace(start=lambda: None)

    monkeypatch.setattr(failure_detector.threading, "Timer", timer)
    rank_env = RankEnvironment(0, 2, 0, 2, "gpt", str(tmp_path), launcher_pid=os.getppid())
    FailureDetector(rank_env, FolderHeartbeats(tmp_path, 0, 2), lost).give_up(1)
    assert codes == [5]
    assert timers == [(3 * failure_detector.CLAIM_WITHIN, codes.append)], "where the disk hangs, it ends all the same"
    assert "the run cannot be read: " in capfd.readouterr().err


def test_a_rank_gives_up_though_nobody_reads_why(tmp_path: Path) -> None:
    with unread_pipe() as unread:
        assert rank_of_its_own(tmp_path, 0, 0.1, stderr=unread).wait(timeout=60) == 5


def test_a_rank_whose_launcher_is_gone_ends_as_after_term(tmp_path: Path) -> None:
    rank = rank_of_its_own(tmp_path, 0, 60, launcher=os.getppid())  # which did not start it
    rank.communicate(timeout=30)
    assert rank.returncode == -signal.SIGTERM
