"""Inspect models: tokens, attention maps, head scores, logit lens, activation patching, differences of two models."""
