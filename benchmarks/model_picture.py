"""The picture of a model page that README shows: python -m benchmarks.model_picture PAGE.html PICTURE.png."""

from __future__ import annotations

import argparse
from pathlib import Path

from playwright.sync_api import sync_playwright

from benchmarks.laboratory import find_chromium

PROMPT = "If the object is a class instance, the method of the class is called with the"
HEAD = "layer 1 head 3"
WIDTH, HEIGHT = 1200, 1152  # pixels; the last row of heads ends there


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("picture", type=Path)
    wanted = parser.parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, locale="en-US", color_scheme="light")
        page.goto(wanted.page.resolve().as_uri())
        page.wait_for_selector("html[data-ready]")
        page.fill("#prompt", PROMPT)
        page.click("#step")
        page.click(f'button[aria-label="{HEAD}"]')
        page.click("#off")
        page.wait_for_selector('#model[aria-busy="false"]')
        page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
        page.mouse.move(0, 0)
        page.screenshot(path=wanted.picture)
        browser.close()


if __name__ == "__main__":
    main()
