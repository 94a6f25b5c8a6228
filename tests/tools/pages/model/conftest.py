"""The page of a test file's CHECKPOINT, which begins with its TEXT."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page
from support.browsers import Opened
from support.model_pages import settle, written


@pytest.fixture(scope="module")
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "model.html"
    return written(path, request.module.CHECKPOINT, text=getattr(request.module, "TEXT", ""))


@pytest.fixture
def page(opened: Opened) -> Iterator[Page]:
    settle(opened.page)
    yield opened.page
    assert not opened.page.is_visible("#failure")
