"""Forms that a config may choose in place of multi-head attention, and parts that the default model does not use."""
