from __future__ import annotations

import numpy as np
import pytest

from gpt_cli.errors import DataError
from gpt_cli.text.encoding import check_length
from gpt_cli.text.token_store import validation_windows


def test_an_error_about_too_little_text_has_both_numbers() -> None:
    check_length(np.arange(9), np.arange(2), 8)
    with pytest.raises(DataError, match="8 tokens, but context_length 8 needs at least 9"):
        check_length(np.arange(8), np.arange(2), 8)
    with pytest.raises(DataError, match="validation part has 1 token, but an evaluation needs at least 2"):
        check_length(np.arange(9), np.arange(1), 8)


def test_validation_predicts_each_token_but_the_first_once() -> None:
    windows = validation_windows(25, 8)
    assert windows == [(0, 8), (8, 16), (16, 24)]
    assert validation_windows(22, 8)[-1] == (16, 21)
    assert sum(end - start for start, end in validation_windows(22, 8)) == 21


def test_fewer_validation_tokens_are_evenly_spaced() -> None:
    assert validation_windows(81, 8, eval_tokens=24) == [(0, 8), (24, 32), (48, 56)]
    assert validation_windows(81, 8, eval_tokens=1) == [(0, 8)]
    assert validation_windows(81, 8, eval_tokens=80) == validation_windows(81, 8)
