"""The commands `gpt tokens`, `attn-dump`, `heads`, `lens`, `patch` and `compare`, which inspect trained models."""
