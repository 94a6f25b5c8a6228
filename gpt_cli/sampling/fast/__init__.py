"""Decode one sequence at the speed of memory: products, a decoder in C, weights in 8 bits."""
