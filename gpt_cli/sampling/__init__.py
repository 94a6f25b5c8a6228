"""New text from a model and a prompt."""
