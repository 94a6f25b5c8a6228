"""The page of a report on heads, and the scatter that it shares with the attention page, in headless Chromium."""

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page
from support.browsers import ShowPage
from support.hostile import CALL, PAYLOADS
from support.model_pages import assert_fits
from support.pages import BY_HAND, TICK, dump_of, random_weights, scores_of

from gpt_cli.attention_maps.head_metrics import COLUMNS
from gpt_cli.tools.interpret.attention_files import attention_page
from gpt_cli.tools.interpret.heads.view import HeadsFinding, head_figures, labels_of
from gpt_cli.tools.interpret.heads.writers import heads_page

SCORES = scores_of(2, 3)  # the last head has the highest induction, 0.75; the first has no duplicates


def head_rows() -> list[dict[str, Any]]:
    finding = HeadsFinding({}, (*head_figures(SCORES, range(2), range(3)),), {"heads": labels_of(SCORES, 640)})
    return finding.as_dict()["heads"]


def passage(tokens: list[str], **more: Any) -> dict[str, Any]:
    shades = [round(place / len(tokens), 3) for place in range(1, len(tokens) + 1)]
    looks = [{"token": tokens[0], "index": 0, "weight": 0.75}, {"token": "before", "index": -3, "weight": 0.25}]
    found = {"place": 40, "value": 2.5, "peak": len(tokens) - 1, "tokens": tokens, "shades": shades, "looks_at": looks}
    return found | more


def report(tokens: list[str], text: str = "a.txt") -> dict[str, Any]:
    rows = head_rows()
    for number, row in enumerate(rows):
        words = {"reads": tokens[:3], "writes": tokens[-3:], "queries": tokens[:2], "keys": tokens[-2:]}
        directions = [{"singular_value": 1.5 - number / 10, **words}]
        row |= {"mean_size": number / 8, "passages": [passage(tokens)], "ov": directions, "qk": directions}
    rows[1]["passages"] = []
    ends = {"from_layer": 0, "from_head": 1, "to_layer": 1, "to_head": 2}
    pairs = [{"kind": kind, **ends, "score": score, "excess": score - 0.25} for kind, score in (("K", 0.8), ("V", 0.5))]
    circuits = {"baseline": 0.25, "composition": pairs}
    about = {"checkpoint": "runs/a/best.safetensors", "step": 7, "text": text, "tokens": 640}
    return about | {"circuits": circuits, "heads": rows}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "heads.html"
    path.write_bytes(heads_page(report(["The", " value", "今", "", " of", "\n"])))
    return path


def names(page: Page) -> list[str]:
    return page.locator("#rows td:first-child").all_inner_texts()


def test_a_film_has_the_passages_of_each_step(show: ShowPage) -> None:
    about = report(["The", " value"])
    steps = []
    for number in (1, 2, 3):
        rows = [{"layer": 0, "head": head, "mean_size": number / 2 + head, "ratio": head / number} for head in (0, 1)]
        passages = [passage(["a", f" {number}"])]
        steps.append({"step": 10 * number, "heads": [row | {"passages": passages} for row in rows]})
    found = {key: about[key] for key in ("text", "tokens", "checkpoint")} | {"steps": steps}
    page = show(heads_page(found), "zh-CN", "dark").page
    assert page.inner_text("h1") == "注意力头"
    assert page.inner_text("#moment") == "第 30 步"
    page.click("#rows tr:nth-child(3)")
    for key, number in (("End", 3), ("ArrowLeft", 2), ("Home", 1)):
        page.press("#frame", key)
        assert page.inner_text(".passage p:first-child") == f"a {number}"
        cells = page.locator("#rows tr.chosen td").all_inner_texts()
        assert cells == ["L0 H1", "", f"{number / 2 + 1:.3f}", f"{1 / number:.3f}"]
        assert page.text_content("#curve .now") == f"{1 / number:.3f}"
    for svg, height in (("#curve", 100), ("#scatter", 280)):
        width = page.evaluate("svg => document.querySelector(svg).clientWidth", svg)
        assert page.get_attribute(svg, "viewBox") == f"0 0 {width} {height}", "so that it shrinks on paper"
    page.evaluate(BY_HAND)
    page.click("#play")
    page.focus("#rows tr:nth-child(3) button")
    for _ in range(2):
        page.evaluate(TICK)
        assert page.evaluate("document.activeElement.textContent") == "L0 H1", "the focus stays in the table"
    assert (page.inner_text("#play"), page.inner_text("#moment")) == ("播放", "第 30 步")
    assert_fits(page)


def test_a_film_of_very_many_passages_has_some_of_the_steps(show: ShowPage) -> None:
    about = report(["The"])
    head = {"layer": 0, "head": 0, "mean_size": 1.0, "ratio": 1.0, "passages": [passage(["a"])] * 500}
    steps = [{"step": step, "heads": [head] * 10} for step in range(1, 10)]
    found = {key: about[key] for key in ("text", "tokens", "checkpoint")} | {"steps": steps}
    assert show(heads_page(found)).page.inner_text("#origin").endswith("step 9 · 4 of 9 steps")


def test_the_table_has_every_head_and_sorts_by_a_column(page: Page) -> None:
    places = [f"L{layer} H{head}" for layer in range(2) for head in range(3)]
    assert names(page) == places
    assert page.inner_text("#rows tr:nth-child(2) td:nth-child(8)") == "–", "it had no duplicates"
    page.click("#rows th:nth-child(8) button")
    known = [(float(SCORES["duplicate_token"][n // 3, n % 3]), name) for n, name in enumerate(places) if n]
    assert names(page) == [name for _, name in sorted(known, key=lambda pair: -pair[0])] + ["L0 H0"]
    assert page.locator('#rows [aria-sort="descending"]').inner_text().split() == ["duplicate", "token"]
    page.keyboard.press("Enter")
    assert names(page) == places, "the order of the report again"


def test_a_head_has_its_passages_with_shaded_tokens_and_its_circuits(page: Page) -> None:
    page.click("#rows tr:nth-child(7)")
    assert page.inner_text("#head-name") == "layer 1 head 2"
    spans = page.locator("#passages .passage span")
    assert spans.all_text_contents() == ["The", " value", "今", "", " of", "↵"]
    assert page.locator("#passages .peak").inner_text() == "↵"
    colours = [spans.nth(place).evaluate("span => span.style.backgroundColor") for place in range(6)]
    strengths = [float(colour.partition("/ ")[2].strip(")")) for colour in colours]
    assert strengths == pytest.approx([place / 12 for place in range(1, 7)], abs=1e-3)
    assert page.inner_text("#passages .told") == "size 2.500 at token 45; looks at “⁨The⁩” 0.750 · “⁨before⁩” 0.250"
    cells = page.locator("#circuits table").first.locator("td").all_inner_texts()
    assert cells == ["1.000", "“⁨The⁩” “⁨␣value⁩” “⁨今⁩”", "“⁨∅⁩” “⁨␣of⁩” “⁨↵⁩”"]
    assert page.inner_text("#circuits h3") == "Composition with other heads (0.250 if turned at random)"
    cells = page.locator("#circuits table").last.locator("td").all_inner_texts()
    assert cells == ["K", "L0 H1", "0.800", "V", "L0 H1", "0.500"]
    page.click("#rows tr:nth-child(3)")
    assert page.inner_text("#passages .help") == "This head writes nothing in this text."
    assert page.locator("#circuits table").last.locator("th").all_inner_texts() == ["", "is read by", ""]


def test_arrow_keys_move_between_heads(page: Page) -> None:
    page.focus("#rows tr:nth-child(2) button")
    for _ in range(7):
        page.keyboard.press("ArrowDown")
    assert page.inner_text("#head-name") == "layer 1 head 2"
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.textContent") == "L1 H1"
    page.keyboard.press("Control+ArrowUp")
    assert page.evaluate("document.activeElement.textContent") == "L1 H1", "which is a key of the browser"


def test_the_row_with_the_focus_is_below_the_titles_and_paper_has_every_row(show: ShowPage) -> None:
    page = show(heads_page(report(["a"]) | {"circuits": None, "heads": head_rows() * 6})).page
    page.set_viewport_size({"width": 800, "height": 400})
    page.focus("#rows tr:nth-child(30) button")
    room = """() => {
        const [row, title] = ["#rows :focus", "#rows th"].map((name) => document.querySelector(name).getBoundingClientRect());
        return row.top - title.bottom;
    }"""
    for _ in range(12):
        page.keyboard.press("ArrowUp")
        assert page.evaluate(room) >= 0
    page.emulate_media(media="print")
    sizes = page.locator("#table").evaluate("table => [table.clientHeight, table.scrollHeight]")
    page.emulate_media(media="screen")
    assert sizes[0] == sizes[1]


def test_a_point_of_the_scatter_is_a_head_and_chooses_it(page: Page) -> None:
    assert page.locator("#scatter circle").count() == 6
    ends = page.locator("#scatter text.end").all_text_contents()
    assert ends == ["0", "0.50", "1.0"], "shares end at 1, though the highest is 0.75"
    assert page.locator("#across option").count() == len(COLUMNS) + 1
    page.select_option("#across", "mean_size")
    page.click("#scatter circle:nth-of-type(6)")
    assert page.inner_text("#head-name") == "layer 1 head 2"
    assert page.inner_text("#pointed") == "L1 H2: 0.625, 0.750"
    assert page.locator("#scatter .chosen").count() == 1
    page.select_option("#upwards", "duplicate_token")
    assert page.locator("#scatter circle").count() == 5, "the first head has no such score"
    page.hover("#scatter circle:nth-of-type(2)")
    assert page.inner_text("#pointed").startswith("L0 H2: ")


def test_without_passages_and_circuits_no_heading_stands_above_nothing(show: ShowPage) -> None:
    page = show(heads_page(report(["a"]) | {"circuits": None, "heads": head_rows()})).page
    page.click("#rows tr:nth-child(3)")
    assert not page.is_visible("#head-name")


def test_a_change_of_the_loss_has_its_sign_and_its_error(show: ShowPage) -> None:
    found = report(["a", "b"])
    for number, row in enumerate(found["heads"]):
        row |= {"loss_change": 0.0625 - number / 8, "loss_change_error": 0.03125 if number else None}
    page = show(heads_page(found | {"tokens": 15982})).page
    cells = page.locator(f"#rows td:nth-child({len(COLUMNS) + 3})").all_inner_texts()
    assert cells[:2] == ["+0.0625", "−0.0625 ±0.0313"]
    assert page.inner_text("#origin").startswith("15,982 tokens of ")


def test_no_text_of_a_report_does_anything(show: ShowPage) -> None:
    page = show(heads_page(report(PAYLOADS, f"</script><script>{CALL}</script>"))).page
    for row in (7, 3):
        page.click(f"#rows tr:nth-child({row})")
    page.click("#language")
    assert page.locator("main, #origin").locator("script, img, iframe").count() == 0
    assert page.evaluate("window.num_fired") == 0


def test_the_attention_page_has_the_scatter_of_its_heads(show: ShowPage) -> None:
    page = show(attention_page(dump_of(["a", " b", "c"], random_weights(2, 3, 3)))).page
    assert not page.is_visible("#scatter")
    page.click("#scattering summary")
    page.click("#scatter circle:nth-of-type(6)")
    assert page.inner_text("#head-name") == "layer 1 head 2"
    assert page.inner_text("#pointed").startswith("L1 H2: ")
    page.click('button[aria-label="layer 0 head 1"]')
    assert page.inner_text("#pointed").startswith("L0 H1: 0.625, ")
