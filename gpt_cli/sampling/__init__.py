"""Sampling from a model, with a cache of earlier tokens."""
