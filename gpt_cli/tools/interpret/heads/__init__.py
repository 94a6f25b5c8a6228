"""Scores of heads, the loss without each, and the directions that each reads and writes."""
