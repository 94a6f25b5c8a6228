"""Does what jobs on stdin say, and prints, as JSON, what Python's audit heard meanwhile that no file may cause.

    python -m support.audited < JOBS

Jobs that are not watched come first: what clean commands import, compile and open is what the others may do too.
"""

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from types import CodeType
from typing import Any

from gpt_cli.__main__ import run
from gpt_cli.checkpoints.checkpoint import read_checkpoint
from gpt_cli.checkpoints.header import read_header
from gpt_cli.cli import train_worker
from gpt_cli.errors import GptError
from gpt_cli.tools.exchange.import_hf import read_foreign
from support.fuzzing import built_once

FORBIDDEN = (
    "exec", "compile", "import", "marshal.", "pickle.", "subprocess.", "ctypes.", "code.", "urllib.", "cpython.run",
    "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.startfile", "os.kill", "os.link", "os.symlink",
    "os.chown", "os.setxattr",
)  # fmt: skip
# of files and directories, which a command may do in its own place
CHANGES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod", "os.utime", "shutil.")
READS = ("open", "os.listdir", "os.scandir")
READ_BY_PYTHON = (sys.prefix, sys.base_prefix, str(Path(__file__).parents[2] / "gpt_cli"), "/proc/", "/sys/", "/dev/")
ANSWERS = (0, 2, 3, 4)
_ADDRESS = re.compile(r"(0x|handle )[0-9a-f]+")


@dataclass(frozen=True)
class Job:
    """Words of `gpt`, those of several commands with && between them, or `load` and a path.

    What they may read and write is below these paths.
    """

    words: Sequence[str]
    reads: Sequence[str] = ()
    writes: Sequence[str] = ()
    watched: bool = True
    answers: Sequence[int] = ANSWERS  # exit codes


@dataclass(frozen=True)
class Heard:
    """What was heard of a job: what it may not do, as `event: what`, and what concerns the network."""

    events: Sequence[str]
    network: Sequence[str]


def audited(folder: Path, jobs: Sequence[Job]) -> list[Heard]:
    """Do these jobs in a process of its own, in that folder. Fails where a command does not end with an answer."""
    folders = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]
    caches = {name: str(folder / "cache") for name in ("XDG_CACHE_HOME", "TIKTOKEN_CACHE_DIR")}
    variables = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    outcome = subprocess.run(
        [sys.executable, "-m", "support.audited"],
        input=json.dumps([asdict(job) for job in jobs]),
        capture_output=True,
        text=True,
        cwd=folder,
        env={**variables, "PYTHONPATH": os.pathsep.join(folders), **caches},
    )
    assert outcome.returncode == 0, outcome.stderr
    return [Heard(**heard) for heard in json.loads(outcome.stdout)]


def load(path: Path) -> None:
    """Read a checkpoint or a directory in all ways that do not need a prompt."""
    with contextlib.suppress(GptError):
        if path.is_dir():
            foreign = read_foreign(path)
            for name in foreign.weights.places:
                foreign.weights.stored(name)
            foreign.tokenizer.encode("a")
        else:
            checkpoint = read_checkpoint(path, everything=True)
            checkpoint.build_model()
            checkpoint.tokenizer.encode("a")
    with contextlib.suppress(GptError):
        assert read_header(path).config


class _Watch:
    """Hears the audit: of a job that is not watched it learns what is usual."""

    def __init__(self) -> None:
        self.job: Job | None = None
        self.usual: set[tuple[str, Any]] = set()
        self.events: list[str] = []
        self.network: list[str] = []

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.job is None:
            return
        if event.startswith("socket.") and event != "socket.gethostname":
            self.network.append(f"{event}: {arguments[1 if event == 'socket.connect' else 0]}"[:500])
            if event in ("socket.getaddrinfo", "socket.connect"):
                raise OSError("this test has no network")
        elif event.startswith(READS) and isinstance(arguments[0], str | bytes):
            self._hear_path(event, arguments)
        elif event.startswith(CHANGES):
            # what is removed or renamed is a link, not what it leads to
            places = [_real(name, directory, follow=False) for name, directory in _names(event, arguments)]
            if self.job.watched and not all(_within(place, self.job.writes) for place in places):
                self.events.append(f"{event}: {places}")
        elif event.startswith(FORBIDDEN) and not (event == "import" and arguments[0] in sys.modules):
            first = arguments[0] if arguments else None
            is_code = isinstance(first, CodeType)
            key = (first.co_filename, first.co_name) if is_code else _ADDRESS.sub("", str(arguments))
            if not self.job.watched:
                self.usual.add((event, key))
            elif (event, key) not in self.usual:
                self.events.append(f"{event}: {key}"[:300])

    def _hear_path(self, event: str, arguments: tuple[Any, ...]) -> None:
        assert self.job is not None
        place = _real(arguments[0])
        writes = event == "open" and bool((arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        if not self.job.watched:
            self.usual.add(("write" if writes else "read", place))
        # rmtree opens by name below a descriptor what it has said to the audit as a whole
        elif sys._getframe(2).f_code.co_filename == shutil.__file__ or _within(place, self.job.writes):
            pass
        elif writes or not (_within(place, [*self.job.reads, *READ_BY_PYTHON]) or ("read", place) in self.usual):
            self.events.append(f"{event}{' to write' * writes}: {place}")


def _names(event: str, arguments: tuple[Any, ...]) -> list[tuple[Any, int]]:
    """The paths of a change, each with the descriptor of the directory that it begins in, or -1."""
    if event == "os.rename":
        return [(arguments[0], arguments[2]), (arguments[1], arguments[3])]
    if event in ("os.remove", "os.rmdir", "shutil.rmtree"):
        return [(arguments[0], -1 if arguments[1] is None else arguments[1])]
    if event in ("os.mkdir", "os.chmod"):
        return [(arguments[0], arguments[2])]
    return [(name, -1) for name in arguments if isinstance(name, str | bytes | os.PathLike)]


def _real(name: str | bytes | int | os.PathLike[str], directory: int = -1, *, follow: bool = True) -> str:
    """A path without links, but for the last part unless that is to be followed."""
    if isinstance(name, int):
        return os.readlink(f"/proc/self/fd/{name}")
    path = os.fsdecode(name)
    if directory >= 0:
        path = os.path.join(os.readlink(f"/proc/self/fd/{directory}"), path)
    folder, last = os.path.split(path)
    return os.path.realpath(path) if follow else os.path.join(os.path.realpath(folder), last)


def _within(place: str, folders: Sequence[str]) -> bool:
    return any((place + "/").startswith(os.path.realpath(folder) + "/") for folder in folders)


def do(job: Job) -> None:
    """Do a job; fails where a command does not end with an answer."""
    if job.words[0] == "load":
        load(Path(job.words[1]))
        return
    for command in ([*words] for between, words in groupby(job.words, "&&".__eq__) if not between):
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as said:
            code = run(command)
        assert code in job.answers, (command, code, said.getvalue())
        # what a model says goes to a pipe as it is
        assert "\x1b" not in said.getvalue() + out.getvalue() * (command[0] != "sample"), command


def main() -> None:
    """Print what was heard of the jobs."""
    jobs = [Job(**words) for words in json.load(sys.stdin)]
    train_worker.leave_picture = lambda *_: None  # as in all tests; a picture takes longer than a training
    "\0".encode("unicode_escape")  # as messages show control characters
    watch, found = _Watch(), []
    sys.addaudithook(watch.hear)
    with built_once():
        for job in jobs:
            watch.job, watch.events, watch.network = job, [], []
            do(job)
            watch.job = None
            found.append(asdict(Heard(watch.events, watch.network)))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
