"""Settings of a run: schema.py and model.py declare them, load.py reads them."""

from gpt_cli.config.model import ModelConfig
from gpt_cli.config.schema import Config, DataConfig, InspectConfig, TokenizerConfig, TrainConfig

__all__ = ["Config", "DataConfig", "InspectConfig", "ModelConfig", "TokenizerConfig", "TrainConfig"]
