"""`gpt explain`: show each step of attention with its numbers, for a model's head, a published example or a study."""
