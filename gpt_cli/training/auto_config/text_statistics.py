"""Statistics of a text, from its size and its first million characters. Imports no torch."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpt_cli.text.documents import TextBlock
from gpt_cli.text.split_patterns import WORD_PATTERN
from gpt_cli.text.tokenizers import BytePairTokenizer
from gpt_cli.text.train_tokenizer import train_byte_pairs

SAMPLE_CHARACTERS = 1_000_000
_COMPARED = 512  # the vocabulary of byte pairs that is compared with characters
# vocabularies of byte pairs, and how many bytes a token then has in English, about
ENGLISH = ((300, 1.6), (512, 2.2), (1024, 2.7), (2048, 3.3), (4096, 3.8))


@dataclass(frozen=True)
class TextFigures:
    """The size of a whole text, and statistics of its first million characters."""

    num_bytes: int
    num_characters: int
    num_distinct: int  # characters of the sample
    entropy: float  # of single characters of the sample, in bits
    example_bytes: int = 0  # of a question with its answer: the 95th percentile in the sample
    num_documents: int = 1
    pairs: tuple[tuple[int, float], ...] = ENGLISH  # vocabularies of byte pairs, and the bytes of a token
    pair_saving: float = 0.2  # share of the entropy of characters by which that of single byte pairs is lower

    @property
    def bytes_per_character(self) -> float:
        """The mean bytes per character: 1 for English, about 2 for Cyrillic, about 3 for Chinese."""
        return self.num_bytes / max(1, self.num_characters)

    def bytes_per_token(self, vocab_size: int) -> float:
        """Estimate the mean bytes per token of a BPE vocabulary of `vocab_size` tokens; 1 without merges."""
        sizes, lengths = zip((257, 1.0), *self.pairs, (50_000, self.pairs[-1][1] * 1.2), strict=True)
        return float(np.interp(math.log(vocab_size), np.log(sizes), lengths))


def text_figures(
    blocks: Iterable[TextBlock], num_bytes: int, num_characters: int, num_documents: int = 1
) -> TextFigures:
    """Return the statistics of a text of known size, from the first million characters of `blocks`."""
    texts, left = list[str](), SAMPLE_CHARACTERS
    for block in blocks:
        texts.append(block.text[:left])
        left -= len(block.text)
        if left <= 0:
            break
    counts = Counter("".join(texts))
    entropy = _entropy(counts)
    pairs, pair_entropy = _pairs(texts)
    bits = entropy * counts.total()
    saving = 1 - pair_entropy / bits if bits else 0.0
    sizes = (num_bytes, num_characters, len(counts), entropy)
    return TextFigures(*sizes, num_documents=num_documents, pairs=pairs, pair_saving=saving)


def describe_examples(blocks: Iterable[TextBlock], num_examples: int) -> TextFigures:
    """Return the statistics of `num_examples` questions with answers; extrapolate sizes from a million characters."""
    sample, lengths, num_characters = list[TextBlock](), list[int](), 0
    for block in blocks:
        if block.starts:
            if num_characters >= SAMPLE_CHARACTERS:
                break
            lengths.append(0)
        sample.append(block)
        lengths[-1] += len(block.text.encode())
        num_characters += len(block.text)
    times = num_examples / max(1, len(lengths))
    figures = text_figures(sample, round(times * sum(lengths)), round(times * num_characters), num_examples)
    return replace(figures, example_bytes=sorted(lengths)[len(lengths) * 19 // 20] if lengths else 0)


def _entropy(counts: Counter[Any]) -> float:
    """Return the entropy, in bits, of the distribution with these counts."""
    total = max(1, counts.total())
    return abs(sum(count / total * math.log2(count / total) for count in counts.values()))


def _pairs(texts: list[str]) -> tuple[tuple[tuple[int, float], ...], float]:
    """Train BPE; return (vocabulary size, bytes per token) for the sizes in ENGLISH, and the entropy of `texts` (bits).

    The entropy is that of one token at size 512, times the number of tokens. Smaller vocabularies use the first merges.
    """
    learned = train_byte_pairs(texts, max(size for size, _ in ENGLISH)).token_bytes
    num_bytes = max(1, sum(len(text.encode()) for text in texts))
    lengths, bits = list[tuple[int, float]](), 0.0
    for vocab_size, _ in ENGLISH:
        tokenizer = BytePairTokenizer("bpe", WORD_PATTERN, learned[: vocab_size - 1])
        counts = Counter[int]()
        for text in texts:
            counts.update(tokenizer.array(text).tolist())
        lengths.append((vocab_size, num_bytes / max(1, counts.total())))
        if vocab_size == _COMPARED:
            bits = _entropy(counts) * counts.total()
    return tuple(lengths), bits
