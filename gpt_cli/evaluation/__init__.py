"""How well a model predicts: losses with errors, answers, what it knows by heart."""
