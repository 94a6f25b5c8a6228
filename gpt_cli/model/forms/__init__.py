"""Grouped-query and latent attention, cross-attention, and n-gram embeddings, none of them in the default model."""
