"""Compute the attention weights of a model and scores of its heads; draw them, and store them during a training."""
