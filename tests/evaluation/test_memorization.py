from collections.abc import Sequence
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.faults import scaled

from gpt_cli.evaluation import memorization as module
from gpt_cli.evaluation.memorization import copied_share, longest_shared_run

TEXTS = st.text("ab\u2028\U0001f600", max_size=30)


def longest_in_memory(sample: str, text: str) -> str:
    """The readable twin, for a text in one string."""
    longest = ""
    for start in range(len(sample)):
        while start + len(longest) < len(sample) and sample[start : start + len(longest) + 1] in text:
            longest = sample[start : start + len(longest) + 1]
    return longest


def share_in_memory(samples: Sequence[Sequence[int]], training_ids: Sequence[int], n: int) -> float | None:
    """The readable twin, for ids in one list."""
    ngrams = [tuple(sample[i : i + n]) for sample in samples for i in range(len(sample) - n + 1)]
    present = {tuple(training_ids[i : i + n]) for i in range(len(training_ids) - n + 1)}
    return sum(ngram in present for ngram in ngrams) / len(ngrams) if ngrams else None


def test_the_longest_run_is_found_at_any_place() -> None:
    assert longest_shared_run(["xxabcyy"], ["zabcab"]) == "abc"
    assert longest_shared_run(["春眠不觉晓"], ["处处不", "觉晓处"]) == "不觉晓"
    assert longest_shared_run(["abc"], ["xyz"]) == ""
    assert longest_shared_run(["abc"], ["abc"]) == "abc"
    assert longest_shared_run(["", ""], ["abc"]) == longest_shared_run([], ["abc"]) == ""


@pytest.mark.parametrize("window", [1, 7, 1000])
@settings(max_examples=scaled(100, least=30))
@given(samples=st.lists(TEXTS, min_size=1, max_size=3), blocks=st.lists(TEXTS, max_size=4))
def test_the_longest_run_is_that_of_the_text_in_one_string(window: int, samples: list[str], blocks: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "WINDOW", window)
        found = longest_shared_run(samples, iter(blocks))
    assert found == max((longest_in_memory(sample, "".join(blocks)) for sample in samples), key=len)


def test_the_share_of_copied_ngrams_is_counted_by_hand() -> None:
    training = [np.array([1, 2, 3]), np.array([4, 5])]
    # 12, 23, 39, 91 and 45: the training text contains three of five
    assert copied_share([[1, 2, 3, 9, 1], [4, 5]], training, 2) == pytest.approx(3 / 5)
    assert copied_share([[1, 2]], training, 3) is None
    assert copied_share([[5, 4, 3]], training, 3) == 0


IDS = st.lists(st.sampled_from([0, 1, 2, 50_000]), max_size=20)


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
@settings(max_examples=scaled(100, least=30))
@given(samples=st.lists(IDS, max_size=3), parts=st.lists(IDS, max_size=4), n=st.integers(1, 8))
def test_the_share_is_that_of_the_ids_in_one_list(
    dtype: type, samples: list[list[int]], parts: list[list[int]], n: int
) -> None:
    chunks = (np.array(part, dtype) for part in parts)
    assert copied_share(samples, chunks, n) == share_in_memory(samples, [*chain(*parts)], n)
