"""Read rank, world size and address of a process from its launcher's environment variables. Needs no torch."""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gpt_cli.errors import UsageError, shown

MEETING = "GPT_MEETING"  # the private folder of the processes that gpt itself has started
LAUNCHER = "GPT_LAUNCHER"  # the PID of the process that has started this one
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"  # the network interface through which a host reaches itself


@dataclass(frozen=True)
class RankEnvironment:
    """Rank, world size and address of one process of a training."""

    rank: int
    size: int
    local_rank: int  # among the processes on this host
    local_size: int
    launcher: Literal["gpt", "torchrun"]
    address: str  # a folder for gpt, otherwise host:port
    launcher_pid: int | None = None  # only if gpt has started this process
    num_restarts: int = 0
    has_store: bool = False  # torchrun serves the store itself; otherwise the first rank does

    @property
    def name(self) -> str:
        """The name of this process in messages, such as "process 1 of 4"."""
        return process_name(self.rank, self.size)

    @property
    def serves(self) -> bool:
        """Whether this process serves the torch.distributed store that all other processes connect to."""
        return self.launcher != "gpt" and self.rank == 0 and not self.has_store


def process_name(rank: int, size: int) -> str:
    """Return the name of a process in messages, such as "process 1 of 4"."""
    return f"process {rank} of {size}"


def rank_environment(environ: Mapping[str, str]) -> RankEnvironment | None:
    """Return rank, world size and address of this process, or None if it trains alone.

    Variables of gpt take precedence over torchrun's. Raises UsageError for variables that are incomplete or contradict
    each other, and for a process that srun has started without torchrun.
    """
    if environ.get(MEETING):
        return _of_torchrun(environ, "gpt", environ[MEETING])
    if environ.get("RANK") or environ.get("WORLD_SIZE") not in (None, "", "1"):
        if _number(environ, "WORLD_SIZE") == 1:
            return None
        return _of_torchrun(environ, "torchrun", _address(environ))
    if environ.get("SLURM_STEP_NUM_TASKS") not in (None, "", "1"):
        sentence = "srun has started this process as one of many, but gpt reads the variables of torchrun"
        hint = "let srun start one torchrun on each host; on one host, gpt train --processes N needs neither"
        raise UsageError("SLURM_STEP_NUM_TASKS", sentence, hint=hint)
    return None


def sweep_of(environ: Mapping[str, str]) -> int | None:
    """Return the PID of the sweep that started this run of one process, or None. A malformed PID raises UsageError."""
    return _number(environ, LAUNCHER) if environ.get(LAUNCHER) else None


def _of_torchrun(environ: Mapping[str, str], launcher: Literal["gpt", "torchrun"], address: str) -> RankEnvironment:
    rank_env = RankEnvironment(
        rank=_number(environ, "RANK"),
        size=_number(environ, "WORLD_SIZE"),
        local_rank=_number(environ, "LOCAL_RANK"),
        local_size=_number(environ, "LOCAL_WORLD_SIZE"),
        launcher=launcher,
        address=address,
        launcher_pid=_number(environ, LAUNCHER) if launcher == "gpt" else None,
        num_restarts=_number(environ, "TORCHELASTIC_RESTART_COUNT", "0") if launcher == "torchrun" else 0,
        has_store=environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
    )
    for lower, higher in (("RANK", "WORLD_SIZE"), ("LOCAL_RANK", "LOCAL_WORLD_SIZE")):
        low, high = _number(environ, lower), _number(environ, higher)
        if low >= high:
            raise UsageError(lower, f"it is {low}, but it must be below {higher}, which is {high}")
    if rank_env.local_size > rank_env.size:
        raise UsageError("LOCAL_WORLD_SIZE", f"it is {rank_env.local_size}, but WORLD_SIZE is {rank_env.size}")
    return rank_env


def _address(environ: Mapping[str, str]) -> str:
    port = _number(environ, "MASTER_PORT")
    if not 0 < port < 2**16:
        raise UsageError("MASTER_PORT", f"{port} is not a port; use one from 1 to 65,535")
    return f"{_text(environ, 'MASTER_ADDR')}:{port}"


def _text(environ: Mapping[str, str], name: str) -> str:
    if not environ.get(name):
        sentence = "it is not set, although other variables show that this process is one of many"
        raise UsageError(name, sentence, hint="start the processes with gpt train --processes or torchrun")
    return environ[name]


def _number(environ: Mapping[str, str], name: str, default: str | None = None) -> int:
    text = environ.get(name) or default or _text(environ, name)
    if not re.fullmatch(r"\d{1,18}", text):
        raise UsageError(name, f"{shown(text)} is not a whole number of at least 0")
    return int(text)
