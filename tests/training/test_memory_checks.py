from __future__ import annotations

import pytest
import torch
from support.helpers import small_config

from gpt_cli.errors import EnvironmentFailure
from gpt_cli.training.memory_checks import fitting_device


@pytest.mark.parametrize(("batch_size", "hint"), [(8, "‹train.micro_batch_size=4›"), (1, "choose a smaller model")])
def test_where_a_graph_holds_memory_of_the_device_doing_without_is_an_advice(batch_size: int, hint: str) -> None:
    config = small_config(f"train.batch_size={batch_size}")
    for recorded, before in ((False, ""), (True, "‹train.graph=off›, or ")):
        with pytest.raises(EnvironmentFailure) as raised, fitting_device(config, recorded=recorded):
            raise torch.OutOfMemoryError("CUDA out of memory.")
        assert raised.value.hint == f"{before}{hint}; or ‹device=cpu›"
