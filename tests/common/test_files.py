import contextlib
import errno
import os
import shutil
import stat
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import platformdirs
import pytest
from support.faults import Fault, Operations

from gpt_cli.common.files import (
    cache_directory,
    make_directory,
    require_writable,
    write_directory,
    write_durably,
    write_failure,
)
from gpt_cli.errors import EnvironmentFailure
from gpt_cli.tools.exchange.request import require_directory


def test_a_file_is_replaced_whole_and_its_mode_follows_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    before = os.umask(0o027)
    try:
        write_durably(path, [b"ne", memoryview(b"w")])
    finally:
        os.umask(before)
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EACCES], ids=["no fsync of directories", "no listing"])
def test_a_directory_that_cannot_be_synced_is_written_to(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    make_directory(tmp_path / "new")
    write_durably(tmp_path / "new" / "a", [b"whole"])
    assert (tmp_path / "new" / "a").read_bytes() == b"whole"


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")

    def chunks():
        yield b"half"
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(EnvironmentFailure, match="no space left on the filesystem"):
        write_durably(path, chunks())
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_name_may_be_as_long_as_the_filesystem_allows(tmp_path: Path) -> None:
    name = "图" * 85
    write_durably(tmp_path / name, [b"whole"])
    write_directory(tmp_path / "d" / name, {"a": [b"whole"]})
    assert os.listdir(tmp_path / "d") == [name]
    assert sorted(os.listdir(tmp_path)) == ["d", name]


def test_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(EnvironmentFailure, match="not a regular file"):
        write_durably(pipe, [b"x"])
    assert os.listdir(tmp_path) == ["pipe"]


def test_a_missing_directory_is_named_with_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailure, match="no such directory") as raised:
        write_durably(tmp_path / "b" / "a", [b"x"])
    assert raised.value.hint == f"mkdir -p {tmp_path}/b"


def test_caches_are_below_the_folder_that_the_user_chose_or_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_directory("tokens") == Path("/somewhere/gpt-cli/tokens")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/reader")
    assert cache_directory("tokens") == Path("/home/reader/.cache/gpt-cli/tokens")


def test_a_user_without_a_home_is_told_how_to_name_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: str) -> Path:
        raise RuntimeError("no home")

    monkeypatch.setattr(platformdirs, "user_cache_path", refuse)
    with pytest.raises(EnvironmentFailure, match="no home directory") as raised:
        cache_directory("tokens")
    assert raised.value.hint == "set XDG_CACHE_HOME to a folder"


@pytest.mark.parametrize("ever_after", [False, True])
def test_a_directory_is_replaced_whole_or_kept_whatever_operation_fails(
    ever_after: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = {"a": b"old", "b": b"old too"}, {"a": b"new", "c": b"more"}
    directory = tmp_path / "parent" / "d"

    def replaced(fault: Callable[..., None]) -> int:
        """Replace the old one while this fault happens; returns the number of operations."""
        shutil.rmtree(directory.parent, ignore_errors=True)
        write_directory(directory, {name: [content] for name, content in old.items()})
        operations = Operations(fault)
        with monkeypatch.context() as patch, contextlib.suppress(EnvironmentFailure):
            patch.setattr("gpt_cli.common.files.os", operations)
            write_directory(directory, {name: [content] for name, content in new.items()})
        return operations.count

    def found() -> dict[str, bytes]:
        (place,) = directory.parent.iterdir()
        # where nothing can be renamed any more, the old one stays beside
        assert place == directory or ever_after
        return {path.name: path.read_bytes() for path in place.iterdir()}

    num_operations = replaced(lambda *_: None)
    assert found() == new
    assert num_operations == 11  # a directory, two files of three each, its sync, two names, a sync
    for number in range(1, num_operations + 1):
        replaced(Fault(number, "EIO", ever_after))
        assert found() in (old, new)


@pytest.mark.parametrize("directory", [False, True])
@pytest.mark.parametrize("minutes", [50, 70])
def test_what_killed_writers_left_an_hour_ago_goes_with_a_write(tmp_path: Path, directory: bool, minutes: int) -> None:
    """What another writer may still be at work on stays, and what is for another name."""
    names = [".a.old.7.0123abcd.tmp", ".a.new.7.0123abcd.tmp", ".a.7.0123abcd.tmp", ".probe.7.0123abcd.tmp"]
    names = names[:2] if directory else names[2:]
    before = time.time() - 60 * minutes
    for name in [*names, ".aa.7.0123abcd.tmp", "notes.txt"]:
        path = tmp_path / name
        if directory:
            path.mkdir()
            (path / "b").write_text("half")
            os.utime(path / "b", (before, before))
        else:
            path.write_text("half")
        os.utime(path, (before, before))
    (tmp_path / "a").mkdir() if directory else require_writable(tmp_path)
    write_directory(tmp_path / "a", {"b": [b"whole"]}) if directory else write_durably(tmp_path / "a", [b"whole"])
    kept = names if minutes < 60 else []
    assert sorted(os.listdir(tmp_path)) == sorted([*kept, ".aa.7.0123abcd.tmp", "notes.txt", "a"])


def test_the_only_copy_that_a_power_cut_left_stays_until_there_is_another(tmp_path: Path) -> None:
    left = tmp_path / ".a.old.7.0123abcd.tmp"
    left.mkdir()
    os.utime(left, (0, 0))
    for there in (True, False):
        write_directory(tmp_path / "a", {"b": [b"whole"]})
        assert left.exists() == there


def test_free_space_is_that_of_the_filesystem_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder that an export goes into may be a full mount point, whose parent has room."""
    (tmp_path / "full").mkdir()
    free = {tmp_path: 70_000_000_000, tmp_path / "full": 0}
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=free[Path(path)]))

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", refuse)
    with pytest.raises(EnvironmentFailure) as raised:
        require_directory(tmp_path / "full" / "hf", "hf")
    assert raised.value.hint == "0 MB are free there; delete files or choose another directory"
    # of a quota, what is free there says nothing
    assert write_failure(tmp_path / "a", OSError(errno.EDQUOT, "")).hint == "delete files or choose another directory"
