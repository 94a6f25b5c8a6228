"""Settings: their declaration (schema) and their reading (load)."""

from gpt_cli.config.model import ModelConfig
from gpt_cli.config.schema import Config, DataConfig, InspectConfig, TokenizerConfig, TrainConfig

__all__ = ["Config", "DataConfig", "InspectConfig", "ModelConfig", "TokenizerConfig", "TrainConfig"]
