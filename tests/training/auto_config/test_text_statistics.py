"""The figures of a text, by numbers that a person can count."""

import random
from typing import Any

import pytest

from gpt_cli.text.documents import TextBlock, in_blocks
from gpt_cli.training.auto_config.text_statistics import describe_examples, text_figures


def test_figures_of_a_text_that_can_be_counted() -> None:
    figures = text_figures(in_blocks(["aabb", "ccdd"]), 8, 8)
    assert (figures.num_bytes, figures.num_characters, figures.num_distinct, figures.entropy) == (8, 8, 4, 2.0)
    assert text_figures(in_blocks(["论语" * 5]), 30, 10).bytes_per_character == 3.0
    assert text_figures(in_blocks(["aaaa"]), 4, 4).entropy == 0.0


def test_byte_pairs_are_counted_on_the_text_itself() -> None:
    words = text_figures(in_blocks(["ab" + " ab" * 999]), 2999, 2999)  # a thousand tokens, in any vocabulary
    assert words.pairs == ((300, 2.999), (512, 2.999), (1024, 2.999), (2048, 2.999), (4096, 2.999))
    assert [words.bytes_per_token(size) for size in (257, 1024, 1500, 50_000)] == pytest.approx(
        [1, 2.999, 2.999, 3.6], 1e-3
    )
    rest = [f"{number * 7919 % 100_003} " for number in range(5000)]
    numbers = text_figures(in_blocks(["".join(rest)]), 1, 1)
    lengths = [length for _, length in numbers.pairs]
    assert lengths == sorted(lengths)
    assert 1.2 < lengths[0] < lengths[-1] < 3  # pairs of digits, and few that are longer
    assert text_figures(in_blocks([""]), 0, 0).bytes_per_token(512) == 1


def test_byte_pairs_of_equally_likely_letters_save_nothing() -> None:
    draw = random.Random(0)
    letters = "".join(draw.choice("ACGT") for _ in range(50_000))
    assert text_figures(in_blocks([letters]), 50_000, 50_000).pair_saving < 0
    words = "".join(draw.choice(("the ", "cat ", "sat ")) for _ in range(10_000))  # letters of 2.9 bits, words of 1.6
    assert text_figures(in_blocks([words]), 40_000, 40_000).pair_saving == pytest.approx(1 - 1.585 / 4 / 2.75, abs=0.1)


def test_only_the_beginning_of_a_long_text_is_read() -> None:
    def blocks() -> Any:
        yield TextBlock(True, "ab" * 500_000)
        pytest.fail("a second megabyte was read")

    assert text_figures(blocks(), 300_000_000, 300_000_000).num_distinct == 2


def test_the_size_of_examples_follows_from_those_that_are_read() -> None:
    """Of 3,000 examples of 1,000 characters, a million characters are read, and every tenth is longer."""
    read = 0

    def blocks() -> Any:
        nonlocal read
        for read in range(1, 3001):
            yield TextBlock(True, "ab" * 450)
            yield TextBlock(False, "ab" * (500 if read % 10 == 0 else 50))

    found = describe_examples(blocks(), 3000)
    assert read == 920  # 910 have 991,900 characters, and nine more pass a million: the next one is not read
    assert found.num_bytes == found.num_characters == pytest.approx(3000 * 1090, rel=0.01)
    assert (found.example_bytes, found.num_documents) == (1900, 3000)
    assert describe_examples([], 0).example_bytes == 0
