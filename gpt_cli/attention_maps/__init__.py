"""Compute and draw a model's attention weights, score its heads, and store weights and scores during training."""
