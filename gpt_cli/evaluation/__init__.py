"""Measure trained models: losses with standard errors, answers to questions, and copies of the training text."""
