"""Figures of a text, from its survey and its first megabytes. Needs no torch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from gpt_cli.text.blocks import Block

SAMPLE_CHARACTERS = 1_000_000


@dataclass(frozen=True)
class TextFigures:
    """The size of a whole text, and what its beginning shows of its script."""

    num_bytes: int
    num_characters: int
    num_distinct: int  # characters of the sample
    entropy: float  # of single characters of the sample, in bits
    longest_example: int = 0  # bytes of a question with its answer that 19 of 20 of the sample do not exceed

    @property
    def bytes_per_character(self) -> float:
        """1 for English, about 2 for Cyrillic, about 3 for Chinese."""
        return self.num_bytes / max(1, self.num_characters)


def describe(blocks: Iterable[Block], num_bytes: int, num_characters: int, *, of_examples: bool = False) -> TextFigures:
    """The figures of a text of that size; of `blocks`, the first million characters are read."""
    counts, lengths, left = Counter[str](), list[int](), SAMPLE_CHARACTERS
    for block in blocks:
        counts.update(block.text[:left])
        if of_examples:
            if block.starts:
                lengths.append(0)
            lengths[-1] += len(block.text.encode())
        left -= len(block.text)
        if left <= 0:
            break
    total = max(1, counts.total())
    entropy = -sum(count / total * math.log2(count / total) for count in counts.values())
    longest = sorted(lengths)[len(lengths) * 19 // 20] if lengths else 0
    return TextFigures(num_bytes, num_characters, len(counts), abs(entropy), longest)
