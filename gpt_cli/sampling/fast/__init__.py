"""One sequence at a time, as fast as the memory reads: products, a decoder in C, weights in 8 bits."""
