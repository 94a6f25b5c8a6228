"""What `gpt completion` does."""

from __future__ import annotations

from gpt_cli.cli.completing import script
from gpt_cli.cli.terminal import Console


def completion(*, shell: str) -> None:
    """Print what a shell reads to complete the words of `gpt`."""
    Console().result(script(shell))
