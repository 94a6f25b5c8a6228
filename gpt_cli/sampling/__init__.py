"""From a model and a prompt to new text."""
