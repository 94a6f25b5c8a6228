"""Scripts of pages, called in Chromium without their page."""

from __future__ import annotations

import pytest
from playwright.sync_api import Error
from support.scripts import RunScript


def test_data_goes_in_and_out(run_script: RunScript) -> None:
    given = {"text": "今天 👩‍💻\n\0", "numbers": [1, 2.5, None]}
    assert run_script(["attention_views/weights.js"], "(given) => ({ ...given, digits: precise(1 / 3) })", given) == {
        **given,
        "digits": "0.333333",
    }
    assert run_script([], "() => new Float32Array([1, NaN])") == [1, None]
    assert run_script([], "async () => { await null; }") is None


def test_an_exception_is_raised_with_its_message(run_script: RunScript) -> None:
    with pytest.raises(Error, match="no such head"):
        run_script([], '() => { throw new Error("no such head"); }')
