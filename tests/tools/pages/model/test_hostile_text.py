"""No token, prompt or name does anything on the page of a model."""

from pathlib import Path

import pytest
from support.browsers import Opened, OpenPage
from support.exchange import sharp_checkpoint
from support.hostile import CALL, PAYLOADS
from support.model_pages import candidates, press, settle, write, written

from gpt_cli.text.tokenizers import BytePairTokenizer

# each payload is a token: what stands between tabs, which the vocabulary has as a whole
TOKENIZER = BytePairTokenizer(
    "tiktoken", r"[^\t]+|\t", [*(bytes([byte]) for byte in range(256)), *(text.encode() for text in PAYLOADS)]
)

# what every second token has, the first among them, after it told all that the page says of it
FOCUSED = """tokens => tokens.filter((_, place) => place % 2 === 0).map((token) => {
  token.focus();
  return [token.childElementCount, token.textContent];
})"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    checkpoint = sharp_checkpoint("model.num_blocks=1", tokenizer=TOKENIZER)
    path = tmp_path_factory.mktemp("pages") / "<img src=x onerror=fired(1)>.html"
    return written(path, checkpoint, f"</script><img src=x onerror={CALL}>")


def test_no_text_does_anything(opened: Opened) -> None:
    page = opened.page
    payloads = [payload for payload in PAYLOADS if "\r" not in payload]  # which a field makes a line break
    for some in (payloads[first : first + 12] for first in range(0, len(payloads), 12)):
        write(page, "\t".join(some))
        for tokens in (".read", "#text .token"):
            found = page.locator(tokens).evaluate_all(FOCUSED)
            assert [number for number, _ in found] == [0] * len(some)
            for payload, (_, text) in zip(some, found, strict=True):
                assert text == payload or not payload.isprintable()
        settle(page)
    page.fill("#temperature", "5")
    for _ in range(5):  # whatever comes next
        press(page, ".candidate >> nth=0")
        assert len(candidates(page)) == 12
    page.click("#explaining summary")
    page.keyboard.press("x")
    page.click("#language")
    page.click("#theme")
    settle(page)
    assert f"onerror={CALL}" in page.inner_text("#origin")
    assert CALL in page.inner_text("#text")
    none = ("img", "iframe", "link", "a", "object", "embed", "form", "video", "audio", "base", "marquee")
    assert {name: page.locator(f"body {name}").count() for name in none} == dict.fromkeys(none, 0)
    assert page.evaluate("window.num_fired") == 0


@pytest.mark.parametrize("language", ["en-US", "zh-CN"])
def test_a_name_of_a_run_stays_a_name_in_the_title(open_page: OpenPage, file: Path, language: str) -> None:
    opened = open_page(file, language)
    assert f"</script><img src=x onerror={CALL}>" in opened.page.title()
    assert opened.page.evaluate("window.num_fired") == 0
