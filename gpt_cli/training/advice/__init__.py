"""Advice to the user before, during and after a training, based on the figures of the training alone."""
