"""Attention step by step with its numbers: of a trained head, of a classic example, and in small studies."""
