"""Activation patching: run a corrupt prompt with activations of a clean one, to find parts that carry an answer."""
