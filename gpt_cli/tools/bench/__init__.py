"""Time training and sampling on this machine, check devices, count the costs of models and the text of corpora."""
