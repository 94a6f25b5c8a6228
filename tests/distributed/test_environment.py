"""Which process this one is, by the variables of two launchers."""

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
SRUN = variables("SLURM_JOB_ID=1000 SLURM_STEP_ID=3 SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=6")


@pytest.mark.parametrize(
    "alone",
    [
        variables("PATH=/bin"),
        variables("WORLD_SIZE=1"),
        variables("RANK= WORLD_SIZE= SLURM_STEP_NUM_TASKS="),
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
    first = rank_environment(TORCHRUN | variables("RANK=0 LOCAL_RANK=0 TORCHELASTIC_USE_AGENT_STORE=False"))
    assert first is not None
    assert first.serves


def test_srun_without_torchrun_is_an_error_that_names_both_ways() -> None:
    with pytest.raises(UsageError, match="gpt reads the variables of torchrun") as raised:
        rank_environment(SRUN)
    assert "gpt train --processes N" in (raised.value.hint or "")


def test_torchrun_under_srun_comes_first() -> None:
    assert rank_environment(SRUN | TORCHRUN) == rank_environment(TORCHRUN)


WRONG = (
    (TORCHRUN, "RANK= RANK=8 RANK=-1 WORLD_SIZE= WORLD_SIZE=many LOCAL_RANK= LOCAL_RANK=4 LOCAL_WORLD_SIZE=9"),
    (TORCHRUN, "MASTER_ADDR= MASTER_PORT= MASTER_PORT=70000"),
    (GPT, "GPT_LAUNCHER="),
)


@pytest.mark.parametrize(("given", "change"), [(given, one) for given, changes in WRONG for one in changes.split()])
def test_a_variable_that_makes_no_sense_is_named(given: dict[str, str], change: str) -> None:
    with pytest.raises(UsageError) as raised:
        rank_environment(given | variables(change))
    assert raised.value.where == change.partition("=")[0]
