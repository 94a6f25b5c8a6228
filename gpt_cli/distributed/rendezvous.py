"""Connect the processes of a training after they have compared their configs, versions and devices."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import FileStore, PrefixStore, Store, TCPStore  # pyright: ignore[reportPrivateImportUsage]

from gpt_cli.common.file_signatures import LOCK
from gpt_cli.common.machine.failures import is_lack_of_files
from gpt_cli.distributed.environment import LOOPBACK, RankEnvironment, process_name
from gpt_cli.distributed.failure_detector import (
    PATIENCE,
    STORE,
    FailureDetector,
    FolderHeartbeats,
    Heartbeats,
    Intact,
    LeftToAnother,
    LostProcess,
    StoreHeartbeats,
)
from gpt_cli.errors import EnvironmentFailure, GptError, UsageError, counted, shown, together, visible

_CONNECT_WITHIN = timedelta(minutes=5)
LEAVE_SECONDS = 10.0
POLL_SECONDS = 0.05
PROBE_SECONDS = 5.0  # a network filesystem may show a new file that much later
# gloo and NCCL end a wait after a timeout; here the watcher ends it, because it knows which ranks live
_NEVER = timedelta(days=7)
_LONGEST_SHOWN = 40  # characters; errors do not show longer values, such as digests


class Rendezvous:
    """The key-value store through which the ranks of a training connect; as a context manager, it watches heartbeats.

    All ranks must see `run_directory`, where rank 0 holds the lock; None skips this check. `intact()` returns, for
    error messages, a clause on the newest checkpoint and a hint. Raises EnvironmentFailure if the store does not open.
    """

    def __init__(self, rank_env: RankEnvironment, run_directory: Path | None, intact: Intact):
        self.rank_env, self.run_directory = rank_env, run_directory
        self._store, self.heartbeats = _open(rank_env)
        self.watcher = FailureDetector(rank_env, self.heartbeats, intact)
        self._num_blocks = 0

    def __enter__(self) -> Rendezvous:
        self.watcher.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.part()
        if kind is None and dist.is_initialized():
            dist.destroy_process_group()
        self._take_leave()

    @contextlib.contextmanager
    def local_rank_zero_first(self) -> Iterator[None]:
        """Run a `with` block on the first rank of each machine before the other ranks of that machine run it."""
        self._num_blocks += 1
        key = f"block/{self._num_blocks}/{socket.gethostname()}"
        if self.rank_env.local_rank:
            self._await(key)
        yield
        if not self.rank_env.local_rank:
            self._store.set(key, "done")

    def meet(self, record: Mapping[str, str], device: torch.device) -> None:
        """Wait for all ranks, compare their records, and connect the ranks with the torch backends for `device`.

        All ranks' records must have equal entries. On all ranks, raises UsageError or EnvironmentFailure that reports
        every difference.
        """
        mine = dict(record)
        mine |= {"threads": str(torch.get_num_threads()), "torch": torch.__version__, "code": digest_of_code()}
        if self.run_directory is not None:
            mine["run directory"] = self._seen_in(self.run_directory)
        about = {"host": socket.gethostname(), "pid": str(os.getpid()), "gpu": _gpu(device)}
        rank, size = self.rank_env.rank, self.rank_env.size
        self._store.set(f"record/{rank}", json.dumps([mine, about]))
        entries = [json.loads(self._await(f"record/{other}")) for other in range(size)]
        records, abouts = zip(*entries, strict=True)
        self.watcher.where = [f"host {visible(about['host'])}, pid {about['pid']}" for about in abouts]
        if problems := [*differences(records, self.watcher.where), *shared_gpus(abouts, self.watcher.where)]:
            raise together(problems)
        try:
            dist.init_process_group(
                _backends(device), store=PrefixStore("group", self._store), rank=rank, world_size=size, timeout=_NEVER
            )
        except RuntimeError as error:
            if is_lack_of_files(error):
                raise
            reason = visible(str(error).splitlines()[0])
            # gloo takes the interface to which the host's own name resolves, which may be loopback
            hint = "between hosts, name the network interface, as in GLOO_SOCKET_IFNAME=eth0"
            raise LostProcess(self.rank_env.name, f"it cannot connect to the others: {reason}", hint=hint) from error
        self.watcher.patience = PATIENCE

    def part(self) -> None:
        """Stop sending and watching heartbeats, so that other ranks may exit while this rank still prints.

        If the launcher is gone, also remove the folder where the processes met, as the launcher would have done.
        """
        self.watcher.end()
        if self.rank_env.launcher_pid not in (None, os.getppid()):
            shutil.rmtree(self.rank_env.address, ignore_errors=True)

    def _await(self, key: str) -> str:
        """Return a key's value once it is set; raise LeftToAnother if another process ends the training before that."""
        while not self._store.check([key]):
            if (speaker := self.heartbeats.speaker()) is not None:
                raise LeftToAnother(speaker.exit_code)
            time.sleep(POLL_SECONDS)
        return self._store.get(key).decode()

    def _seen_in(self, run_directory: Path) -> str:
        """Return the text of the lock file that this rank sees in `run_directory`; "missing" if none appears."""
        path = run_directory / LOCK
        if self.rank_env.rank:
            self._await("record/0")
        deadline = time.monotonic() + PROBE_SECONDS
        while True:
            with contextlib.suppress(OSError):
                return path.read_text(encoding="utf-8", errors="replace")
            if time.monotonic() > deadline:
                return "missing"
            time.sleep(POLL_SECONDS)

    def _take_leave(self) -> None:
        """Make the rank that serves the store exit last, so that all other ranks learn why the training ends.

        Does nothing for a store in a folder: no rank serves it, and the launcher may have removed the folder.
        """
        if self.rank_env.launcher == "gpt":
            return
        with contextlib.suppress(RuntimeError):
            if not self.rank_env.serves:
                self._store.add("left", 1)
                return
            deadline = time.monotonic() + LEAVE_SECONDS
            while self._store.add("left", 0) < self.rank_env.size - 1 and time.monotonic() < deadline:
                time.sleep(POLL_SECONDS)


def _open(rank_env: RankEnvironment) -> tuple[Store, Heartbeats]:
    """Connect to the store that all ranks share; return the store, and the heartbeats that show which ranks live.

    The store is a file in a folder if gpt started the ranks, else a TCP server, with a connection for heartbeats alone.
    """
    rank, size = rank_env.rank, rank_env.size
    if rank_env.launcher == "gpt":
        folder = Path(rank_env.address)
        if not folder.is_dir():  # for which the store would wait
            raise LostProcess(rank_env.name, "the launcher says why")
        return FileStore(str(folder / STORE), -1), FolderHeartbeats(folder, rank, size)
    host, _, port = rank_env.address.rpartition(":")
    if host == "127.0.0.1":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)

    def connected(serves: bool) -> Store:
        store = TCPStore(
            host, int(port), is_master=serves, timeout=_CONNECT_WITHIN, wait_for_workers=False, multi_tenant=True
        )
        return PrefixStore(f"gpt/{rank_env.num_restarts}", store)

    try:
        return connected(rank_env.serves), StoreHeartbeats(connected(False), rank, size)
    except RuntimeError as error:
        reason = visible(str(error).splitlines()[0])
        what = "it cannot listen at" if rank_env.serves else "it cannot reach the first process at"
        sentence = f"{what} {rank_env.address}, {reason}"
        raise EnvironmentFailure(rank_env.name, sentence, hint="set another MASTER_ADDR and MASTER_PORT") from error


def differences(records: Sequence[Mapping[str, str]], where: Sequence[str]) -> Iterator[GptError]:
    """Yield an error for each entry in which a rank's record differs from rank 0's; `where[r]` describes rank r."""
    first, *others = records
    for rank, other in enumerate(others, 1):
        name = f"{process_name(rank, len(records))} ({where[rank]})"
        for key in dict.fromkeys([*first, *other]):
            ours, theirs = first.get(key, ""), other.get(key, "")
            if ours != theirs:
                yield _difference(name, key, ours, theirs)


def _difference(name: str, key: str, first: str, other: str) -> GptError:
    if key == "run directory":
        sentence = "it does not see the run directory of process 0, but all processes must share it"
        return EnvironmentFailure(name, sentence, hint="name a directory on a shared filesystem with ‹out›")
    if key == "code":
        sentence = "its source code of gpt differs from that of process 0"
        return UsageError(name, sentence, hint="install the same version of gpt for all processes")
    if key == "threads":
        sentence = f"it computes with {counted(int(other), 'thread')}, but process 0 with {first}, which changes sums"
        return UsageError(name, sentence, hint="‹threads=1›, or the same OMP_NUM_THREADS for all")
    if max(len(first), len(other)) > _LONGEST_SHOWN:
        return UsageError(name, f"its {key} differs from that of process 0")
    return UsageError(name, f"its {key} is {shown(other)}, but process 0 has {shown(first)}")


def shared_gpus(abouts: Sequence[Mapping[str, str]], where: Sequence[str]) -> list[GptError]:
    """Return [error] if two ranks share a GPU, else []; abouts[r] has rank r's host and gpu, where[r] a description."""
    owners: dict[tuple[str, str], int] = {}
    for rank, about in enumerate(abouts):
        owner = owners.setdefault((about["host"], about["gpu"]), rank)
        if about["gpu"] and owner != rank:
            name = f"{process_name(rank, len(abouts))} ({where[rank]})"
            hint = "start as many processes as there are GPUs, or add ‹device=cpu›"
            return [EnvironmentFailure(name, f"it uses the same GPU as process {owner}", hint=hint)]
    return []


def digest_of_code() -> str:
    """Return the SHA-256, in hexadecimal, of the names and contents of all Python files of gpt_cli."""
    package = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _gpu(device: torch.device) -> str:
    """Return the UUID of the current GPU; "" for a CPU, or if torch does not know the UUID."""
    module = None if device.type == "cpu" else torch.get_device_module(device)
    ask = getattr(module, "get_device_properties", None)
    return str(getattr(ask(), "uuid", "")) if ask else ""


def _backends(device: torch.device) -> str:
    """Return the torch.distributed backends for CPUs and `device`, such as "cpu:gloo,cuda:nccl", or "gloo" for both."""
    backend = dist.Backend.default_device_backend_map.get(device.type, "gloo")
    return f"cpu:gloo,{device.type}:{backend}" if backend != "gloo" and dist.is_backend_available(backend) else "gloo"
