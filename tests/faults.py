"""Faults on purpose: `gpt` in forked processes that are killed, refused or signalled at a chosen moment.

The heavy imports happen once, in a server from which each case is forked; so thousands of cases are cheap.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import importlib
import json
import os
import queue
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from helpers import CORPUS_TEXT, small_config

from gpt_cli.checkpoints.checkpoint import read_checkpoint
from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.cli.app import main
from gpt_cli.config.reading import write_config

# imported so that no case spends its time on it
PRELOADED = (
    "torch._dynamo", "gpt_cli.cli.train", "gpt_cli.training.loop", "gpt_cli.training.step", "gpt_cli.checkpoints.discovery",
)  # fmt: skip
# the share of all cases that runs; `make test-long` runs every one
SCALE = float(os.environ.get("GPT_TEST_SCALE", "0.03"))
NUM_WORKERS = 2
TIMEOUT = 120.0  # seconds; a case takes less than one
CHANGING = ("open", "write", "fsync", "replace", "unlink", "rmdir", "mkdir", "ftruncate")

# what to wait for, seconds or a file, and then the number of the signal
Signals = Sequence[tuple[float | Path, int]]
Item = TypeVar("Item")
Result = TypeVar("Result")


def scaled(count: int, least: int = 2) -> int:
    """How many of `count` cases run at this scale."""
    return min(count, max(least, round(count * SCALE)))


def some_of(items: Sequence[Item], least: int = 2) -> list[Item]:
    """Evenly spaced items, the first and the last among them; all at full scale."""
    count = scaled(len(items), least)
    return [items[round(i * (len(items) - 1) / max(1, count - 1))] for i in range(count)]


def in_parallel(case: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """The results of cases, each of which waits for a process of its own."""
    with ThreadPoolExecutor(NUM_WORKERS) as pool:
        return list(pool.map(case, items))


class Operations:
    """Stands for the module `os` in our writers: `before` sees every operation that changes a disk.

    It is called with the operation's number from 1, its name and its arguments.
    """

    def __init__(self, before: Callable[[int, str, tuple[Any, ...]], None]):
        self.before = before
        self.count = 0

    def install(self) -> None:
        for name in ("gpt_cli.files", "gpt_cli.checkpoints.lock"):
            importlib.import_module(name).os = self  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in CHANGING:
            return real

        def counted(*arguments: Any) -> Any:
            reads = name == "open" and not arguments[1] & (os.O_WRONLY | os.O_RDWR)
            if not reads:
                self.count += 1
                self.before(self.count, name, arguments)
            return real(*arguments)

        return counted


@dataclass(frozen=True)
class Fault:
    """What happens at the file operation of that number: kill, torn (half written, then killed), or an errno's name."""

    number: int
    kind: str
    ever_after: bool = False

    def __call__(self, number: int, name: str, arguments: tuple[Any, ...]) -> None:
        if number < self.number or (number > self.number and not self.ever_after):
            return
        if self.kind == "torn" and name == "write":
            os.write(arguments[0], arguments[1][: len(arguments[1]) // 2])
        if self.kind in ("kill", "torn"):
            os.kill(os.getpid(), signal.SIGKILL)
        # removing a file needs no space
        elif name not in ("unlink", "rmdir"):
            raise OSError(getattr(errno, self.kind), os.strerror(getattr(errno, self.kind)))


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit code (as a shell tells it), stderr, seconds from its start and from the signal."""

    code: int
    err: str
    seconds: float
    seconds_after_signal: float


class Server:
    """A process that has imported everything, and forks once for each command; one command at a time."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def run(self, request: dict[str, Any], signals: Signals) -> tuple[int, float, float]:
        """Exit code, seconds from the start, and from the last signal."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        pid = int(self.process.stdout.readline())
        started = time.monotonic()
        watchdog = threading.Timer(TIMEOUT, os.kill, (pid, signal.SIGKILL))
        watchdog.start()
        for awaited, number in signals:
            if isinstance(awaited, Path):
                while not awaited.exists() and time.monotonic() - started < TIMEOUT:
                    time.sleep(0.01)
            else:
                time.sleep(awaited)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        signalled = time.monotonic()
        code = int(self.process.stdout.readline())
        ended = time.monotonic()
        watchdog.cancel()
        assert ended - started < TIMEOUT, f"hangs: {request}"
        return code, ended - started, ended - signalled

    def close(self) -> None:
        self.process.communicate()


class Servers:
    """As many servers as run at once; started when first needed."""

    def __init__(self) -> None:
        self.idle: queue.SimpleQueue[Server] = queue.SimpleQueue()
        self.all: list[Server] = []

    def gpt(
        self,
        folder: Path,
        *arguments: str,
        fault: Fault | None = None,
        signals: Signals = (),
        terminal: bool = False,
        unprivileged: bool = False,
        largest_file: int | None = None,
    ) -> Ended:
        """Run `gpt` in a forked process in `folder`; each signal is sent when what it waits for has come.

        `unprivileged` means that permission bits bind root too, `largest_file` limits what may be written, in bytes.
        """
        try:
            server = self.idle.get_nowait()
        except queue.Empty:
            server = Server()
            self.all.append(server)
        request = {
            "folder": str(folder), "arguments": arguments, "fault": fault and asdict(fault), "terminal": terminal,
            "unprivileged": unprivileged, "largest_file": largest_file,
        }  # fmt: skip
        code, seconds, since = server.run(request, signals)
        self.idle.put(server)
        return Ended(code, (folder / "stderr").read_text(), seconds, since)

    def close(self) -> None:
        for server in self.all:
            server.close()


def serve() -> None:
    """Answer each request on stdin with the pid of a fork that runs it, then with its exit code as a shell tells it."""
    for module in PRELOADED:
        importlib.import_module(module)
    torch.set_num_threads(1)
    for line in sys.stdin:
        ready, started = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(ready)
            _child(json.loads(line), started)
        os.close(started)
        os.read(ready, 1)
        os.close(ready)
        print(pid, flush=True)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(status if status >= 0 else 128 - status, flush=True)


def _child(request: dict[str, Any], started: int) -> None:
    os.chdir(request["folder"])
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        os.dup2(os.open(name, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o666), descriptor)
    if request["terminal"]:
        master, slave = os.openpty()
        os.dup2(slave, 2)
        threading.Thread(target=lambda: [None for _ in iter(lambda: os.read(master, 4096), b"")], daemon=True).start()
    sys.stdin, sys.stdout, sys.stderr = open(os.devnull), open(1, "w", 1), open(2, "w", 1)  # noqa: SIM115
    if request["largest_file"] is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["largest_file"],) * 2)
    if request["unprivileged"]:
        _drop_capabilities()
    # until the command listens
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: os._exit(128 + number))
    signal.signal(signal.SIGUSR1, lambda *_: None)
    operations = Operations(Fault(**request["fault"]) if request["fault"] else lambda *_: None)
    operations.install()
    os.write(started, b"!")
    os.close(started)
    code = main(list(request["arguments"]))
    sys.stdout.flush()
    Path("operations").write_text(str(operations.count))
    os._exit(code)


def _drop_capabilities() -> None:
    """Let permission bits bind this process even where it is root's; see capset(2)."""
    version_3, process = 0x20080522, 0
    header, none = (ctypes.c_uint32 * 2)(version_3, process), (ctypes.c_uint32 * 6)()
    if ctypes.CDLL(None, use_errno=True).capset(header, none) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def new_folder(folder: Path, *settings: str) -> Path:
    """A folder with a corpus and c.yaml, whose run takes 12 steps in a moment and saves three times."""
    folder.mkdir(parents=True)
    (folder / "corpus.txt").write_text(CORPUS_TEXT)
    base = (
        "data.source=corpus.txt", "model.num_blocks=1", "model.dropout=0.2", "train.micro_batch_size=2",
        "train.max_steps=12", "train.log_every=1", "train.eval_every=3", "train.sample_every=6",
    )  # fmt: skip
    (folder / "c.yaml").write_text(write_config(small_config(*base, *settings)))
    return folder


START = ("train", "--config", "c.yaml", "--out", "run")
# continues whatever is there, from nothing at all to a finished run
RESUME = (*START, "--resume")


def weights(checkpoint: Path) -> str:
    """A digest of the weights alone."""
    stored = read_checkpoint(checkpoint)
    tensors = (name.encode() + stored.weights[name].numpy().tobytes() for name in sorted(stored.weights))
    return hashlib.sha256(b"".join(tensors)).hexdigest()


def fingerprint(run: Path) -> str:
    """A digest of all that a run leaves, except what the clock decides and which checkpoints were kept."""
    directory = RunDirectory(run)
    digest = hashlib.sha256()
    for path in (directory.step_file(max(directory.steps())), directory.best):
        stored = read_checkpoint(path, everything=True)
        for name, tensor in sorted([*stored.weights.items(), *stored.moments.items()]):
            digest.update(name.encode() + tensor.numpy().tobytes())
        digest.update(json.dumps(asdict(stored.progress) | {"seconds": 0, "environment": 0}, sort_keys=True).encode())
    for line in directory.metrics.read_text().splitlines():
        digest.update(json.dumps(json.loads(line) | {"seconds": 0, "tokens_per_second": 0}).encode())
    digest.update(directory.samples.read_bytes())
    return digest.hexdigest()


def strays(run: Path) -> list[str]:
    """Files that no finished command may leave: temporary ones and locks."""
    return [str(path) for path in run.rglob(".*")]


if __name__ == "__main__":
    serve()
