"""Text, chances and draws on the page of a model in Chromium; what the engine computes: test_engine.py."""

import math
import re
from pathlib import Path

import numpy as np
import torch
from playwright.sync_api import Page
from support.browsers import OpenPage
from support.engine import rounded
from support.exchange import sharp_checkpoint
from support.model_pages import candidates, plain, press, press_key, settle, shown, write, written
from support.tokenizers import LEARNED, TOKENIZERS

from gpt_cli.common.drawing.token_labels import label_of
from gpt_cli.sampling.decoder import Decoder
from gpt_cli.sampling.generate import continuations
from gpt_cli.sampling.next_token import SamplingParameters, probabilities

CHECKPOINT = sharp_checkpoint("model.positions=rope", "model.context_length=24", tokenizer=LEARNED)
MODEL = rounded(CHECKPOINT, "float16")
TEXT = "The value of 今天"


def chances(ids: list[int], parameters: SamplingParameters) -> np.ndarray:
    with torch.no_grad():
        return probabilities(MODEL(torch.tensor([ids]))[:, -1], parameters)[0].numpy()


def percent(chance: float) -> str:
    share = 100 * chance
    return "<0.1%" if share < 0.1 else f"{share:.1f}%" if share < 99.95 else "100%"


def marked(token: int) -> str:
    label = re.sub("^ ", "␣", label_of(LEARNED.token_text(token), None))
    label = re.sub("␣{5,}", lambda spaces: f"␣×{len(spaces[0])}", label)
    return label if len(label) <= 24 else label[:23] + "…"


def ask_for(page: Page, parameters: SamplingParameters) -> None:
    page.fill("#temperature", str(parameters.temperature))
    page.fill("#top-k", str(parameters.top_k or ""))
    write(page, str(parameters.top_p or ""), "#top-p")


def test_bars_are_the_chances_of_the_next_token(page: Page) -> None:
    sharp, narrow = {"temperature": 1.73, "top_k": 9}, {"temperature": 1, "top_p": 0.4}
    for parameters in (SamplingParameters(), SamplingParameters(**sharp), SamplingParameters(**narrow)):
        ask_for(page, parameters)
        found = chances(LEARNED.encode(TEXT), parameters)
        order = np.argsort(-found, kind="stable")[:12]
        found_rows = candidates(page)
        assert [number for _, number in found_rows] == [
            percent(float(found[token])) if found[token] else "0%" for token in order
        ]
        several = [rank for rank in range(12) if found[order[rank]] > 0]
        assert [found_rows[rank][0] for rank in several] == [marked(int(order[rank])) for rank in several]


def test_a_setting_out_of_its_range_keeps_the_last_one_and_says_so(page: Page) -> None:
    page.fill("#temperature", "0.5")
    page.fill("#temperature", "9")
    write(page, "1.5", "#top-p")
    found = chances(LEARNED.encode(TEXT), SamplingParameters(temperature=0.5))
    assert candidates(page)[0] == (marked(int(found.argmax())), percent(float(found.max())))
    assert page.locator('[aria-invalid="true"]').count() == 2
    assert page.inner_text("#settings-told") == (
        "temperature: use a number from 0 to 5; the page continues with 0.5.\n"
        "top-p: use a number from 0 to 1; the page continues with all."
    )
    page.fill("#temperature", "0.6")
    page.fill("#top-p", "")
    page.fill("#top-k", "1.5")
    page.fill("#seed", "1.5")
    assert page.inner_text("#settings-told") == (
        "top-k: use a whole number of at least 0; the page continues with all.\n"
        "seed: use a whole number from 0 to 9007199254740991; the page continues with 1."
    )
    page.fill("#seed", "99999999999999999999")
    assert page.locator('[aria-invalid="true"]').count() == 2
    page.fill("#seed", "9007199254740991")  # the largest whole number that a page has exactly
    write(page, "", "#top-k")
    assert not page.is_visible("#settings-told")
    assert page.locator('[aria-invalid="true"]').count() == 0


def test_the_last_of_many_changes_is_what_the_page_shows(page: Page) -> None:
    page.focus("#prompt")
    page.keyboard.type(" is the value", delay=1)
    settle(page)
    found = chances(LEARNED.encode(TEXT + " is the value"), SamplingParameters())
    assert candidates(page)[0] == (marked(int(found.argmax())), percent(float(found.max())))


def test_every_token_tells_how_much_the_model_expected_it(page: Page) -> None:
    ids = LEARNED.encode(TEXT)
    with torch.no_grad():
        expected = MODEL(torch.tensor([ids])).log_softmax(-1)[0]
    surprisals = [-float(expected[place - 1, ids[place]]) for place in range(1, len(ids))]
    tokens = page.locator(".read")
    assert tokens.all_text_contents() == [label_of(LEARNED.token_text(token), None) for token in ids]
    for place, surprisal in enumerate(surprisals, 1):
        tokens.nth(place).focus()
        said = plain(page.inner_text("#surprisal"))
        assert f"(token {place}) had a probability of {percent(math.exp(-surprisal))}" in said
        assert f"a surprisal of {surprisal:.3f} nats" in said
        assert f"Loss of this text: {np.mean(surprisals):.4f} nats per token." in said
        assert tokens.nth(place).get_attribute("aria-pressed") == "true"


def test_steps_write_what_the_command_writes(page: Page) -> None:
    for seed, parameters in ((1, SamplingParameters()), (20, SamplingParameters(temperature=0.9, top_k=30, top_p=0.9))):
        page.fill("#seed", str(seed))
        ask_for(page, parameters)
        write(page, TEXT)
        press(page, "#step", 6)
        decoder = Decoder(MODEL, torch.float64)
        (expected,) = continuations(decoder, [LEARNED.encode(TEXT)], parameters, max_new_tokens=6, seed=seed)
        assert page.input_value("#prompt") == TEXT + shown(LEARNED, expected)
        assert page.locator(".read.generated").count() == 6


def test_the_end_of_a_text_is_told_until_someone_types(page: Page) -> None:
    page.fill("#seed", "35")  # whose first draw is end-of-text
    write(page, "5", "#temperature")
    press(page, "#step")
    assert page.inner_text("#told") == "The model ends its text here."
    assert page.input_value("#prompt") == TEXT
    write(page, TEXT + " is")
    assert page.inner_text("#told") == ""


def test_it_plays_what_single_steps_give_until_it_pauses_or_someone_types(page: Page) -> None:
    press(page, "#step", 3)
    stepped = page.input_value("#prompt")
    press(page, "#undo", 3)
    assert page.input_value("#prompt") == TEXT
    assert page.is_disabled("#undo")
    page.locator("h1").click()
    page.keyboard.press("Shift+ ")
    assert page.inner_text("#play") == "play", "the browser scrolls up"
    page.keyboard.press(" ")
    page.wait_for_function("text => document.getElementById('prompt').value.startsWith(text)", arg=stepped)
    page.click("#play")
    settle(page)
    played = page.input_value("#prompt")
    assert played.startswith(stepped)
    page.wait_for_timeout(100)
    assert page.input_value("#prompt") == played
    assert page.inner_text("#play") == "play"
    page.click("#play")
    page.wait_for_function("text => document.getElementById('prompt').value.length > text.length", arg=played)
    page.focus("#prompt")
    settle(page)
    write(page, "今天")
    assert page.input_value("#prompt") == "今天"
    assert page.inner_text("#play") == "play"
    assert page.locator(".read.generated").count() == 0


def test_what_one_does_while_it_plays_ends_the_playing_and_then_happens(page: Page) -> None:
    click = """name => {
      const count = document.querySelectorAll(".read.generated").length;
      if (count > 1) document.querySelector(name).click();
      return count > 1 && count;
    }"""
    for button, added in (("#step", 1), ("#undo", -1), (".candidate", 1)):
        write(page, TEXT)
        page.click("#play")
        count = page.wait_for_function(click, arg=button).json_value()
        settle(page)
        assert page.inner_text("#play") == "play"
        assert page.locator(".read.generated").count() - count - added in (0, 1), "one was under way"


def test_a_candidate_that_is_clicked_is_added_and_taken_back(page: Page) -> None:
    token = int(np.argsort(-chances(LEARNED.encode(TEXT), SamplingParameters()))[1])
    press(page, ".candidate >> nth=1")
    assert page.locator(".read").last.text_content() == label_of(LEARNED.token_text(token), None)
    with_token = chances([*LEARNED.encode(TEXT), token], SamplingParameters())
    assert candidates(page)[0][1] == percent(float(with_token.max()))
    page.press("#undo", "Enter")
    settle(page)
    assert page.locator(".read").count() == len(LEARNED.encode(TEXT))
    assert page.evaluate("document.activeElement.id") == "step", "a disabled button keeps no focus"


def test_undo_takes_back_added_tokens_and_mixes_no_older_text_into_what_the_page_wrote(page: Page) -> None:
    """A browser's own steps, such as the deleting of the first text, know nothing of the tokens that came since."""
    write(page, "")
    page.fill("#seed", "20")
    page.focus("#prompt")
    page.keyboard.type(TEXT)
    texts = []
    for _ in range(3):
        press_key(page, "Control+Enter")
        texts.append(page.input_value("#prompt"))
    for expected in (*reversed(texts[:-1]), *[TEXT] * 3):
        press_key(page, "Control+z")
        assert page.input_value("#prompt") == expected
    page.keyboard.press("Control+y")
    page.keyboard.type("x")
    assert page.input_value("#prompt") == f"{TEXT}x"
    press_key(page, "Control+z")
    assert page.input_value("#prompt") == TEXT
    press_key(page, "Control+y")
    assert page.input_value("#prompt") == f"{TEXT}x"


def test_a_text_longer_than_the_context_says_what_the_model_sees(page: Page) -> None:
    write(page, "the value of " * 20)
    ids = LEARNED.encode("the value of " * 20)
    seen = page.locator(".read").count()
    assert 12 <= seen <= 24
    assert f"The model sees the last {seen} of {len(ids)} tokens." in page.inner_text("#surprisal")
    found = chances(ids[-seen:], SamplingParameters())
    assert candidates(page)[0] == (marked(int(found.argmax())), percent(float(found.max())))


def test_the_chosen_token_its_changes_and_the_focus_stay_where_the_text_is_cut(page: Page) -> None:
    """25 tokens, of which a context of 24 begins at the 14th."""
    write(page, "ABCDEFGHIJKLMNOPQRSTUVWX")
    assert page.locator(".read").count() == 24
    page.select_option("#change-position", "one")
    for token in (7, 20):
        page.locator(".read").nth(token).press("x")
        settle(page)
    assert page.inner_text("#effect").startswith("Off: L0 H0 @7, L0 H0 @20.")
    page.locator(".read").nth(20).press("Control+Enter")
    settle(page)
    assert "The model sees the last 12 of 25 tokens." in page.inner_text("#surprisal")
    assert "“U” (token 7) had" in plain(page.inner_text("#surprisal"))
    assert page.evaluate("document.activeElement.textContent") == "U"
    assert page.inner_text("#effect").startswith("Off: L0 H0 @7."), "the one at the seventh has gone"
    assert page.inner_text("#off") == "switch on layer 0 head 0 at token 7"
    page.keyboard.press("Escape")
    assert page.locator(".read.chosen").count() == 0
    page.keyboard.press("Enter")
    assert page.inner_text(".read.chosen") == "U"


def test_an_empty_text_starts_with_end_of_text(page: Page) -> None:
    write(page, "")
    assert page.locator(".read").all_text_contents() == ["<|endoftext|>"]
    found = chances([LEARNED.end_of_text], SamplingParameters())
    assert candidates(page)[0] == (marked(int(found.argmax())), percent(float(found.max())))
    press(page, "#step", 3)
    (expected,) = continuations(
        Decoder(MODEL, torch.float64), [[LEARNED.end_of_text]], SamplingParameters(), max_new_tokens=3, seed=1
    )
    assert page.input_value("#prompt") == shown(LEARNED, expected)


def test_all_of_it_works_from_the_keyboard(page: Page) -> None:
    page.press("#prompt", "Control+Enter")
    settle(page)
    assert page.locator(".read.generated").count() == 1
    page.keyboard.press("x")
    assert page.input_value("#prompt").endswith("x"), "in a field a letter is a letter"
    settle(page)
    page.press(".candidate >> nth=0", "ArrowDown")
    chosen = page.evaluate("document.activeElement.querySelector('.word').title")
    press_key(page, "Enter")
    assert page.locator(".read").last.text_content() == chosen
    page.locator(".read").last.focus()
    page.keyboard.press("Home")
    assert page.evaluate("document.activeElement.textContent") == "The"
    assert "is the first token that the model sees" in page.inner_text("#surprisal")


def test_a_character_that_the_model_lacks_is_named_and_nothing_is_written(open_page: OpenPage, tmp_path: Path) -> None:
    path = written(tmp_path / "char.html", sharp_checkpoint(tokenizer=TOKENIZERS["char"]))
    opened = open_page(path, "zh-CN")
    page, known = opened.page, len(TOKENIZERS["char"].token_bytes)
    write(page, "The")
    rows = candidates(page)
    write(page, "The 龘")
    assert (
        page.inner_text("#refused")
        == f"这个模型只认识训练文本里的 {known} 个字符，不认识位置 4 的 “龘” U+9F98。灰色部分仍是上一段文本的结果。"
    )
    page.click("#language")
    told = f"This model knows {known} characters, but not “龘” U+9F98 at position 4."
    assert page.inner_text("#refused") == f"{told} Grey parts still belong to the earlier text."
    for part in ("next", "reading", "switching", "views", "explaining"):
        assert page.evaluate(f"getComputedStyle(document.getElementById('{part}')).opacity") == "0.45"
    assert page.is_disabled("#step")
    assert page.is_disabled("#play")
    page.press("#prompt", "Control+Enter")
    press(page, ".candidate >> nth=0")
    assert page.input_value("#prompt") == "The 龘"
    assert candidates(page) == rows
    write(page, "The")
    assert page.inner_text("#refused") == ""
    assert page.is_enabled("#step")
