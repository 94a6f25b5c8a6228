"""The settings of `gpt train` without a config: from figures of a text and of a machine, by fixed rules."""
