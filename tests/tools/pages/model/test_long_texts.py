"""A text that takes the engine long: the page says how far it is, and a newer text does not wait for it."""

from pathlib import Path

from playwright.sync_api import Browser, Page
from support.exchange import sharp_checkpoint
from support.model_pages import settle, write

# a small page, whose attention takes seconds for 2,000 tokens
CHECKPOINT = sharp_checkpoint("model.d_model=64", "model.num_heads=1", "model.context_length=2048")
WATCH = """
  window.told = [];
  window.numStopped = 0;
  window.Worker = class extends Worker {
    constructor(source) {
      super(source);
      this.addEventListener("message", ({ data }) => {
        if (data.progress) told.push([data.progress.done, data.progress.total]);
        numStopped += data.result === null;
      });
    }
  };
"""


def test_a_newer_text_does_not_wait_for_a_long_one(browser: Browser, file: Path) -> None:
    page = browser.new_page(locale="en-US")
    page.add_init_script(WATCH)
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-ready]")
    assert page.is_hidden("#progress")
    page.fill("#prompt", "x" * 2000)
    page.wait_for_selector("#progress:visible")
    assert page.inner_text("#progress-said").endswith(" of 2,000 tokens")
    page.click("#language")
    assert page.inner_text("#progress-said").endswith(" / 2,000 个 token")
    page.click("#language")
    write(page, "ab")
    assert page.is_hidden("#progress")
    assert page.locator(".read").all_text_contents() == ["a", "b"]
    assert page.evaluate("numStopped") == 1
    read = page.evaluate("told.map(([done]) => done)")
    assert read == sorted(read)
    assert 0 < read[-1] < 2000
    page.close()


def test_a_map_of_the_texts_before_stops_and_the_long_text_is_read_all_the_same(page: Page) -> None:
    page.click("#second summary")
    write(page, "ab")
    write(page, "ac", "#other")
    page.fill("#prompt", "x" * 1500)
    page.wait_for_selector("#progress:visible")
    page.click("#patch-go")
    assert page.inner_text("#patch-go") == "stop"
    page.click("#patch-go")
    settle(page)
    assert page.locator(".read").count() == 1500
    write(page, "ab")
    page.fill("#prompt", "x" * 1500)
    page.fill("#other", "abc")  # which has no map with either
    page.wait_for_selector("#progress:visible")
    page.click("#patch-go")
    write(page, "ab")
