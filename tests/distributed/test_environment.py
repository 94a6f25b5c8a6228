"""Which process this one is, by the variables of three launchers."""

from __future__ import annotations

import pytest

from gpt_cli.distributed.environment import RankEnvironment, rank_environment
from gpt_cli.errors import UsageError

GPT = {
    "RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "GPT_MEETING": "/private/gpt-x",
    "GPT_LAUNCHER": "77",
}
TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "node01",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
    "TORCHELASTIC_RESTART_COUNT": "2",
}
# two hosts, four tasks on the first and two on the second
SRUN = {
    "SLURM_JOB_ID": "1000",
    "SLURM_STEP_ID": "3",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_NUM_TASKS": "6",
    "SLURM_STEP_TASKS_PER_NODE": "4,2",
    "SLURM_STEP_NODELIST": "gpu[03-04,11]",
}


def test_a_process_without_such_variables_is_alone() -> None:
    assert rank_environment({"PATH": "/bin"}) is None


def test_a_process_of_gpt_meets_the_others_in_a_private_folder() -> None:
    assert rank_environment(GPT) == RankEnvironment(1, 4, 1, 4, "gpt", "/private/gpt-x", launcher_pid=77)


def test_torchrun_serves_the_store_and_counts_its_restarts() -> None:
    expected = RankEnvironment(5, 8, 1, 4, "torchrun", "node01:29500", num_restarts=2, has_store=True)
    assert rank_environment(TORCHRUN) == expected
    assert not expected.serves


def test_without_the_agent_of_torchrun_the_first_rank_serves_the_store() -> None:
    alone = TORCHRUN | {"RANK": "0", "LOCAL_RANK": "0", "TORCHELASTIC_USE_AGENT_STORE": "False"}
    rank_env = rank_environment(alone)
    assert rank_env is not None
    assert rank_env.serves


def test_tasks_of_srun_meet_on_the_first_host_at_a_port_of_the_step() -> None:
    assert rank_environment(SRUN) == RankEnvironment(5, 6, 1, 2, "srun", f"gpu03:{15000 + (31 * 1000 + 3) % 15000}")


def test_tasks_of_srun_on_one_host_stay_on_it() -> None:
    one = SRUN | {"SLURM_STEP_TASKS_PER_NODE": "6", "SLURM_NODEID": "0", "SLURM_LOCALID": "5"}
    rank_env = rank_environment(one)
    assert rank_env is not None
    assert (rank_env.local_size, rank_env.address.partition(":")[0]) == (6, "127.0.0.1")


def test_a_given_address_comes_before_that_of_the_step() -> None:
    rank_env = rank_environment(SRUN | {"MASTER_ADDR": "head", "MASTER_PORT": "4000"})
    assert rank_env is not None
    assert rank_env.address == "head:4000"


@pytest.mark.parametrize(
    ("hosts", "first"),
    [
        ("node7", "node7"),
        ("a,b[1-2]", "a"),
        ("node[01-04,07],b", "node01"),
        ("node[07,01]", "node07"),
        ("rack[2-3]-n[10,12]", "rack2-n10"),
        ("node[5]", "node5"),
    ],
)
def test_the_first_host_of_a_list(hosts: str, first: str) -> None:
    rank_env = rank_environment(SRUN | {"SLURM_STEP_NODELIST": hosts})
    assert rank_env is not None
    assert rank_env.address.partition(":")[0] == first


def test_hosts_with_equally_many_tasks_are_counted() -> None:
    many = SRUN | {
        "SLURM_STEP_TASKS_PER_NODE": "4(x2),2",
        "SLURM_STEP_NUM_TASKS": "10",
        "SLURM_NODEID": "2",
        "SLURM_PROCID": "9",
    }
    rank_env = rank_environment(many)
    assert rank_env is not None
    assert rank_env.local_size == 2


def test_an_sbatch_script_without_srun_is_one_process() -> None:
    """Slurm gives it the number of tasks that it may start."""
    assert rank_environment({"SLURM_JOB_ID": "1000", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"}) is None


def test_a_single_process_of_a_launcher_is_alone() -> None:
    assert rank_environment({"WORLD_SIZE": "1"}) is None
    assert rank_environment(TORCHRUN | {"WORLD_SIZE": "1", "RANK": "0"}) is None
    assert rank_environment(SRUN | {"SLURM_STEP_NUM_TASKS": "1"}) is None


def test_torchrun_under_srun_comes_first() -> None:
    rank_env = rank_environment(SRUN | TORCHRUN)
    assert rank_env is not None
    assert (rank_env.launcher, rank_env.rank) == ("torchrun", 5)


@pytest.mark.parametrize(
    ("variables", "change", "named"),
    [
        (TORCHRUN, {"RANK": ""}, "RANK"),
        (TORCHRUN, {"WORLD_SIZE": ""}, "WORLD_SIZE"),
        (TORCHRUN, {"LOCAL_RANK": ""}, "LOCAL_RANK"),
        (TORCHRUN, {"MASTER_ADDR": ""}, "MASTER_ADDR"),
        (TORCHRUN, {"MASTER_PORT": ""}, "MASTER_PORT"),
        (TORCHRUN, {"MASTER_PORT": "70000"}, "MASTER_PORT"),
        (TORCHRUN, {"RANK": "8"}, "RANK"),
        (TORCHRUN, {"RANK": "-1"}, "RANK"),
        (TORCHRUN, {"LOCAL_RANK": "4"}, "LOCAL_RANK"),
        (TORCHRUN, {"LOCAL_WORLD_SIZE": "9"}, "LOCAL_WORLD_SIZE"),
        (TORCHRUN, {"WORLD_SIZE": "many"}, "WORLD_SIZE"),
        (GPT, {"GPT_LAUNCHER": ""}, "GPT_LAUNCHER"),
        (SRUN, {"SLURM_PROCID": ""}, "SLURM_PROCID"),
        (SRUN, {"SLURM_LOCALID": ""}, "SLURM_LOCALID"),
        (SRUN, {"SLURM_NODEID": "2"}, "SLURM_NODEID"),
        (SRUN, {"SLURM_NODEID": ""}, "SLURM_NODEID"),
        (SRUN, {"SLURM_JOB_ID": ""}, "SLURM_JOB_ID"),
        (SRUN, {"SLURM_STEP_NODELIST": ""}, "SLURM_STEP_NODELIST"),
        (SRUN, {"SLURM_STEP_TASKS_PER_NODE": "4x2"}, "SLURM_STEP_TASKS_PER_NODE"),
    ],
)
def test_variables_that_make_no_sense_are_named(variables: dict[str, str], change: dict[str, str], named: str) -> None:
    with pytest.raises(UsageError) as raised:
        rank_environment(variables | change)
    assert raised.value.where == named
