import errno
import fcntl
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from gpt_cli.checkpoints.lock import is_held, sole_trainer
from gpt_cli.common.file_signatures import LOCK
from gpt_cli.errors import EnvironmentFailure, UsageError


def test_the_second_trainer_is_told_who_the_first_is(tmp_path: Path) -> None:
    with sole_trainer(tmp_path, pytest.fail), pytest.raises(EnvironmentFailure) as raised:
        sole_trainer(tmp_path, pytest.fail).__enter__()
    who = f"process {os.getpid()} on {socket.gethostname()} since 20"
    assert f'"{tmp_path}": {who}' in str(raised.value)
    assert str(raised.value).endswith(" is training this run, and only one process may train a run")
    assert raised.value.hint == "close() the training that this Python has begun, or name another directory with ‹out›"


def test_the_lock_leaves_nothing_where_nothing_was_made(tmp_path: Path) -> None:
    with sole_trainer(tmp_path / "runs" / "a", pytest.fail):
        assert (tmp_path / "runs" / "a" / LOCK).exists()
    assert os.listdir(tmp_path) == []
    with sole_trainer(tmp_path / "runs" / "a", pytest.fail):
        (tmp_path / "runs" / "a" / "config.yaml").touch()
    assert os.listdir(tmp_path / "runs" / "a") == ["config.yaml"]


def test_a_lock_that_its_holder_removes_meanwhile_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last holder leaves between our opening of the file and our locking it."""
    lock, removed = fcntl.flock, []

    def remove_first(descriptor: int, operation: int) -> None:
        if not removed:
            removed.append(os.unlink(tmp_path / LOCK))
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    with sole_trainer(tmp_path, pytest.fail):
        assert os.listdir(tmp_path) == [LOCK]
        with pytest.raises(EnvironmentFailure), sole_trainer(tmp_path, pytest.fail):
            pass


def test_a_directory_that_is_replaced_meanwhile_is_noticed_and_left_alone(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with sole_trainer(run, pytest.fail) as require_held:
        require_held()
        run.rename(tmp_path / "old")
        with sole_trainer(run, pytest.fail):
            with pytest.raises(EnvironmentFailure, match="replaced, or the working directory changed"):
                require_held()
            (run / "config.yaml").touch()
        (run / LOCK).touch()  # of a third trainer
    assert sorted(os.listdir(run)) == [LOCK, "config.yaml"]


def test_a_filesystem_without_locks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    said: list[str] = []
    with sole_trainer(tmp_path, said.append):
        pass
    assert said == [f"the filesystem of {tmp_path} has no locks, so gpt cannot keep a second training away"]


def test_a_look_at_a_lock_does_not_take_it(tmp_path: Path) -> None:
    assert not is_held(tmp_path)
    assert os.listdir(tmp_path) == []
    with sole_trainer(tmp_path, pytest.fail):
        assert is_held(tmp_path)
    (tmp_path / LOCK).touch()
    assert not is_held(tmp_path)
    with sole_trainer(tmp_path, pytest.fail):
        pass


@pytest.mark.parametrize("make", [lambda path: path.write_text("theirs"), os.mkfifo], ids=["file", "pipe"])
def test_a_lock_of_another_program_stays_as_it_is(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / LOCK)
    before = (tmp_path / LOCK).stat()
    with pytest.raises(UsageError, match=r"it contains .lock, which no run wrote"), sole_trainer(tmp_path, pytest.fail):
        pass
    assert (tmp_path / LOCK).stat() == before


def test_a_trainer_is_not_turned_away_by_a_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process looks in the moment in which this one locks."""
    lock, looks = fcntl.flock, []

    def looked_at(descriptor: int, operation: int) -> None:
        if len(looks) < 2:
            looks.append(operation)
            raise BlockingIOError
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", looked_at)
    with sole_trainer(tmp_path, pytest.fail):
        assert len(looks) == 2


@pytest.mark.parametrize("content", [b"\0" * 60, b"proc", b"process 7 on a\0\0\0"])
def test_what_a_power_cut_leaves_of_a_lock_is_taken(tmp_path: Path, content: bytes) -> None:
    (tmp_path / LOCK).write_bytes(content)
    with sole_trainer(tmp_path, pytest.fail):
        assert (tmp_path / LOCK).read_text().startswith("process ")


def test_a_lock_holds_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a run can be removed from it."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "write", full)
    with sole_trainer(tmp_path, pytest.fail):
        assert is_held(tmp_path)


def test_a_disk_that_does_not_answer_for_a_moment_ends_no_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object, **__: object) -> os.stat_result:
        raise OSError(errno.EIO, "no answer")

    with sole_trainer(tmp_path, pytest.fail) as require_held:
        with monkeypatch.context() as patched:
            patched.setattr(os, "stat", unreachable)
            require_held()
        require_held()
