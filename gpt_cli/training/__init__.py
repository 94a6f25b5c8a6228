"""Training: from text and a config to a trained model."""
