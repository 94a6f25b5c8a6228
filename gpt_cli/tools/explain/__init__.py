"""Attention computed step by step with its numbers: a head of a trained model, a published example, small studies."""
