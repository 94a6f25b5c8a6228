"""Compare two models."""
