from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.helpers import small_config
from support.runs import finish, start

from gpt_cli.common.host import Host
from gpt_cli.errors import EnvironmentFailure
from gpt_cli.training.memory_checks import fitting_device, require_space, snapshot_size
from gpt_cli.training.run import Run


@pytest.mark.parametrize(("batch_size", "hint"), [(8, "‹train.micro_batch_size=4›"), (1, "choose a smaller model")])
def test_where_a_graph_holds_memory_of_the_device_doing_without_is_an_advice(batch_size: int, hint: str) -> None:
    config = small_config(f"train.batch_size={batch_size}")
    for recorded, more in ((False, ""), (True, ", or ‹train.graph=off›")):
        with pytest.raises(EnvironmentFailure) as raised, fitting_device(config, recorded=recorded):
            raise torch.OutOfMemoryError("CUDA out of memory.")
        assert raised.value.hint == f"{hint}{more}; or ‹device=cpu›"


def files_to_come(run: Run, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """The numbers of checkpoints, present ones included, and of new snapshots for which space is required.

    Beside them, space is required for two best checkpoints. All snapshots together are smaller than a checkpoint.
    """
    required: list[int] = []
    monkeypatch.setattr(run.directory, "require_space", lambda needed, **_: required.append(needed))
    require_space(run)
    weights = 4 * run.state.costs.parameters
    to_continue = weights + 4 * run.config.train.stored_per_weight * run.state.costs.num_trained
    num_checkpoints, snapshot_bytes = divmod(required[0] - 2 * weights, to_continue)
    return num_checkpoints, snapshot_bytes // snapshot_size(run)


def test_space_is_required_for_each_file_that_a_run_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ("train.save_every=3", "train.keep_checkpoints=9", "inspect.prompt=4 squared", "inspect.every=3")
    config = small_config(*settings)
    first = start(tmp_path, config)
    assert files_to_come(first, monkeypatch) == (3, 4)  # of steps 3, 6 and 8, and of step 1 too
    finish(first, Host(stop=lambda: 15 if first.progress.step >= 4 else None))
    assert [list(first.directory.steps()), list(first.directory.snapshots())] == [[3, 4], [1, 3]]
    second = start(tmp_path, config, first.directory.newest(print))
    assert files_to_come(second, monkeypatch) == (4, 2)
    finish(second)
    assert [list(second.directory.steps()), list(second.directory.snapshots())] == [[3, 4, 6, 8], [1, 3, 6, 8]]


def test_space_is_required_for_the_weights_that_a_run_begins_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start(tmp_path, small_config("train.save_every=8", "inspect.prompt=4 squared"))
    assert files_to_come(run, monkeypatch)[0] == 1
    run.state.progress = replace(run.progress, began_from="another")
    assert files_to_come(run, monkeypatch)[0] == 2
