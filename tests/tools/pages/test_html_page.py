"""The shell of every page: what it may do, and that its content is data."""

import base64
import hashlib
import re
from pathlib import Path

import pytest
from support.pages import content_of

from gpt_cli.tools import pages
from gpt_cli.tools.pages.html_page import ATTENTION, MODEL, REPORT, PageParts, build_page

FOLDER = Path(pages.__file__).parent


each_page = pytest.mark.parametrize("parts", [ATTENTION, MODEL, REPORT], ids=lambda parts: parts.folder)


@each_page
def test_it_may_run_only_its_own_script_and_load_nothing_nor_may_its_worker(parts: PageParts) -> None:
    page = build_page(parts, {}, "AAAA").decode()
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', page)
    assert policy
    hashes = {}
    for kind in ("script", "style"):
        inside = re.search(rf"<{kind}>(.*?)</{kind}>", page, re.DOTALL)
        assert inside
        assert ("class GPT" in inside[1]) == (kind == "script" and bool(parts.worker))
        hashes[kind] = f"'sha256-{base64.b64encode(hashlib.sha256(inside[1].encode()).digest()).decode()}'"
    assert policy[1].split("; ") == [
        "default-src 'none'",
        f"script-src {hashes['script']}",
        f"style-src {hashes['style']}",
        "base-uri 'none'",
        "form-action 'none'",
        *(["worker-src blob:"] if parts.worker else []),
    ]
    assert re.findall(r"(?:https?:)?//[a-z]+\.[a-z]+(?!3\.org)", page) == []


@each_page
def test_no_two_scripts_of_a_page_use_one_name_and_no_two_elements_one_id(parts: PageParts) -> None:
    """Of two functions of one name in a scope, the second silently replaces the first; of two ids, one is found."""
    ids = re.findall(r'<[^>]+ id="([^"]+)"', build_page(parts, {}).decode())
    assert len(ids) > 10
    assert sorted(ids) == sorted(set(ids))
    for scripts in (("words.js", "shell.js", *parts.scripts), parts.worker):
        declared = [
            name
            for script in scripts
            for name in re.findall(
                r"^(?:async )?(?:function\*?|class|const|let) (\w+)", (FOLDER / script).read_text("utf-8"), re.MULTILINE
            )
        ]
        assert len(declared) > 20 or not scripts
        assert sorted(declared) == sorted(set(declared))


@each_page
def test_the_script_puts_text_on_the_page_as_text_alone_and_fetches_nothing(parts: PageParts) -> None:
    page = build_page(parts, {}).decode()
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert way not in page
    for way in ("fetch(", "XMLHttpRequest", "importScripts", "WebSocket"):
        assert way not in page


def test_content_is_data_that_no_parser_takes_for_markup() -> None:
    markers = ["{{policy}}", "{{script}}{{content}}", "{{data}}"]
    tokens = ["</script><script>alert(1)</script>", "<!--", "&lt;", "\u2028", "今", *markers]
    page = build_page(ATTENTION, {"tokens": tokens}, "AAAA")
    inside = re.search(rb'id="content">(.*?)</script>', page, re.DOTALL)
    assert inside
    assert not set(inside[1]) & set(b"<>&")
    assert content_of(page)["tokens"] == tokens
    assert inside[1].isascii()


def test_a_page_written_in_chinese_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPT_LANGUAGE", "en")
    assert b'<html lang="en"' in build_page(ATTENTION, {})
    monkeypatch.setenv("GPT_LANGUAGE", "zh")
    assert b'<html lang="zh-CN"' in build_page(ATTENTION, {})


@pytest.mark.parametrize("folder", [".", "attention", "attention_views", "handout", "model", "report"])
def test_both_languages_have_the_same_words(folder: str) -> None:
    text = (FOLDER / folder / "words.js").read_text("utf-8")
    english, chinese = (re.findall(r"^ +(\w+):", part, re.MULTILINE) for part in re.split(r"(?:WORDS\.| )zh\b", text))
    assert len(english) >= 6
    assert [word for word in english if word != "en"] == chinese
