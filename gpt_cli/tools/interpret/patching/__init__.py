"""Activation patching: use activations of a clean prompt in the forward pass of a corrupt one, to locate an answer."""
