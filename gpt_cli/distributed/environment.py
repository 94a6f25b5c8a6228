"""Read rank, world size and address of a process from the variables of its launcher. Needs no torch."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gpt_cli.errors import UsageError, shown

MEETING = "GPT_MEETING"  # the private folder of the processes that gpt itself has started
LAUNCHER = "GPT_LAUNCHER"  # the process that started them
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"  # the network interface of a host with itself
_LOWEST_PORT, _NUM_PORTS = 15000, 15000  # below those that systems give to programs that ask for any


@dataclass(frozen=True)
class RankEnvironment:
    """Rank, world size and address of one process of a training."""

    rank: int
    size: int
    local_rank: int  # among those on this host
    local_size: int
    launcher: Literal["gpt", "torchrun", "srun"]
    address: str  # a folder for gpt, otherwise host:port
    launcher_pid: int | None = None  # where gpt has started this process
    num_restarts: int = 0
    has_store: bool = False  # torchrun serves the store itself; otherwise the first rank does

    @property
    def name(self) -> str:
        """The name of this process in messages."""
        return process_name(self.rank, self.size)

    @property
    def serves(self) -> bool:
        """Whether this process serves the store that the others connect to."""
        return self.launcher != "gpt" and self.rank == 0 and not self.has_store


def process_name(rank: int, size: int) -> str:
    """Return the name of a process in messages."""
    return f"process {rank} of {size}"


def rank_environment(environ: Mapping[str, str]) -> RankEnvironment | None:
    """Return rank, world size and address of this process, or None if it trains alone.

    Variables of gpt take precedence over torchrun's, and these over srun's, which may have started torchrun. Raises
    UsageError for variables that are incomplete or contradict each other.
    """
    if environ.get(MEETING):
        return _of_torchrun(environ, "gpt", environ[MEETING])
    if environ.get("RANK") or environ.get("WORLD_SIZE", "1") != "1":
        if _number(environ, "WORLD_SIZE") == 1:
            return None
        return _of_torchrun(environ, "torchrun", _address(environ))
    if environ.get("SLURM_STEP_NUM_TASKS", "1") != "1":
        return _of_srun(environ)
    return None


def sweep_of(environ: Mapping[str, str]) -> int | None:
    """Return the PID of the sweep that started this run, or None; raise UsageError for anything but a number."""
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
    _require_within(rank_env, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    return rank_env


def _of_srun(environ: Mapping[str, str]) -> RankEnvironment:
    per_host = _tasks_per_host(environ)
    host = _number(environ, "SLURM_NODEID", "0" if len(per_host) == 1 else None)
    if host >= len(per_host):
        raise UsageError("SLURM_NODEID", f"there is no host {host} among the {len(per_host)} of this job step")
    if environ.get("MASTER_ADDR"):
        address = _address(environ)
    else:
        name = "127.0.0.1" if len(per_host) == 1 else _first_host(_text(environ, "SLURM_STEP_NODELIST"))
        number = 31 * _number(environ, "SLURM_JOB_ID") + _number(environ, "SLURM_STEP_ID", "0")
        address = f"{name}:{_LOWEST_PORT + number % _NUM_PORTS}"
    rank_env = RankEnvironment(
        rank=_number(environ, "SLURM_PROCID"),
        size=_number(environ, "SLURM_STEP_NUM_TASKS"),
        local_rank=_number(environ, "SLURM_LOCALID"),
        local_size=per_host[host],
        launcher="srun",
        address=address,
    )
    _require_within(rank_env, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE")
    return rank_env


def _tasks_per_host(environ: Mapping[str, str]) -> list[int]:
    """Return the number of tasks on each host: [4, 4, 2] for 4(x2),2."""
    name = "SLURM_STEP_TASKS_PER_NODE"
    matches = [re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part) for part in _text(environ, name).split(",")]
    if any(part is None for part in matches):
        raise UsageError(name, f"{shown(environ[name])} is not a list of numbers such as 4(x2),2")
    return [int(part[1]) for part in matches if part for _ in range(int(part[2] or 1))]


def _first_host(hosts: str) -> str:
    """Return the first name of a list of hosts: node01 of node[01-04,07],other."""
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])+", hosts)
    return re.sub(r"\[(\w+)[^\]]*\]", r"\1", first[0] if first else hosts)


def _address(environ: Mapping[str, str]) -> str:
    port = _number(environ, "MASTER_PORT")
    if not 0 < port < 2**16:
        raise UsageError("MASTER_PORT", f"{port} is no port; use one from 1 to 65,535")
    return f"{_text(environ, 'MASTER_ADDR')}:{port}"


def _require_within(rank_env: RankEnvironment, rank: str, size: str, local_rank: str, local_size: str) -> None:
    """Raise UsageError unless ranks are below their sizes; the strings name the launcher's variables."""
    for low, lower, high, higher in (
        (rank_env.rank, rank, rank_env.size, size),
        (rank_env.local_rank, local_rank, rank_env.local_size, local_size),
    ):
        if low >= high:
            raise UsageError(lower, f"it is {low}, but it must be below {higher}, which is {high}")
    if rank_env.local_size > rank_env.size:
        raise UsageError(local_size, f"it is {rank_env.local_size}, but {size} is {rank_env.size}")


def _text(environ: Mapping[str, str], name: str) -> str:
    if not environ.get(name):
        sentence = "it is not set, although other variables say that this process is one of many"
        raise UsageError(name, sentence, hint="start the processes with gpt train --processes, torchrun or srun")
    return environ[name]


def _number(environ: Mapping[str, str], name: str, default: str | None = None) -> int:
    text = environ.get(name) or default or _text(environ, name)
    if not re.fullmatch(r"\d{1,18}", text):
        raise UsageError(name, f"{shown(text)} is no whole number from 0 on")
    return int(text)
