"""Advice before, while and after a training, which follows from its figures alone."""
