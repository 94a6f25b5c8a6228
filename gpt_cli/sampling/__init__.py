"""Sample text from a model with a key-value cache."""
