"""The page of a model in both languages and themes, on wide and narrow screens."""

import re
from pathlib import Path

import pytest
from support.browsers import OpenPage
from support.exchange import sharp_checkpoint
from support.model_pages import assert_fits, press, settle, write, written
from support.tokenizers import LEARNED

CHECKPOINT = sharp_checkpoint("model.context_length=40", tokenizer=LEARNED)


@pytest.mark.parametrize(
    ("width", "language"),
    [(360, "zh-CN"), *(pytest.param(width, "en-US", marks=pytest.mark.long) for width in (360, 1300))],
)
def test_nothing_is_wider_than_screens(open_page: OpenPage, file: Path, width: int, language: str) -> None:
    page = open_page(file, language).page
    page.set_viewport_size({"width": width, "height": 800})
    write(page, "The value of " * 12 + "x" * 200)
    page.keyboard.press("Escape")
    press(page, "#off")
    page.click("#explaining summary")
    page.click("#second summary")
    for first, second in ((page.input_value("#prompt"), "The value"), ("The value of", "The value is")):
        write(page, first)
        write(page, second, "#other")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    press(page, "#patch-go")
    assert_fits(page, r"\[object", width=width)


def test_it_speaks_chinese_and_english_and_turns_dark(open_page: OpenPage, file: Path) -> None:
    page = open_page(file, "zh-CN", "dark").page
    assert page.get_attribute("html", "lang") == "zh-CN"
    assert page.inner_text("#step") == "续写一个 token"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 24, 29)"
    page.click("#explaining summary")
    press(page, "#off")
    page.click("#language")
    page.click("#theme")
    settle(page)
    assert page.inner_text("#step") == "add one token"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    left = page.evaluate("document.body.innerText").replace("中文", "").replace("今天", "")
    assert not re.search("[\u4e00-\u9fff]", left)


def test_a_page_whose_engine_fails_says_so(open_page: OpenPage, file: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.html"
    broken.write_bytes(re.sub(rb'"shape": \[\d+, \d+\]', b'"shape": [9999999, 9999999]', file.read_bytes()))
    opened = open_page(broken)
    assert opened.page.inner_text("#failure").startswith("The model stopped: ")
    assert not opened.page.is_visible("#model")


def test_where_logits_are_not_finite_nothing_is_written_and_a_newer_text_is_read(
    open_page: OpenPage, tmp_path: Path
) -> None:
    checkpoint = sharp_checkpoint("model.num_blocks=1", "model.norm_position=post")
    checkpoint.weights["token_embedding.weight"][ord("x")] *= 1e30
    page = open_page(written(tmp_path / "huge.html", checkpoint, text="a", kind="int8")).page
    write(page, "ax")
    for button in ("#step", "#play"):
        press(page, button)
        told = "The model stopped: its logits are not finite, since its weights are too large."
        assert page.inner_text("#failure") == told
        assert (page.input_value("#prompt"), page.inner_text("#play")) == ("ax", "play")
    write(page, "a")
    page.locator("#prompt").evaluate("""box => ["ax", "ab"].forEach((text) => {
      box.value = text;
      box.dispatchEvent(new Event("input"));
    })""")
    settle(page)
    assert page.is_hidden("#failure")
    assert page.locator(".read").all_text_contents() == ["a", "b"]
