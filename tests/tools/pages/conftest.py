"""The browser that the tests of the page share."""

import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from support.browsers import Opened, OpenPage, ShowPage
from support.scripts import RunScript, run_script


@pytest.fixture(scope="package")  # its event loop runs until it ends, which other tests must not meet
def browser() -> Iterator[Browser]:
    # the first draws no windows, and takes half the time of the others
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    chromium = next(filter(None, map(shutil.which, names)), None)
    if chromium is None:
        told = "no Chromium is installed (Debian: apt install chromium-headless-shell)"
        if os.environ.get("CI"):
            pytest.fail(told)
        pytest.skip(told)
    flags = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium,
            args=[*flags, "--disable-component-update", "--disable-sync"],
            chromium_sandbox=os.geteuid() != 0,
        )
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def _opened(browser: Browser) -> dict[tuple[str, str], Opened]:
    """The page of each language and scheme, which tests share: another page takes longer than another file on it."""
    return {}


@pytest.fixture
def open_page(browser: Browser, _opened: dict[tuple[str, str], Opened]) -> Iterator[OpenPage]:
    """Opens a file, in a language and a scheme; none may complain."""

    def open_page(path: Path, locale: str = "en-US", scheme: str = "light") -> Opened:
        key = (locale, scheme)
        if key in _opened:
            assert _opened[key].complaints == []
            _opened[key].open(path)
        else:
            _opened[key] = Opened(browser, path, locale, scheme)
        return _opened[key]

    for opened in _opened.values():
        opened.complaints.clear()  # of a test that failed
    yield open_page
    assert [opened.complaints for opened in _opened.values() if opened.complaints] == []


@pytest.fixture
def show(open_page: OpenPage, tmp_path: Path) -> Iterator[ShowPage]:
    """Opens a page that is given as bytes, in a language and a scheme; it may not load anything."""
    file, shown = tmp_path / "page.html", list[Opened]()

    def show(page: bytes, locale: str = "en-US", scheme: str = "light") -> Opened:
        file.write_bytes(page)
        shown.append(open_page(file, locale, scheme))
        return shown[-1]

    yield show
    assert all(opened.requests == [file.as_uri()] for opened in shown)


@pytest.fixture
def opened(open_page: OpenPage, file: Path) -> Iterator[Opened]:
    """The page that a test file writes as its fixture `file`; it may not load anything."""
    opened = open_page(file)
    yield opened
    assert opened.requests == [file.as_uri()]


@pytest.fixture
def page(opened: Opened) -> Page:
    """The same page, as playwright has it."""
    return opened.page


@pytest.fixture(name="run_script", scope="package")
def _run_script(browser: Browser) -> Iterator[RunScript]:
    """Calls functions of the pages' scripts: run_script(["shell.js"], "(given) => ...", given)."""
    page = browser.new_page()
    yield partial(run_script, page)
    page.close()
