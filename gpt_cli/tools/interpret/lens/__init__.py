"""Logit lens and tuned lens: the predictions of each layer."""
