from __future__ import annotations

import re
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.texts import Twin, cut
from support.texts import pieces as twin_pieces

from gpt_cli.text import blocks as module
from gpt_cli.text.blocks import Block, in_groups, in_pieces, part_of, pieces, split_at

SEPARATORS = ["\n\n", "\n", "aab", "aa", "\r\n", "\n \n", "今🙂", "a\n\na"]
texts = st.text("aab \n\n\r今🙂", max_size=30)


def joined(blocks: Iterable[Block]) -> list[str]:
    found = list[str]()
    for block in blocks:
        assert block.text, "a block is never empty"
        if block.starts:
            found.append("")
        found[-1] += block.text
    return found


sizes = st.lists(st.integers(1, 7), min_size=1, max_size=5)


@given(st.lists(texts, max_size=4), sizes, st.sampled_from(SEPARATORS))
def test_a_separator_is_found_wherever_blocks_are_cut(documents: list[str], sizes: list[int], separator: str) -> None:
    assert joined(split_at(separator, cut(documents, sizes))) == Twin(documents).divided(separator).documents


def test_a_separator_of_windows_that_two_blocks_share() -> None:
    blocks = [Block(True, "one\r"), Block(False, "\n\r"), Block(False, "\ntwo\n"), Block(False, "\nthree")]
    assert joined(split_at("\n\n", blocks)) == re.split("\r?\n\r?\n", "one\r\n\r\ntwo\n\nthree")


@given(st.lists(texts, max_size=4), sizes, st.integers(0, 50), st.integers(0, 50))
def test_a_part_contains_its_characters_and_no_others(
    documents: list[str], sizes: list[int], start: int, length: int
) -> None:
    found = joined(part_of(cut(documents, sizes), start, start + length))
    before = after = 0
    expected = list[str]()
    for document in documents:
        before, after = after, after + len(document)
        expected.append(document[max(0, start - before) : max(0, start + length - before)])
    assert found == [part for part in expected if part]


@given(st.lists(texts, max_size=4), sizes, st.integers(1, 9), st.integers(1, 20))
def test_pieces_and_groups_are_the_same_however_blocks_are_cut(
    documents: list[str], sizes: list[int], max_piece: int, group: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_PIECE", max_piece)
        patch.setattr(module, "GROUP_CHARACTERS", group)
        found = list(in_pieces(cut(documents, sizes)))
        whole = [piece for document in documents if document for piece in twin_pieces(document, max_piece)]
        assert [piece.text for piece in found] == whole
        assert [piece for document in documents for piece in pieces(document)] == whole
        assert joined(found) == [document for document in documents if document]
        groups = list(in_groups(found))
    assert [piece for each in groups for piece in each] == found
    lengths = [sum(len(piece.text) + 32 for piece in each) for each in groups]
    assert all(length >= group for length in lengths[:-1])
    assert all(length < group + max_piece + 32 for length in lengths)
