"""The GPT-2 that most tests of imports copy."""

from pathlib import Path

import pytest
from support.exchange import sharp_checkpoint, write_as_others


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    checkpoint = sharp_checkpoint("model.qkv_bias=true", "model.activation=gelu_tanh")
    return write_as_others(tmp_path_factory.mktemp("gpt2") / "hf", checkpoint)
