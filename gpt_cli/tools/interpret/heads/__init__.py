"""Scores of attention heads, the loss without each head, and the directions that each head reads and writes."""
