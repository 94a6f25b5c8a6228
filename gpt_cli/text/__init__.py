"""From text to token ids: corpora, tokenizers and the token cache."""
