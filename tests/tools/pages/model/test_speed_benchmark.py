"""The benchmark of the page measures what it says."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from benchmarks.model_page import measured


@pytest.mark.long
def test_the_benchmark_of_the_page_gives_its_size_and_times(browser: Browser, tmp_path: Path) -> None:
    found = measured(browser, "smoke", tmp_path, num_tokens=3)
    assert found["bytes"] == (tmp_path / "smoke.html").stat().st_size
    assert (found["config"], found["kind"], found["parameters"]) == ("smoke", "float16", 59_072)
    assert 0 < found["token"] < found["key"] < found["opened"]
