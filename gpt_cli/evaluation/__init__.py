"""Evaluation of models: losses with standard errors, answers, memorization."""
