"""The page of a test file's CHECKPOINT, on which its TEXT is written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page
from support.browsers import Opened
from support.model_pages import write, written


@pytest.fixture(scope="module")
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("pages") / "model.html", request.module.CHECKPOINT)


@pytest.fixture
def page(request: pytest.FixtureRequest, opened: Opened) -> Iterator[Page]:
    write(opened.page, request.module.TEXT)
    yield opened.page
    assert not opened.page.is_visible("#failure")
