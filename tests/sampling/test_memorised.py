from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpt_cli.sampling.memorised import copied_share, longest_shared_run


def test_the_longest_run_is_found_at_any_place() -> None:
    assert longest_shared_run("xxabcyy", "zabcab") == "abc"
    assert longest_shared_run("春眠不觉晓", "处处不觉晓处") == "不觉晓"
    assert longest_shared_run("abc", "xyz") == ""
    assert longest_shared_run("abc", "abc") == "abc"


@given(st.text("ab", max_size=12), st.text("ab", max_size=12))
def test_the_longest_run_is_as_long_as_a_search_of_all_finds(sample: str, text: str) -> None:
    runs = (sample[i:j] for i in range(len(sample)) for j in range(i, len(sample) + 1))
    assert len(longest_shared_run(sample, text)) == max((len(run) for run in runs if run in text), default=0)


def test_the_share_of_copied_ngrams_is_counted_by_hand() -> None:
    training = np.array([1, 2, 3, 4, 5])
    # 12, 23, 39, 91 and 45: the training text contains three of five
    assert copied_share([[1, 2, 3, 9, 1], [4, 5]], training, 2) == pytest.approx(3 / 5)
    assert copied_share([[1, 2]], training, 3) is None
    assert copied_share([[5, 4, 3]], training, 3) == 0
