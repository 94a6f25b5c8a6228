"""Files of a run: checkpoints, metrics and samples, and the search for them."""
