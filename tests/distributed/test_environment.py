"""Which process this one is, by the variables of three launchers."""

from __future__ import annotations

import pytest

from gpt_cli.distributed.environment import RankEnvironment, rank_environment
from gpt_cli.errors import UsageError


def variables(text: str) -> dict[str, str]:
    """Variables as a shell lists them."""
    return dict(pair.split("=") for pair in text.split())


GPT = variables("RANK=1 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 GPT_MEETING=/private/gpt-x GPT_LAUNCHER=77")
TORCHRUN = variables("""
RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 MASTER_ADDR=node01 MASTER_PORT=29500
TORCHELASTIC_USE_AGENT_STORE=True TORCHELASTIC_RESTART_COUNT=2
""")
# two hosts, four tasks on the first and two on the second
SRUN = variables("""
SLURM_JOB_ID=1000 SLURM_STEP_ID=3 SLURM_PROCID=5 SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_STEP_NUM_TASKS=6
SLURM_STEP_TASKS_PER_NODE=4,2 SLURM_STEP_NODELIST=gpu[03-04,11]
""")


def found(given: dict[str, str], changes: str) -> RankEnvironment:
    """What variables say with some of them changed, of a process that is not alone."""
    rank_env = rank_environment(given | variables(changes))
    assert rank_env is not None
    return rank_env


@pytest.mark.parametrize(
    "alone",
    [
        variables("PATH=/bin"),
        variables("WORLD_SIZE=1"),
        TORCHRUN | variables("WORLD_SIZE=1 RANK=0"),
        SRUN | variables("SLURM_STEP_NUM_TASKS=1"),
        # of an sbatch script without srun: Slurm gives it the number of tasks that it may start
        variables("SLURM_JOB_ID=1000 SLURM_PROCID=0 SLURM_NTASKS=8"),
    ],
)
def test_a_process_without_variables_of_others_is_alone(alone: dict[str, str]) -> None:
    assert rank_environment(alone) is None


def test_a_process_of_gpt_meets_the_others_in_a_private_folder() -> None:
    assert rank_environment(GPT) == RankEnvironment(1, 4, 1, 4, "gpt", "/private/gpt-x", launcher_pid=77)


def test_torchrun_serves_the_store_and_counts_its_restarts() -> None:
    expected = RankEnvironment(5, 8, 1, 4, "torchrun", "node01:29500", num_restarts=2, has_store=True)
    assert rank_environment(TORCHRUN) == expected
    assert not expected.serves


def test_without_the_agent_of_torchrun_the_first_rank_serves_the_store() -> None:
    assert found(TORCHRUN, "RANK=0 LOCAL_RANK=0 TORCHELASTIC_USE_AGENT_STORE=False").serves


def test_tasks_of_srun_meet_on_the_first_host_at_a_port_of_the_step() -> None:
    assert rank_environment(SRUN) == RankEnvironment(5, 6, 1, 2, "srun", f"gpu03:{15000 + (31 * 1000 + 3) % 15000}")


def test_tasks_of_srun_on_one_host_stay_on_it() -> None:
    rank_env = found(SRUN, "SLURM_STEP_TASKS_PER_NODE=6 SLURM_NODEID=0 SLURM_LOCALID=5")
    assert (rank_env.local_size, rank_env.address.partition(":")[0]) == (6, "127.0.0.1")


def test_a_given_address_comes_before_that_of_the_step() -> None:
    assert found(SRUN, "MASTER_ADDR=head MASTER_PORT=4000").address == "head:4000"


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
    assert found(SRUN, f"SLURM_STEP_NODELIST={hosts}").address.partition(":")[0] == first


def test_hosts_with_equally_many_tasks_are_counted() -> None:
    many = "SLURM_STEP_TASKS_PER_NODE=4(x2),2 SLURM_STEP_NUM_TASKS=10 SLURM_NODEID=2 SLURM_PROCID=9"
    assert found(SRUN, many).local_size == 2


def test_torchrun_under_srun_comes_first() -> None:
    assert rank_environment(SRUN | TORCHRUN) == rank_environment(TORCHRUN)


WRONG = (
    (TORCHRUN, "RANK= RANK=8 RANK=-1 WORLD_SIZE= WORLD_SIZE=many LOCAL_RANK= LOCAL_RANK=4 LOCAL_WORLD_SIZE=9"),
    (TORCHRUN, "MASTER_ADDR= MASTER_PORT= MASTER_PORT=70000"),
    (GPT, "GPT_LAUNCHER="),
    (SRUN, "SLURM_PROCID= SLURM_LOCALID= SLURM_NODEID=2 SLURM_NODEID= SLURM_JOB_ID= SLURM_STEP_NODELIST="),
    (SRUN, "SLURM_STEP_TASKS_PER_NODE=4x2"),
)


@pytest.mark.parametrize(("given", "change"), [(given, one) for given, changes in WRONG for one in changes.split()])
def test_a_variable_that_makes_no_sense_is_named(given: dict[str, str], change: str) -> None:
    with pytest.raises(UsageError) as raised:
        rank_environment(given | variables(change))
    assert raised.value.where == change.partition("=")[0]
