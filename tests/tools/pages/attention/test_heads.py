"""Scores, labels, orders and filters of heads, and what heads write, in headless Chromium."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page
from support.browsers import OpenPage, ShowPage
from support.model_pages import assert_fits, captions
from support.pages import dump_of, random_weights, scores_of, writes_of

from gpt_cli.attention_maps.head_metrics import COLUMNS, ROLES
from gpt_cli.tools.interpret.attention_files import attention_page

TOKENS = ["The", " value", " of", " 今天", "\n", " is", " <b>", " None"]
SCORES = scores_of(3, 4)
WRITES = writes_of(3, 4, 8, 50)
TEXTS = {token: f" word{token}" for token in range(50)}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "attention.html"
    dump = replace(dump_of(TOKENS, random_weights(3, 4, 8)), scores=SCORES, writes=WRITES, texts=TEXTS)
    path.write_bytes(attention_page(dump))
    return path


def expected_order(column: str) -> list[str]:
    """All heads by a column as Python sorts them, NaN last."""
    rows = [(float(SCORES[column][layer, head]), layer, head) for layer in range(3) for head in range(4)]
    rows.sort(key=lambda row: (np.isnan(row[0]), -row[0], row[1], row[2]))
    return [f"L{layer} H{head} {'–' if np.isnan(value) else f'{value:.3f}'}" for value, layer, head in rows]


def test_heads_are_sorted_by_any_column(page: Page) -> None:
    for column in COLUMNS:
        page.select_option("#order", column)
        assert captions(page) == expected_order(column)
        assert page.inner_text("#num-shown") == "12 of 12 heads"
    page.select_option("#order", "")
    assert page.locator("#heads button").count() == 12 + 3 + 1


def test_a_label_is_below_the_map_of_its_head_and_beside_its_name(page: Page) -> None:
    labels = {}
    for tile in page.locator("#heads button").all():
        place = (tile.get_attribute("aria-describedby") or "").split()[1]
        labels[tile.get_attribute("aria-label")] = page.inner_text(f"#{place}")
    labelled = {name: label for name, label in labels.items() if label}
    assert labelled == {"layer 0 head 1": "previous token", "layer 2 head 3": "induction"}
    page.click('button[aria-label="layer 2 head 3"]')
    assert page.inner_text("#one h2") == "layer 2 head 3 · induction"
    page.click('button[aria-label="layer 1 head 0"]')
    assert page.inner_text("#one h2") == "layer 1 head 0"


def test_the_labels_of_the_page_are_those_of_the_report(page: Page) -> None:
    """In English; the Chinese page translates them."""
    page.select_option("#order", COLUMNS[0])
    options = page.locator("#role option").all_inner_texts()
    assert options == ["any", "induction", "previous token", "none"]
    names = page.locator("#scores dt").all_inner_texts()
    assert dict(zip(COLUMNS, names, strict=True)).items() >= {(column, column.replace("_", " ")) for column in ROLES}


def test_many_heads_have_short_names_and_labels(show: ShowPage) -> None:
    page = show(attention_page(dump_of(TOKENS, random_weights(2, 8, 8)))).page
    names = [*(f"H{head}" for head in range(8)), "mean", "L0", "L1", "mean"]
    assert page.locator("#heads th").all_inner_texts() == names
    assert [text for text in page.locator("#heads .kind").all_inner_texts() if text] == ["prev", "ind"]
    page.select_option("#order", "induction")
    assert page.locator("#sorted .kind").first.inner_text() == "induction", "the list has room"


def test_all_heads_stay_in_view_beside_the_map(page: Page) -> None:
    tops = []
    for width in (1280, 420):
        page.set_viewport_size({"width": width, "height": 700})
        page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
        head = page.locator('button[aria-label="layer 0 head 1"]')
        tops.append(head.evaluate("head => head.getBoundingClientRect().top"))
    assert 0 <= tops[0] < 700
    assert tops[1] < 0, "on a narrow screen they would hide the map"


def test_the_page_says_what_each_score_means(open_page: OpenPage, file: Path) -> None:
    page = open_page(file, "zh-CN").page
    assert not page.is_visible("#meanings")
    page.press("#scores-help summary", "Enter")
    assert page.locator("#meanings dt").all_inner_texts() == page.locator("#scores dt").all_inner_texts()
    meanings = page.locator("#meanings dd").all_inner_texts()
    assert len(set(meanings)) == len(COLUMNS)
    assert all(meanings)
    # the words of `gpt heads`
    names = ["熵", "平均距离", "第一个 token", "前一个 token", "自己", "前面相同的 token", "归纳"]
    assert page.locator("#scores dt").all_inner_texts() == names
    assert page.inner_text("#scores-help summary") == "这些得分的含义"


def test_the_chosen_head_has_its_scores_and_a_mean_has_none(page: Page) -> None:
    for layer, head in ((0, 0), (2, 3)):
        page.click(f'button[aria-label="layer {layer} head {head}"]')
        shown = page.locator("#scores dd").all_inner_texts()
        values = [scores[layer, head] for scores in SCORES.values()]
        assert shown == ["–" if np.isnan(value) else f"{value:.3f}" for value in values]
    page.click('button[aria-label="layer 1 mean of 4 heads"]')
    assert not page.is_visible("#scores")
    assert page.inner_text("#one h2") == "layer 1 mean of 4 heads"


def test_heads_are_filtered_by_label_and_by_the_least_of_the_column(page: Page) -> None:
    page.select_option("#role", "induction")
    assert captions(page) == ["L2 H3"]
    assert page.inner_text("#num-shown") == "1 of 12 heads"
    page.select_option("#role", "none")
    assert len(captions(page)) == 10
    assert page.is_disabled("#least"), "no column is chosen"
    page.select_option("#role", "")
    page.select_option("#order", "self")
    page.fill("#least", "0.2")
    assert captions(page) == [head for head in expected_order("self") if float(head.split()[2]) >= 0.2]
    page.fill("#least", "2")
    assert captions(page) == []
    assert page.inner_text("#num-shown") == "0 of 12 heads"


def test_arrow_keys_go_through_the_order_shown(page: Page) -> None:
    page.press("#order", "ArrowDown")
    assert page.locator("#order").input_value() == COLUMNS[0], "the select itself works by keys"
    page.select_option("#order", "induction")
    for _ in range(3):
        page.keyboard.press("Tab")
    names = [head.split()[:2] for head in expected_order("induction")]
    at = names.index(["L0", "H0"])
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "layer 0 head 0", "the chosen head"
    for key, step in (("ArrowLeft", -1), ("ArrowUp", -1), ("ArrowRight", 1), ("ArrowDown", 1), ("ArrowLeft", -1)):
        page.keyboard.press(key)
        at += step
        layer, head = (name[1:] for name in names[at])
        assert page.inner_text("#head-name") == f"layer {layer} head {head}"
    assert page.locator('#sorted button[tabindex="0"]').count() == 1


def bars(page: Page, part: str) -> list[tuple[str, str]]:
    rows = page.locator(f"#{part} li").all()
    return [(row.locator(".word").inner_text(), row.locator(".number").inner_text()) for row in rows]


def test_the_chosen_head_tells_what_it_writes_at_the_chosen_token(page: Page) -> None:
    page.click('button[aria-label="layer 1 head 2"]')
    page.locator(".token").nth(3).focus()
    assert "今天" in page.inner_text("#writes-name")
    for part, ids, logits in (
        ("raised", WRITES.raised, WRITES.raised_by),
        ("lowered", WRITES.lowered, WRITES.lowered_by),
    ):
        rows = bars(page, part)
        assert [text for text, _ in rows] == [TEXTS[token].replace(" ", "␣") for token in ids[1, 2, 3].tolist()]
        shown = [float(number.replace("−", "-")) for _, number in rows]
        np.testing.assert_allclose(shown, logits[1, 2, 3], atol=7e-4)
    widths = page.locator("#writes .bar").evaluate_all("bars => bars.map(bar => parseFloat(bar.style.width))")
    strengths = np.abs(np.concatenate([WRITES.raised_by[1, 2, 3], WRITES.lowered_by[1, 2, 3]]))
    np.testing.assert_allclose(widths, 100 * strengths / strengths.max(), atol=0.1)


def test_without_a_token_or_a_head_nothing_is_written_and_nothing_moves(page: Page) -> None:
    top = "document.getElementById('map').getBoundingClientRect().top + scrollY"
    before = page.evaluate(top)
    page.keyboard.press("Escape")
    assert not page.locator("#writes-name").is_visible()
    assert page.evaluate(top) == before
    page.locator(".token").nth(3).focus()
    assert page.locator("#writes-name").is_visible()
    page.click('button[aria-label="layer 1 mean of 4 heads"]')
    assert not page.locator("#writes-name").is_visible()


def test_one_head_has_no_orders(show: ShowPage) -> None:
    page = show(attention_page(dump_of(TOKENS, random_weights(1, 1, 8)))).page
    parts = ("#choosing", "#scores", "#scattering", "#writes", "#film")
    assert [page.is_visible(part) for part in parts] == [False, True, False, False, False]


def test_all_of_it_speaks_chinese_and_fits_a_narrow_screen(open_page: OpenPage, file: Path) -> None:
    page = open_page(file, "zh-CN", "dark").page
    page.click("#language")
    page.click("#language")
    page.select_option("#order", "induction")
    assert page.locator("#sorted .kind").first.inner_text() == "归纳"
    assert page.locator("#order option").all_inner_texts()[0] == "按层和头"
    assert_fits(page, "previous", "induction")
    page.click("#language")
    assert page.locator("#order").input_value() == "induction", "the choice stays"
