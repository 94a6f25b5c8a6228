"""The forms of attention that a config can choose, and parts that the default model does not use."""
