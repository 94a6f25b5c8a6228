"""The ids of a text that are in the cache, whatever its split and tokenizer: found by its digest, and verified."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gpt_cli.errors import DataError, shown
from gpt_cli.files import cache_directory
from gpt_cli.text.token_files import open_tokens, read_index


@dataclass(frozen=True)
class Prepared:
    """The ids of a text, or of its training or validation part, made with one tokenizer."""

    directory: Path
    kind: str  # of the tokenizer
    vocab_size: int
    num_tokens: int

    def verify(self, count: Callable[[int], object] = lambda _: None) -> None:
        """Compare all files with their digests; `count` receives numbers of tokens. Raises DataError."""
        tokens = open_tokens(self.directory)
        if tokens is None:
            sentence = "a file of these tokens is missing or has the wrong size"
            raise DataError(
                shown(self.directory), sentence, hint="the next gpt data prepare or gpt train writes it again"
            )
        try:
            tokens.verify(count)
        finally:
            tokens.close()


def find_prepared(text: str) -> Iterator[Prepared]:
    """Everything in the cache that was made from the text with this digest.

    Raises EnvironmentFailure for a user without a home directory.
    """
    folder = cache_directory("tokens")
    for directory in sorted(folder.iterdir()) if folder.is_dir() else ():
        # there is no index before a preparation is finished
        if (index := read_index(directory)) and (about := index["about"]).get("text") == text:
            num_tokens = sum(part["tokens"] for part in index["parts"])
            yield Prepared(directory, about["kind"], about["vocab_size"], num_tokens)
