"""Attention weights and other intermediate tensors as arrays, scores of heads, snapshots and pictures."""
