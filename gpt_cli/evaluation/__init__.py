"""Evaluation of models: losses with errors, answers, memorization."""
