"""Trains many runs, one for each point of a sweep, and compares them. Needs no torch, but to count GPUs."""
