"""Reset the settings of a config that came with a stranger's model."""

from __future__ import annotations

from gpt_cli.config.field_types import LEARNING
from gpt_cli.config.schema import Config, keys_with


def without_untrusted_settings(config: Config) -> Config:
    """Return the config of a stranger's model, with defaults for all settings that reach beyond the model."""
    safe: dict[str, dict[str, object]] = {}
    for section, _, key in (name.partition(".") for name in keys_with(LEARNING)):
        safe.setdefault(section, {})[key] = getattr(getattr(config, section), key)
    return Config().changed(**safe).model_copy(update={"model": config.model, "tokenizer": config.tokenizer})
