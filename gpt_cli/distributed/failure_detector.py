"""Detect that a rank (by heartbeats) or the launcher is gone, and choose the one rank that reports the reason.

Needs no torch if gpt has started the processes: their heartbeats are files in a folder.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpt_cli.common.machine.failures import reason
from gpt_cli.common.machine.signals import say_at_last
from gpt_cli.distributed.environment import RankEnvironment, process_name
from gpt_cli.errors import EnvironmentFailure

if TYPE_CHECKING:
    from torch.distributed import Store  # pyright: ignore[reportPrivateImportUsage]

STORE = "store"  # the file of the store in a folder
LAUNCHER_RANK = -1  # means the launcher, which may report why all ranks end
# seconds
LOOK_EVERY = 1.0
BEAT_EVERY = 2.0
# learning a tokenizer may keep all threads of a process waiting, but only before the ranks are connected
PATIENCE_BEFORE, PATIENCE = 600.0, 30.0
SUSPENDED = 5.0  # a thread that sleeps this much longer than it asked for was stopped, as by Ctrl-Z
CLAIM_WITHIN = 5.0
LEAVE_WITHIN = 30.0  # after the launcher's end: time for a last save

# returns a clause that names the checkpoint that an ended training leaves, and a hint how to continue
Intact = Callable[[], tuple[str, str | None]]


class Speaker(NamedTuple):
    """The number of the rank that reports to the user why a training ends, and the exit code of all ranks."""

    rank: int
    exit_code: int


class LeftToAnother(Exception):  # noqa: N818 - another rank reports the error
    """Raised to end this rank without a message: another rank reports the reason, and has the same exit code."""

    def __init__(self, exit_code: int):
        super().__init__(exit_code)
        self.exit_code = exit_code


class LostProcess(EnvironmentFailure):
    """The error of a rank that has lost contact with the other ranks, or cannot connect to them."""


class FolderHeartbeats:
    """Heartbeats of the ranks on one machine, as modification times of files in a folder, one file for each rank.

    The files stay open, so that heartbeats continue even if the files are deleted. Methods raise no error:
    a rank whose file cannot be opened has no heartbeat.
    """

    def __init__(self, folder: Path, rank: int, size: int):
        self.folder, self.rank, self.size = folder, rank, size
        self._opened: dict[str, int] = {}
        self._open("said", os.O_CREAT | os.O_APPEND | os.O_RDWR)

    def beat(self) -> None:
        """Record a heartbeat of this rank."""
        descriptor = self._open(f"beat-{self.rank}", os.O_CREAT | os.O_WRONLY)
        if descriptor is not None:
            os.utime(descriptor)

    def beats(self) -> list[int]:
        """Return one number for each rank, which changes with each heartbeat of the rank; 0 before the first."""
        opened = (self._open(f"beat-{rank}", os.O_RDONLY) for rank in range(self.size))
        return [0 if beat is None else os.fstat(beat).st_mtime_ns for beat in opened]

    def claim(self, exit_code: int) -> bool:
        """Claim the right to report why the training ends, with `exit_code`; return whether this claim is the first."""
        line = f"{self.rank} {exit_code}\n".encode()
        try:
            os.write(self._opened["said"], line)
            return os.lseek(self._opened["said"], 0, os.SEEK_CUR) == len(line)
        except (OSError, KeyError):
            return self.rank == 0

    def speaker(self) -> Speaker | None:
        """Return the rank (-1: the launcher) whose claim came first, with its exit code; None before any claim."""
        try:
            return _speaker(os.pread(self._opened["said"], 100, 0).decode().partition("\n")[0])
        except (OSError, KeyError):
            return None

    def _open(self, name: str, flags: int) -> int | None:
        """Open a file of the folder once and keep it open; return its descriptor, or None if it cannot be opened."""
        if name not in self._opened:
            with contextlib.suppress(OSError):
                self._opened[name] = os.open(self.folder / name, flags | os.O_CLOEXEC, 0o600)
        return self._opened.get(name)


class StoreHeartbeats:
    """Heartbeats in a torch.distributed store, used like FolderHeartbeats; `beats` gives [] once the store is gone."""

    def __init__(self, store: Store, rank: int, size: int):
        self.store, self.rank, self.size = store, rank, size

    def beat(self) -> None:
        with contextlib.suppress(RuntimeError):
            self.store.add(f"beat/{self.rank}", 1)

    def beats(self) -> list[int]:
        try:
            return [self.store.add(f"beat/{rank}", 0) for rank in range(self.size)]
        except RuntimeError:
            return []

    def claim(self, exit_code: int) -> bool:
        try:
            first = self.store.add("claims", 1) == 1
            if first:
                self.store.set("said", f"{self.rank} {exit_code}")
        except RuntimeError:
            return self.rank == 0
        return first

    def speaker(self) -> Speaker | None:
        try:
            return _speaker(self.store.get("said").decode()) if self.store.check(["said"]) else None
        except RuntimeError:
            return None


def _speaker(text: str) -> Speaker | None:
    rank, _, code = text.partition(" ")
    return Speaker(int(rank), int(code)) if code else None


Heartbeats = FolderHeartbeats | StoreHeartbeats


class Launcher:
    """The parent process that started this process; if it is gone, this process ends too."""

    def __init__(self, pid: int):
        self._pid = pid
        self._term_sent_at: float | None = None

    def end_if_gone(self) -> None:
        """If the launcher is gone, send SIGTERM to this process; if called again LEAVE_WITHIN seconds later, exit."""
        if self._pid == os.getppid():
            return
        now = time.monotonic()
        if self._term_sent_at is None:
            self._term_sent_at = now
            os.kill(os.getpid(), signal.SIGTERM)
        elif now - self._term_sent_at > LEAVE_WITHIN:
            os._exit(128 + signal.SIGTERM)

    def watch(self) -> None:
        """Call `end_if_gone` every second, in a daemon thread."""

        def look() -> None:
            while True:
                self.end_if_gone()
                time.sleep(LOOK_EVERY)

        threading.Thread(target=look, name="launcher", daemon=True).start()


class FailureDetector:
    """Two threads: one sends and reads heartbeats; the other ends this process if a rank is silent or reading hangs."""

    def __init__(self, rank_env: RankEnvironment, heartbeats: Heartbeats, intact: Intact):
        self.rank_env, self.heartbeats, self.intact = rank_env, heartbeats, intact
        self.patience = PATIENCE_BEFORE
        self.where = [""] * rank_env.size  # host and process number of each rank, once they are known
        self._beats: list[int] = []
        self._looked_at = time.monotonic()
        self._seen = [0] * rank_env.size
        self._moved_at = [self._looked_at] * rank_env.size
        self._launcher = None if rank_env.launcher_pid is None else Launcher(rank_env.launcher_pid)
        self._ended = threading.Event()

    def start(self) -> None:
        """Start the two threads, which send heartbeats and watch for missing ones."""
        for work in (self._beat, self._watch):
            threading.Thread(target=work, name=work.__name__.strip("_"), daemon=True).start()

    def end(self) -> None:
        """Tell both threads to end; from then on, this rank may exit."""
        self._ended.set()

    def silent(self) -> int | None:
        """Return the lowest rank that sent no heartbeat for `patience` seconds, or None if there is no such rank.

        Returns 0 if this rank's own heartbeats do not arrive: then rank 0, which serves the store, has failed.
        """
        now, before = time.monotonic(), self._looked_at
        self._looked_at = now
        if now - before > LOOK_EVERY + SUSPENDED:
            self._moved_at = [now] * self.rank_env.size
        for rank, beat in enumerate(self._beats):
            if beat != self._seen[rank]:
                self._seen[rank], self._moved_at[rank] = beat, now
        late = [rank for rank, moved_at in enumerate(self._moved_at) if now - moved_at > self.patience]
        if self.rank_env.rank in late:
            return 0
        return late[0] if late else None

    def give_up(self, rank: int) -> None:
        """Exit this process at once because `rank` sends no heartbeats; only one of all ranks prints the error."""
        # the disk of the run may be lost too, and then reading it may hang
        threading.Timer(3 * CLAIM_WITHIN, os._exit, (EnvironmentFailure.exit_code,)).start()
        try:
            clause, hint = self.intact()
        except OSError as error:
            clause, hint = f"the run cannot be read: {reason(error)}", None
        seconds = f"it has not answered for {self.patience:.0f} s"
        where = f" ({self.where[rank]})" if self.where[rank] else ""
        failure = EnvironmentFailure(process_name(rank, self.rank_env.size), f"{seconds}{where}; {clause}", hint=hint)
        if self._may_speak(rank, failure.exit_code):
            say_at_last("".join(f"{line}\n" for line in failure.lines()))
        os._exit(failure.exit_code)

    def _beat(self) -> None:
        while not self._ended.is_set():
            self.heartbeats.beat()
            self._beats = self.heartbeats.beats() or self._beats
            self._ended.wait(BEAT_EVERY)

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_EVERY):
            if self._launcher is not None:
                self._launcher.end_if_gone()
            rank = self.silent()
            if rank is not None and not self._ended.is_set():
                self.give_up(rank)

    def _may_speak(self, silent: int, exit_code: int) -> bool:
        """Return whether this rank prints the error: the first to claim it; if claims hang, 0, or 1 if 0 is silent."""
        granted: list[bool] = []
        thread = threading.Thread(target=lambda: granted.append(self.heartbeats.claim(exit_code)), daemon=True)
        thread.start()
        thread.join(CLAIM_WITHIN)
        return granted[0] if granted else self.rank_env.rank == (1 if silent == 0 else 0)
