"""Settings: what they are (schema) and how they are read (reading)."""

from gpt_cli.config.model import ModelConfig
from gpt_cli.config.schema import Config, DataConfig, InspectConfig, TokenizerConfig, TrainConfig

__all__ = ["Config", "DataConfig", "InspectConfig", "ModelConfig", "TokenizerConfig", "TrainConfig"]
