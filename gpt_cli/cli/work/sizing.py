"""How large the model of a config is; needs torch."""

from __future__ import annotations

from gpt_cli.config import ModelConfig
from gpt_cli.model.costs import parameters_by_part


def num_parameters(config: ModelConfig, vocab_size: int) -> int:
    """The number of parameters of a model that is not built."""
    return sum(parameters_by_part(config, vocab_size).values())
