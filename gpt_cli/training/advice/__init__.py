"""Advice to the user before, during and after a training, based only on the numbers of that training."""
