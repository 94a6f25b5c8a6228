"""Advice before, during and after a training, derived from its figures alone."""
