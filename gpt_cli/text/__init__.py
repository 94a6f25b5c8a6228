"""Text on its way in: corpora, tokenizers, and batches of token ids."""
