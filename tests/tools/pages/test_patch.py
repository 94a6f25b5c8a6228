"""The page of what patches recover, in headless Chromium."""

from typing import Any

import pytest
from playwright.sync_api import Page
from support.browsers import ShowPage
from support.model_pages import assert_fits, plain, told

from gpt_cli.attention_maps.head_metrics import Row
from gpt_cli.tools.interpret.patching.view import patch_page

CLEAN, CORRUPT = ["one", " two", " <b>one</b>"], ["one", " six", " <b>one</b>"]
PARTS = ("residual", "attention", "feed_forward")


def row(part: str, layer: int, head: int | None, position: int | None, share: float, **more: float | None) -> Row:
    place: Row = {"part": part, "layer": layer, "head": head, "position": position}
    return {**place, "recovered": share, "recovered_error": None, **more}


ROWS = [
    *(row(part, L, None, p, (L + p) / 4 - n) for n, part in enumerate(PARTS) for L in (0, 1) for p in (0, 1, 2)),
    *(row("head", L, H, None, 0.125 * (L - H), estimate=0.0625) for L in (0, 1) for H in (0, 1)),
    *(row("head", 1, H, p, 0.5 - p * H) for H in (0, 1) for p in (0, 1, 2)),
]
ABOUT = {"checkpoint": "run", "step": 12, "clean": "".join(CLEAN), "corrupt": "".join(CORRUPT)}
METRIC = {
    "metric": "logit_difference",
    "answer": " two",
    "against": " six",
    "clean_metric": 3.0,
    "corrupt_metric": -1.0,
}
PLACES = [{"position": p, "clean": a, "corrupt": b} for p, (a, b) in enumerate(zip(CLEAN, CORRUPT, strict=True))]
REPORT: dict[str, Any] = {**ABOUT, **METRIC, "tokens": PLACES, "rows": ROWS}


@pytest.fixture
def page(show: ShowPage) -> Page:
    return show(patch_page(REPORT)).page


def test_a_film_shows_the_shares_of_its_steps(show: ShowPage) -> None:
    """At the first of three steps the metric is the same on both texts."""
    steps = []
    for step, share in ((5, None), (10, 0.25), (20, 2.0)):
        heads = [row("head", 0, H, None, 0, recovered=None if share is None else share - H) for H in (0, 1)]
        stream = [row("residual", 0, None, p, 1.0) for p in (0, 1, 2)]
        metrics = {"clean_metric": float(step), "corrupt_metric": 5.0}
        steps.append({"step": step, **metrics, "rows": [*stream, *heads]})
    page = show(patch_page({**REPORT, "steps": steps}), "zh-CN", "dark").page
    assert page.inner_text("#moment") == "第 20 步"
    assert page.input_value("#patch-map") == "heads"
    page.press(".grid-view", "Home")
    names = page.locator("#curve .name").all_text_contents()
    assert names[1] == "第 0 层第 0 头，所有位置"
    assert page.locator("#curve .now").all_text_contents() == ["20.000 · 5.000", "2.000"]
    page.press("#frame", "ArrowLeft")
    assert page.locator("#curve .now").all_text_contents() == ["10.000 · 5.000", "0.250"]
    page.keyboard.press("Home")
    assert page.locator("#curve .now").all_text_contents() == ["5.000 · 5.000", "–"]
    assert "指标相同" in told(page)[0]
    assert_fits(page)


def test_a_cell_says_what_its_patch_recovers(page: Page) -> None:
    assert not page.is_visible("#film"), "of one step"
    page.select_option("#patch-map", "residual")
    page.press(".grid-view", "ArrowLeft")
    assert told(page) == [
        "Layer 1 residual stream at position 1 (“␣two” for “␣six”): recovers 0.5000 of the difference.",
        "The metric: −1.0000 without the patch, 1.0000 with it, 3.0000 on the text that it comes from.",
    ]
    page.select_option("#patch-map", "feed_forward")
    assert told(page)[0].startswith("Layer 1 feed-forward output at position 1 (“␣two” for “␣six”): recovers −1.5000")
    texts = page.locator("#texts > *").all_inner_texts()
    assert plain(texts[0]) == "clean text · logit of “␣two” minus logit of “␣six” 3.0000"
    assert texts[1] == "one two <b>one</b>"


def test_heads_have_a_map_of_layers_and_maps_by_position(page: Page) -> None:
    options = page.locator("#patch-map option").all_inner_texts()
    assert options[3:] == ["heads, at all positions", "heads of layer 1 by position"], "layer 0 has no such rows"
    page.select_option("#patch-map", "heads")
    page.press(".grid-view", "Home")
    assert told(page) == [
        "Layer 1 head 0 at all positions: recovers 0.1250 of the difference.",
        "The metric: −1.0000 without the patch, −0.5000 with it, 3.0000 on the text that it comes from.",
        "One backward pass estimates 0.0625.",
    ]
    page.select_option("#patch-map", "heads of 1")
    page.keyboard.press("End")
    page.keyboard.press("ArrowDown")
    assert told(page)[0].startswith("Layer 1 head 1 at position 2 (“␣<b>one</b>” for “␣<b>one</b>”): recovers −1.5000")


def test_pairs_have_means_with_errors_and_no_tokens(show: ShowPage) -> None:
    pairs = [
        row("attention", 0, None, None, 0.25, recovered_error=0.03125),
        row("attention", 0, None, 0, 0, recovered=None, estimate=0.5),
    ]
    none = {"clean": None, "corrupt": None, "answer": None, "against": None, "metric": "log_probability"}
    tokens = [{"position": 0, "clean": None, "corrupt": None}]
    several = {"pairs": {"file": "<b>.jsonl", "number": 64}, "tokens": tokens, "rows": pairs}
    page = show(patch_page({**REPORT, **none, **several}), "zh-CN", "dark").page
    metric = "指标：替换前 −1.0000，替换后 0.0000，提供替换值的文本上 3.0000。"
    assert told(page) == ["第 0 层注意力输出，所有位置：恢复了差值的 0.2500 ± 0.0313。", metric]
    assert page.inner_text("#pairs") == "<b>.jsonl 中的 64 对提示词：平均值 ± 标准误。"
    assert page.locator("#texts dt").first.inner_text() == "原提示词 · 答案的对数概率 3.0000"
    page.press(".grid-view", "Home")
    assert told(page) == ["第 0 层注意力输出，位置 0：没有计算精确值。", "一次反向传播的估计值：0.5000。"]


def test_an_answer_that_all_pairs_share_is_named(show: ShowPage) -> None:
    one = {"clean": None, "corrupt": None, "against": None, "metric": "log_probability"}
    page = show(patch_page({**REPORT, **one, "pairs": {"file": "a.jsonl", "number": 1}})).page
    assert plain(page.locator("#texts dt").first.inner_text()) == "clean text · log probability of “␣two” 3.0000"
    assert page.inner_text("#pairs") == "1 pair of a.jsonl."
