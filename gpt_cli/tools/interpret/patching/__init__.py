"""Activation patching: activations of a clean prompt in the run of a corrupt one show which part carries an answer."""
