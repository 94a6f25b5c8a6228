"""Pages of models, opened in Chromium."""

import re
from collections.abc import Sequence
from pathlib import Path

from playwright.sync_api import Page

from gpt_cli.checkpoints.checkpoint import Checkpoint
from gpt_cli.sampling.streaming import TextStream
from gpt_cli.text.tokenizers import Tokenizer
from gpt_cli.tools.exchange.model_page import model_page
from gpt_cli.tools.pages.html_page import MODEL, build_page


def written(
    path: Path, checkpoint: Checkpoint, name: str = "runs/tested", text: str = "", kind: str = "float16"
) -> Path:
    """The file of a page with weights of a kind, which begins with a text."""
    path.write_bytes(build_page(MODEL, *model_page(checkpoint, kind, name, title="", prompt=text)))
    return path


def settle(page: Page) -> None:
    """Wait until the page has shown what follows from all that was done."""
    page.wait_for_selector('#model[aria-busy="false"]')


def write(page: Page, text: str, field: str = "#prompt") -> None:
    """Replace the text of a field."""
    page.fill(field, text)
    settle(page)


def press_key(page: Page, key: str) -> None:
    page.keyboard.press(key)
    settle(page)


def press(page: Page, button: str, times: int = 1) -> None:
    for _ in range(times):
        page.click(button)
    settle(page)


def choose(page: Page, name: str) -> None:
    """Choose a head, such as `layer 1 head 2`."""
    page.click(f'button[aria-label="{name}"]')
    assert page.inner_text("#head-name") == name


def assert_fits(page: Page, *unwanted: str, width: int = 420) -> None:
    """On a screen of this width nothing is wider, and no word is missing or one of those that a language lacks."""
    page.set_viewport_size({"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert not re.search("|".join((r"undefined|null|NaN|\$\{", *unwanted)), page.evaluate("document.body.innerText"))


def candidates(page: Page) -> list[tuple[str, str]]:
    """The labels and the numbers of the bars, from top to bottom."""
    texts = "rows => rows.map(row => ['.word', '.number'].map(part => row.querySelector(part).innerText))"
    return [(label, number) for label, number in page.locator(".candidate").evaluate_all(texts)]


def shown(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """The text of tokens as a field has it: whole characters so far, and one kind of line break."""
    stream = TextStream(tokenizer)
    return "".join(map(stream.feed, ids)).replace("\r\n", "\n").replace("\r", "\n")


def plain(text: str) -> str:
    """Without the marks that set token text apart from its surroundings."""
    return text.replace("\u2068", "").replace("\u2069", "")


def told(page: Page) -> list[str]:
    """What the page says about the chosen cell of a grid."""
    return [plain(text) for text in page.locator(".grid-told p").all_inner_texts()]


def captions(page: Page) -> list[str]:
    """The captions of the heads that are sorted by a score."""
    return [text.replace("\n", " ") for text in page.locator("#sorted .caption").all_inner_texts()]
