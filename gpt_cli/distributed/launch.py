"""Start the processes of `gpt train --processes N` on this machine, and wait for their end. Needs no torch."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpt_cli.common.files import python_command
from gpt_cli.common.machine.cpu_contention import cores
from gpt_cli.common.machine.signals import STOPS, handling, held_back
from gpt_cli.config import Config
from gpt_cli.distributed.environment import LAUNCHER, LOOPBACK, MEETING, process_name
from gpt_cli.distributed.failure_detector import LAUNCHER_RANK, FolderHeartbeats, Intact
from gpt_cli.errors import EnvironmentFailure, UsageError, counted, shown

# seconds
POLL_EVERY = 0.05
GRACE = 10.0  # in which the other processes may end, once one has failed
AFTER_TERM = 3.0  # from SIGTERM to SIGKILL


def require_fitting(num_processes: int, config: Config, where: str = "‹processes›", *, fixed: bool = False) -> None:
    """Raise UsageError unless `num_processes` is a power of two that divides a step's number of micro-batches.

    The error names the setting `where`. If a smaller micro_batch_size would fit, a hint proposes it, except with
    `fixed`, which means that the config cannot be changed.
    """
    settings = config.train
    if num_processes in (fitting := fitting_sizes(settings.num_micro_batches)):
        return
    *others, most = map(str, fitting)
    numbers = f"{', '.join(others)} or {most} processes" if others else "1 process"
    divisors = (size for size in range(settings.sequences_at_once, 0, -1) if settings.batch_size % size == 0)
    smaller = [size for size in divisors if num_processes in fitting_sizes(settings.batch_size // size)]
    batch = f"a batch of {counted(settings.batch_size, 'sequence')} evenly, {settings.sequences_at_once} at once"
    hint = f"‹train.micro_batch_size={smaller[0]}›" if smaller and not fixed else None
    raise UsageError(where, f"{num_processes} processes cannot share {batch}; {numbers} can", hint=hint)


def fitting_sizes(micro_batches: int) -> list[int]:
    """Return the powers of two that divide `micro_batches`: the numbers of ranks that can share a step evenly."""
    return [1 << bit for bit in range((micro_batches & -micro_batches).bit_length())]


def launch(words: Sequence[str], num_processes: int, config: Config, intact: Intact) -> int:
    """Run `gpt` with the arguments `words` in `num_processes` processes; return the exit code of the training.

    Raises EnvironmentFailure if a process ended without reporting the reason. The error contains the result of
    `intact()`: a clause that names the newest checkpoint, and a hint on how to continue.
    """
    with tempfile.TemporaryDirectory(prefix="gpt-", ignore_cleanup_errors=True) as folder:
        workers, command = Workers(num_processes, Path(folder), intact), [*python_command(), "-m", "gpt_cli", *words]
        with handling((*STOPS, signal.SIGUSR1), workers.hear):
            try:
                workers.start(command, process_environment(num_processes, folder, config))
                return workers.wait()
            finally:
                workers.kill()


def process_environment(num_processes: int, folder: str, config: Config) -> dict[str, str]:
    """Return the environment variables that all processes share; the processes connect through files in `folder`."""
    variables = {
        **os.environ,
        "WORLD_SIZE": str(num_processes),
        "LOCAL_WORLD_SIZE": str(num_processes),
        MEETING: folder,
        LAUNCHER: str(os.getpid()),
        "GLOO_SOCKET_IFNAME": LOOPBACK,
    }
    if config.train.threads is None:
        variables.setdefault("OMP_NUM_THREADS", str(max(1, cores() // num_processes)))
    return variables


class Workers:
    """The processes of a launcher, one per rank; `folder` has their heartbeats, `intact()` names a checkpoint."""

    def __init__(self, size: int, folder: Path, intact: Intact):
        self.size, self.intact = size, intact
        self.heartbeats = FolderHeartbeats(folder, LAUNCHER_RANK, size)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.received: list[int] = []

    def start(self, command: Sequence[str], variables: Mapping[str, str]) -> None:
        """Start a process per rank, in this process group; all ranks share stderr, only rank 0 has stdin and stdout."""
        for rank in range(self.size):
            nowhere = subprocess.DEVNULL if rank else None
            rank_variables = {**variables, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            with held_back(signal.SIGUSR1):
                self.processes.append(subprocess.Popen(command, stdin=nowhere, stdout=nowhere, env=rank_variables))
        for number in self.received:
            self._send(number)

    def wait(self) -> int:
        """Wait until all processes have ended, and return the exit code of the training.

        Once a process has failed or rank 0 has ended, the other processes have GRACE seconds to end; then they receive
        SIGTERM, and later SIGKILL. Raises EnvironmentFailure if a process failed without reporting why.
        """
        failed: list[int] = []  # ranks, in the order of their ends
        last_resorts: list[tuple[float, signal.Signals]] | None = None
        while True:
            codes = [worker.poll() for worker in self.processes]
            if last_resorts is None or len(last_resorts) == 2:  # a process that the launcher ends has not failed first
                failed += [rank for rank, code in enumerate(codes) if code and rank not in failed]
            if None not in codes:
                return self._exit_code({rank: self.processes[rank].returncode for rank in failed})
            if last_resorts is None and (failed or codes[0] is not None):
                at = time.monotonic() + GRACE
                last_resorts = [(at, signal.SIGTERM), (at + AFTER_TERM, signal.SIGKILL)]
            while last_resorts and time.monotonic() > last_resorts[0][0]:
                self.heartbeats.claim(EnvironmentFailure.exit_code)  # else a rank takes this TERM for the user's
                self._send(last_resorts.pop(0)[1])
            time.sleep(POLL_EVERY)

    def kill(self) -> None:
        """Kill the processes that still run."""
        self._send(signal.SIGKILL)
        for worker in self.processes:
            worker.wait()

    def hear(self, number: int, _: object) -> None:
        """Forward a signal: SIGUSR1 to the first process, any other signal to every process."""
        self.received.append(number)
        self._send(number)

    def _send(self, number: int) -> None:
        for worker in self.processes[:1] if number == signal.SIGUSR1 else self.processes:
            worker.send_signal(number)  # does nothing for a process that has ended

    def _exit_code(self, failed: Mapping[int, int]) -> int:
        """Return 0 if no rank failed, the exit code of the rank that reported why, or 128 + n after stop signal n.

        `failed` maps ranks to exit codes, the first failure first. Raises EnvironmentFailure if no rank could report
        the failure, KeyboardInterrupt for a Ctrl-C at the start.
        """
        if not failed:
            return 0
        speaker = self.heartbeats.speaker()
        if speaker is not None and speaker.rank != LAUNCHER_RANK:
            return speaker.exit_code
        first = next(iter(failed.values()))
        if -first in STOPS:  # before the rank handled signals
            if first == -signal.SIGINT:
                raise KeyboardInterrupt
            return 128 - first
        killed = [rank for rank, code in failed.items() if code < 0 and -code not in STOPS]
        if first - 128 in STOPS and not killed:  # the first rank has reported what is saved
            return first
        clause, hint = self.intact()
        if not self.heartbeats.folder.is_dir():
            sentence = f"it was removed, but the processes need it to connect; {clause}"
            raise EnvironmentFailure(shown(self.heartbeats.folder), sentence, hint="TMPDIR=~ chooses another directory")
        if not killed:
            raise EnvironmentFailure("‹processes›", f"the processes lost contact with each other; {clause}", hint=hint)
        number = signal.Signals(-failed[killed[0]])
        why = ", as the system does when memory runs out" if number == signal.SIGKILL else ""
        where = process_name(killed[0], self.size)
        raise EnvironmentFailure(where, f"{number.name} ended it{why}; {clause}", hint=hint)
