"""Advice before, while and after a training: pure functions of its figures."""
