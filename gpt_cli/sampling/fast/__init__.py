"""Fast decoding, limited by memory bandwidth: matrix products, a decoder in C, 8-bit weights."""
