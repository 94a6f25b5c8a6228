"""Compare two models on one text: losses, predictions, attention heads and weights."""
