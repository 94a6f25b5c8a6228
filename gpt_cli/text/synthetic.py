"""Make synthetic corpora of the catalogue."""

from __future__ import annotations

from string import ascii_lowercase

from gpt_cli.text.conversations import Conversation, Turn


def repeats(_: bytes) -> list[str]:
    """Make 40,000 documents, each 8 to 24 random letters that come two to four times in a row."""
    from gpt_cli.common.rng import random_words, stream_key  # and with it numpy, which other corpora do without

    words = random_words(stream_key(0, "repeats"), 0, 40_000 * 26).reshape(40_000, 26)
    documents = []
    for length, times, *chosen in words.tolist():
        letters = [ascii_lowercase[word % 26] for word in chosen[: 8 + length % 17]]
        documents.append("".join(letters) * (2 + times % 3))
    return documents


def sums(_: bytes) -> list[str]:
    """Make 8,000 of the 10,000 sums of two numbers below 100."""
    return [f"{one}+{two}={one + two}" for one, two in _pairs()[:8000]]


def sum_questions(_: bytes) -> list[str]:
    """Make a question and an answer of each of the other 2,000 sums."""
    conversations = list[str]()
    for one, two in _pairs()[8000:]:
        turns = (Turn("user", f"{one}+{two}"), Turn("assistant", f"{one + two}"))
        conversations.append(Conversation(turns).to_json())
    return conversations


def _pairs() -> list[tuple[int, int]]:
    """Return all pairs of numbers below 100 in an order without a pattern."""
    from gpt_cli.common.rng import permutation, stream_key  # and with it numpy, which other corpora do without

    return [divmod(number, 100) for number in permutation(stream_key(0, "sums"), 10_000).tolist()]
