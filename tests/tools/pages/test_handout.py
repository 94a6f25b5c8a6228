"""A hand-out for a class, opened from its first page; the title and the prompt are whatever a teacher writes."""

from pathlib import Path

import pytest
from support.browsers import OpenPage
from support.exchange import sharp_checkpoint
from support.hostile import CALL, PAYLOADS
from support.pages import keep, snapshots_of

from gpt_cli.attention_maps.patterns import Origin, dump_attention
from gpt_cli.attention_maps.snapshots import kept_steps
from gpt_cli.tools.exchange.export_model import write_handout
from gpt_cli.tools.exchange.model_page import model_page
from gpt_cli.tools.interpret.attention import with_heads
from gpt_cli.tools.interpret.over_training import make_film

CHECKPOINT = sharp_checkpoint("model.num_blocks=1")


def handout(folder: Path, title: str, prompt: str) -> Path:
    """The first page of a hand-out with a film."""
    page = model_page(CHECKPOINT, "float16", "tested", title=title, prompt=prompt)
    model, tokenizer = CHECKPOINT.build_model(), CHECKPOINT.tokenizer
    ids = tokenizer.encode(prompt)[:80] or [tokenizer.end_of_text]
    origin = Origin("tested", 0, prompt)
    dump = dump_attention(model, tokenizer, ids, layers=[0], heads=[0, 1], origin=origin)
    film = make_film(
        kept_steps(keep(snapshots_of(2, 1, 2, ["One", " text"]), folder / "run")), name="tested", title=title
    )
    write_handout(folder / "class", page, with_heads(dump, model, tokenizer), film)
    return folder / "class" / "index.html"


def test_pages_open_from_the_first_with_title_and_prompt(open_page: OpenPage, tmp_path: Path) -> None:
    opened = open_page(handout(tmp_path, "Lesson 3", "The value"))
    page = opened.page
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.inner_text("h1") == "Lesson 3"
    assert page.title() == "Lesson 3 – gpt"
    assert page.inner_text("#prompt") == "Our text: “The value”"
    assert "tested" in page.inner_text("#origin")
    assert page.locator("#pages a").count() == 3
    titles = []
    for number in range(3):
        page.locator("#pages a").nth(number).click()
        page.wait_for_selector("html[data-ready]")
        titles.append(page.inner_text("h1"))
        if number == 0:
            assert page.input_value("#prompt") == "The value"
        if number == 1:
            assert "“\u2068The value\u2069” · tested" in page.inner_text("#origin")
        page.click("#language")
        titles.append(page.inner_text("h1"))
        page.go_back()
        page.wait_for_selector("#pages a")
    more = ("Attention", "注意力", "Attention over training", "训练过程中的注意力")
    assert titles == ["Lesson 3", "Lesson 3", *(f"Lesson 3 · {kind}" for kind in more)]
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.click("#language")
    assert page.inner_text("h1") == "Lesson 3"
    assert all(url.startswith(tmp_path.as_uri()) for url in opened.requests)


def test_no_title_and_no_prompt_does_anything(open_page: OpenPage, tmp_path: Path) -> None:
    hostile = " ".join(text for text in PAYLOADS if text.isprintable())
    first = handout(tmp_path, hostile, hostile)
    for name in ("index", "model", "attention", "film"):
        opened = open_page(first.with_name(f"{name}.html"))
        opened.page.click("#language")
        assert f"onerror={CALL}" in opened.page.inner_text("h1")
        assert f"onerror={CALL}" in opened.page.title()
        assert opened.page.locator("img, iframe, form, object, base").count() == 0
        assert opened.page.evaluate("window.num_fired") == 0


def test_without_a_title_each_page_has_its_own(open_page: OpenPage, tmp_path: Path) -> None:
    opened = open_page(handout(tmp_path, "", ""))
    assert opened.page.inner_text("h1") == "A model to look into"
    opened.open(tmp_path / "class" / "model.html")
    assert opened.page.inner_text("h1") == "A model that runs on this page"
    assert opened.page.input_value("#prompt") == ""


def test_a_page_written_in_chinese_opens_in_chinese_everywhere(
    open_page: OpenPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPT_LANGUAGE", "zh")
    first = handout(tmp_path, "", "The")
    for name, language in (("index", "en-US"), ("model", "en-US"), ("attention", "zh-CN")):
        opened = open_page(first.with_name(f"{name}.html"), language)
        assert opened.page.inner_text("#language") == "English"
        assert opened.page.evaluate("document.documentElement.lang") == "zh-CN"
        opened.page.click("#language")
        assert opened.page.evaluate("document.documentElement.lang") == "en"
