"""`gpt explain`: every step and number of attention, in a model's head, a published example or a small study."""
