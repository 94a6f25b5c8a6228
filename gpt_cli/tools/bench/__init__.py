"""Benchmark training and sampling, check devices, estimate the costs of models, and count the text of corpora."""
