"""A page of ours, opened and watched in Chromium."""

import csv
import io
from pathlib import Path
from typing import Protocol

from playwright.sync_api import Browser, Request


class Opened:
    """A page in a context of its own, which opens one file after another; keeps their requests and error messages."""

    def __init__(self, browser: Browser, path: Path, locale: str = "en-US", scheme: str = "light"):
        self.context = browser.new_context(locale=locale, color_scheme="dark" if scheme == "dark" else "light")
        self.context.grant_permissions(["clipboard-read", "clipboard-write"])
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.add_init_script("window.num_fired = 0; window.fired = () => { window.num_fired += 1; }")
        self.context.on("request", self._keep)
        self.open(path)

    def open(self, path: Path) -> None:
        """Show a file as a new page would, which takes longer."""
        self.page.mouse.move(0, 0)
        self.page.set_viewport_size({"width": 1300, "height": 1000})
        self.complaints.clear()
        self.requests.clear()
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready]")

    def _keep(self, request: Request) -> None:
        if not request.url.startswith("blob:"):  # a worker, whose script is text of the page
            self.requests.append(request.url)

    def copied(self) -> list[list[str]]:
        self.page.click("#copy-csv")
        self.page.wait_for_selector("#status:not(:empty)")
        text = self.page.evaluate("navigator.clipboard.readText()")
        return list(csv.reader(io.StringIO(text.replace("\r\n", "\n"), newline="")))


class OpenPage(Protocol):
    """The fixture that opens a file on a page that tests share."""

    def __call__(self, path: Path, locale: str = "en-US", scheme: str = "light") -> Opened: ...


class ShowPage(Protocol):
    """The fixture that opens a page that is given as bytes."""

    def __call__(self, page: bytes, locale: str = "en-US", scheme: str = "light") -> Opened: ...
