"""`gpt` in forked processes that are killed, refused or signalled at a chosen moment.

The heavy imports happen once, in a server from which each case is forked; so thousands of cases are cheap.
"""

import contextlib
import gc
import importlib
import json
import os
import queue
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import gpt_cli.cli.app  # noqa: F401 - so that no case spends its time on it
from gpt_cli.__main__ import run as main
from gpt_cli.tools.reports import curves_picture
from gpt_cli.training import evaluate_and_log
from support.accelerator import Accelerator
from support.faults import Fault, Operations
from support.users import become_other

# imported so that no case spends its time on it
PRELOADED = (
    "torch._dynamo",
    "gpt_cli.cli.commands",
    "gpt_cli.cli.train",
    "gpt_cli.cli.train_worker",
    "gpt_cli.sampling.sample",
)
SAMPLE_NEW_TOKENS = 8
TIMEOUT = 120.0  # seconds; a case takes less than one
# what to wait for, seconds or a condition, and then the number of the signal
Signals = Sequence[tuple[float | Callable[[], bool], int]]


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit code (as a shell reports it), stderr, seconds from its start and from the signal."""

    code: int
    err: str
    seconds: float
    seconds_after_signal: float


class Server:
    """A process that has imported everything, and forks once for each command; one command at a time."""

    def __init__(self, talk: socket.socket) -> None:
        self.socket = talk
        self.lines = talk.makefile("rw")

    def run(self, request: dict[str, Any], signals: Signals) -> tuple[int, float, float]:
        """Exit code, seconds from the start, and from the last signal."""
        print(json.dumps(request), file=self.lines, flush=True)
        pid = int(self.lines.readline())
        started = time.monotonic()
        watchdog = threading.Timer(TIMEOUT, os.kill, (pid, signal.SIGKILL))
        watchdog.start()
        for awaited, number in signals:
            if callable(awaited):
                while not awaited() and time.monotonic() - started < TIMEOUT:
                    time.sleep(0.005)
            else:
                time.sleep(awaited)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        signalled = time.monotonic()
        code = int(self.lines.readline())
        ended = time.monotonic()
        watchdog.cancel()
        assert ended - started < TIMEOUT, f"hangs: {request}"
        return code, ended - started, ended - signalled

    def close(self) -> None:
        self.lines.close()
        self.socket.close()


class Servers:
    """As many servers as run at once; started when first needed, by forks of one process that has paid for the imports."""

    def __init__(self) -> None:
        self.idle: queue.SimpleQueue[Server] = queue.SimpleQueue()
        self.all: list[Server] = []
        self.first: subprocess.Popen[bytes] | None = None
        self.asks = threading.Lock()

    def start(self) -> Server:
        """One more server."""
        with self.asks:
            if self.first is None:
                self.asking, asked = socket.socketpair()
                tests = str(Path(__file__).parents[1])  # from where the server imports this package
                path = os.pathsep.join(filter(None, [tests, os.environ.get("PYTHONPATH")]))
                environment = os.environ | {"PYTHONPATH": path}
                self.first = subprocess.Popen([sys.executable, __file__], stdin=asked.fileno(), env=environment)
                asked.close()
            talk, theirs = socket.socketpair()
            socket.send_fds(self.asking, [b"!"], [theirs.fileno()])
            theirs.close()
            self.all.append(Server(talk))
            return self.all[-1]

    def gpt(
        self,
        folder: Path,
        *arguments: str,
        fault: Fault | None = None,
        signals: Signals = (),
        terminal: bool = False,
        unprivileged: bool = False,
        largest_file: int | None = None,
        constants: dict[str, int] | None = None,
        stdout: str = "stdout",
        processes: int = 1,
        accelerator: bool = False,
        exits: int | None = None,
    ) -> Ended:
        """Run `gpt` in a forked process in `folder`; sends each signal after its seconds, or when its condition holds.

        `unprivileged` means as another user where the tests are root's (see users.py); `largest_file` limits what may
        be written, in bytes; `constants` replaces some of the program's by their full names, and the cache is then in
        the folder; `stdout` is a file. Where there are to be many processes of one training, they are as
        `gpt train --processes` starts them; the exit code is the largest, and a fault happens in the first.
        With an `accelerator`, each has simulated devices. Fails unless the exit code is `exits`, where that is given.
        """
        try:
            server = self.idle.get_nowait()
        except queue.Empty:
            server = self.start()
        request = {
            "folder": str(folder),
            "arguments": arguments,
            "fault": fault and asdict(fault),
            "terminal": terminal,
            "unprivileged": unprivileged,
            "largest_file": largest_file,
            "constants": constants,
            "stdout": stdout,
            "processes": processes,
            "accelerator": accelerator,
        }
        code, seconds, since = server.run(request, signals)
        self.idle.put(server)
        ended = Ended(code, (folder / "stderr").read_text(), seconds, since)
        assert exits in (None, code), ended.err
        return ended

    def close(self) -> None:
        for server in self.all:
            server.close()
        if self.first is not None:
            self.asking.close()
            self.first.wait()


def serve() -> None:
    """Fork a server for each socket that comes through stdin, until that is closed."""
    for module in PRELOADED:
        importlib.import_module(module)
    # the picture and 64 tokens of a sample take longer than the training; tests/cli/test_report.py draws
    curves_picture.draw_losses = lambda *_: b"\x89PNG\r\n"  # type: ignore[assignment]
    evaluate_and_log.SAMPLE_NEW_TOKENS = SAMPLE_NEW_TOKENS
    torch.set_num_threads(1)
    os.fsync = lambda _: None  # processes are killed here, and no power is cut
    gc.collect()
    gc.freeze()  # a collection in a fork would copy all that it visits
    with socket.socket(fileno=0) as asked:
        while sockets := socket.recv_fds(asked, 1, 1)[1]:
            if os.fork() == 0:
                asked.close()
                _answer(socket.socket(fileno=sockets[0]))
                os._exit(0)
            os.close(sockets[0])


def _answer(talk: socket.socket) -> None:
    """Answer each request with the pid of a fork that runs it, then with its exit code as a shell reports it."""
    lines = talk.makefile("rw")
    for line in lines:
        ready, started = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(ready)
            _child(json.loads(line), started)
        os.close(started)
        os.read(ready, 1)
        os.close(ready)
        print(pid, file=lines, flush=True)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(status if status >= 0 else 128 - status, file=lines, flush=True)


def _child(request: dict[str, Any], started: int) -> None:
    os.chdir(request["folder"])
    for name, descriptor in ((request["stdout"], 1), ("stderr", 2)):
        os.dup2(os.open(name, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o666), descriptor)
    if request["terminal"]:
        master, slave = os.openpty()
        os.dup2(slave, 2)
        threading.Thread(target=lambda: [None for _ in iter(lambda: os.read(master, 4096), b"")], daemon=True).start()
    sys.stdin, sys.stdout, sys.stderr = open(os.devnull), open(1, "w", 1), open(2, "w", 1)  # noqa: SIM115
    if request["largest_file"] is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["largest_file"],) * 2)
    if request["constants"]:
        os.environ["XDG_CACHE_HOME"] = str(Path("cache").absolute())
    for name, value in (request["constants"] or {}).items():
        module, _, constant = name.rpartition(".")
        assert hasattr(importlib.import_module(module), constant), name
        setattr(importlib.import_module(module), constant, value)
    if request["unprivileged"]:
        become_other()
    # until the command listens
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: os._exit(128 + number))
    signal.signal(signal.SIGUSR1, lambda *_: None)
    os.write(started, b"!")
    os.close(started)
    if request["processes"] > 1:
        _become_one_of(request["processes"])
    if request["accelerator"]:
        Accelerator(2).begin()
    fault = request["fault"] if os.environ.get("RANK", "0") == "0" else None
    operations = Operations(Fault(**fault) if fault else lambda *_: None)
    operations.install()
    code = main(list(request["arguments"]))
    sys.stdout.flush()
    Path("operations").write_text(str(operations.count))
    os._exit(code)


def _become_one_of(size: int) -> None:
    """Fork a number of processes of one training, and return in each; this one ends with the largest of their codes."""
    shared = {
        "GPT_MEETING": tempfile.mkdtemp(),
        "GPT_LAUNCHER": str(os.getpid()),
        "GLOO_SOCKET_IFNAME": "lo",
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
    }
    pids = []
    for rank in range(size):
        pids.append(os.fork())
        if pids[-1] == 0:
            os.environ |= shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            return
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    shutil.rmtree(shared["GPT_MEETING"], ignore_errors=True)
    os._exit(max(code if code >= 0 else 128 - code for code in codes))


if __name__ == "__main__":
    serve()
