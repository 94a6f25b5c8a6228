"""Attention as arrays: weights, stages, scores of heads, files and pictures."""
