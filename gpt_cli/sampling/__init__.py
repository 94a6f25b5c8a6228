"""New text from a model, and how well a model predicts a given text."""
