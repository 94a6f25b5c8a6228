"""Processes that share the weights leave the same run as one that has them all, and hold less."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support.faults import RESUME, fingerprint, some_of, weights
from support.forks import Servers
from support.helpers import small_config
from support.processes import FORMS, drop_later, trained

from gpt_cli.distributed.collectives import Ranks
from gpt_cli.errors import UsageError
from gpt_cli.training.memory_checks import must_shard

pytestmark = pytest.mark.slow

SHARD = "train.parallel=shard"
SHARED = [case for case in reversed(FORMS) if "train.teacher_share=0.33" not in FORMS[case]]


@pytest.mark.parametrize("case", some_of(SHARED, least=1))
def test_shared_weights_give_the_run_of_one_process(servers: Servers, tmp_path: Path, case: str) -> None:
    alone = trained(servers, tmp_path / "1", 1, SHARD, *FORMS[case])
    for processes in some_of([2, 4, 8], least=1):
        assert trained(servers, tmp_path / str(processes), processes, SHARD, *FORMS[case]) == alone, processes


@pytest.mark.long
def test_a_run_of_shared_weights_continues_on_one_process_and_back(servers: Servers, tmp_path: Path) -> None:
    settings = (SHARD, "train.optimizer=muon", "train.keep_checkpoints=10")
    together, _ = trained(servers, tmp_path / "run", 2, *settings)
    for processes, parallel, stopped_at in ((1, "shard", 4), (2, "shard", 8), (2, "replicate", 4)):
        drop_later(tmp_path / "run/run", stopped_at)
        words = (*RESUME, "--set", f"train.parallel={parallel}")
        ended = servers.gpt(tmp_path / "run", *words, processes=processes)
        assert ended.code == 0, ended.err
        assert fingerprint(tmp_path / "run/run") == together, (processes, parallel)


def test_the_closing_evaluation_takes_the_best_weights_not_the_last(servers: Servers, tmp_path: Path) -> None:
    # few windows, of which the last weights are not the best
    settings = (
        SHARD,
        "train.eval_tokens=64",
        "train.learning_rate=1",
        "train.schedule=stable",
        "train.patience=1",
        "train.keep_checkpoints=1",
    )
    alone = trained(servers, tmp_path / "1", 1, *settings)
    assert trained(servers, tmp_path / "2", 2, *settings) == alone
    best, last = sorted((tmp_path / "2/run/checkpoints").glob("*.safetensors"))
    assert weights(best) != weights(last)


class Two(Ranks):
    """A rank of two on one host, which asks no other."""

    size = local_size = 2


def test_auto_shares_weights_that_memory_cannot_hold_twice() -> None:
    config = small_config("train.micro_batch_size=1", "train.device=cpu", "train.dtype=float32")
    gigabyte = 10**9
    assert not must_shard(config, 257, gigabyte, Two())
    assert must_shard(config, 257, 1000, Two())
    assert not must_shard(config, 257, 1000, Ranks())  # nobody to share them with
    assert not must_shard(config, 257, None, Two())  # nothing is known
    assert must_shard(config.changed(train={"parallel": "shard"}), 257, gigabyte, Two())
    assert not must_shard(config.changed(train={"parallel": "replicate"}), 257, 1000, Two())


def test_a_number_of_micro_batches_whose_tree_is_another_is_refused() -> None:
    """Of twelve, the tree adds three in a row, which rounds of two processes cannot do."""
    settings = ("train.batch_size=12", "train.micro_batch_size=1", "train.device=cpu", "train.parallel=shard")
    with pytest.raises(UsageError) as refused:
        must_shard(small_config(*settings), 257, None, Two())
    assert str(refused.value) == (
        "train.parallel: processes share the weights only where the micro-batches of a step are a power of two, not 12"
    )
    fitting = small_config("train.batch_size=12", "train.micro_batch_size=3", "train.parallel=shard")
    assert refused.value.hint == "‹train.micro_batch_size=3›"
    assert must_shard(fitting, 257, None, Two())


def test_each_process_holds_its_share(tmp_path: Path) -> None:
    """Of the weights in shards, and of those that it owns; while it computes nothing, not one parameter is whole."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, __file__, str(tmp_path)], capture_output=True, text=True, env=environment)
    assert ended.returncode == 0, ended.stderr
    in_shards, owned, whole = (tmp_path / "0").read_text().split()
    others = [int(number) for number in (tmp_path / "1").read_text().split()]
    assert int(in_shards) + others[0] == int(owned) + others[1] == int(whole) == others[2]
    for number in (int(in_shards), int(owned), *others[:2]):
        assert number == pytest.approx(int(whole) / 2, rel=0.05)


def _count(folder: Path, rank: int) -> None:
    """Write the numbers in this rank's shards, in what it owns, and in the whole model, after a forward pass."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", store=FileStore(str(folder / "store"), 2), rank=rank, world_size=2)
    model = GPT(small_config().model, 257)
    whole = sum(parameter.numel() for parameter in model.parameters())
    layout = Sharded(model, ProcessGroup(rank, 2, None), (), torch.device("cpu"))  # type: ignore[arg-type]
    model(torch.zeros(1, 4, dtype=torch.long)).sum().backward()
    layout.sum_gradients()
    shards = sum(shard.to_local().numel() for shard in layout.shards.values())
    assert sum(parameter.to_local().numel() for parameter in model.parameters()) == shards  # type: ignore[operator]
    assert all(shard.grad is None for shard in layout.shards.values())
    owned = sum(parameter.numel() for parameter in layout.owned.values())
    assert owned == sum(p.numel() for p in layout.parameters.values() if not p.is_meta)
    (folder / str(rank)).write_text(f"{shards} {owned} {whole}")
    dist.destroy_process_group()


if __name__ == "__main__":
    import torch.distributed as dist
    from torch.distributed import FileStore  # pyright: ignore[reportPrivateImportUsage]

    from gpt_cli.distributed.process_group import ProcessGroup
    from gpt_cli.model import GPT
    from gpt_cli.training.fsdp import Sharded

    torch.set_num_threads(1)
    other = os.fork()
    _count(Path(sys.argv[1]), int(not other))
    if other:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]))
