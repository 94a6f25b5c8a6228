"""The lens on the attention page, in a film and on the page of `gpt lens`, in headless Chromium."""

from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page
from support.browsers import ShowPage
from support.model_pages import plain, told
from support.pages import dump_of, keep, random_weights, snapshots_of

from gpt_cli.attention_maps.head_metrics import Row
from gpt_cli.attention_maps.snapshots import Steps, kept_steps
from gpt_cli.tools.interpret.attention_files import attention_page
from gpt_cli.tools.interpret.lens.request import MEASURES
from gpt_cli.tools.interpret.lens.view import lens_page
from gpt_cli.tools.interpret.over_training import make_film

TOKENS = ["The", " value", "<img src=x onerror=fired()>", " 今天"]
GUESSES = [" is", "</script><b>", " 的", "\n"]


def positions(share: float = 0.0) -> list[Row]:
    """Of two layers, numbers that differ everywhere."""
    rows = list[Row]()
    for place, token in enumerate(TOKENS):
        known = place < len(TOKENS) - 1
        layers: list[Row] = [
            {
                "layer": layer,
                "token": GUESSES[(place + layer) % 4],
                "id": place,
                "token_probability": 0.1 * (place + layer + 1) + share,
                "loss": 1.5 + place + layer if known else None,
                "rank": 1000 + 10 * place + layer if known else None,
                "probability": 0.01 * (place + layer + 1) if known else None,
                "divergence": 0.25 * (1 - layer),
            }
            for layer in (0, 1)
        ]
        rows.append({"position": place, "token": token, "next": TOKENS[place + 1] if known else None, "layers": layers})
    return rows


@pytest.fixture
def page(show: ShowPage) -> Page:
    return show(attention_page(replace(dump_of(TOKENS, random_weights(2, 2, 4)), lens=positions()))).page


def test_a_cell_says_what_its_layer_predicts(page: Page) -> None:
    page.press("#lens .grid-view", "Home")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowRight")
    assert told(page) == [
        "Layer 0 after “␣value” (token 1): “</script><b>” is the most probable token, with probability 0.2000.",
        "The true next token “<img src=x onerror=fired()>” has rank 1,010 and probability 0.0200: a loss of 2.5000 nats.",
        "Divergence from the last layer: 0.2500 nats.",
    ]
    page.keyboard.press("End")
    assert len(told(page)) == 2, "nothing is known of what comes after the last token"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowRight")
    assert told(page)[0].startswith("Layer 0 after “␣今天” (token 3)"), "the edge of the grid stops"
    assert page.evaluate("window.num_fired") == 0


def test_a_pointer_and_a_finger_choose_cells_too(page: Page) -> None:
    page.locator("#lens canvas").scroll_into_view_if_needed()
    box = page.locator("#lens canvas").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 60, box["y"] + 60)
    assert told(page)[0].startswith("Layer 1 after “The” (token 0)")
    page.mouse.move(box["x"] + 60, box["y"] - 30)
    assert told(page)[0].startswith("Layer 1 after “␣今天”"), "back to the chosen one"
    page.mouse.click(box["x"] + 60, box["y"] + 36)
    page.mouse.move(box["x"] + 60, box["y"] - 30)
    assert told(page)[0].startswith("Layer 0 after “The” (token 0)")


def test_likelier_tokens_have_more_colour_in_both_themes(page: Page) -> None:
    # the lower right corner of cells, where no letter is
    script = """() => [0, 1, 2, 3].map((column) => {
      const canvas = document.querySelector('#lens canvas'), copy = new OffscreenCanvas(canvas.width, canvas.height);
      const context = copy.getContext('2d', { willReadFrequently: true });
      context.drawImage(canvas, 0, 0);
      const width = Math.min(96, Math.floor((canvas.parentNode.parentNode.clientWidth - 30) / 4));
      return [...context.getImageData(26 + (column + 0.9) * width, 24 + 20, 1, 1).data].slice(0, 3);
    })"""
    for _ in range(2):
        colours = page.evaluate(script)
        ground = [255, 255, 255] if page.get_attribute("html", "data-theme") == "light" else [22, 24, 29]
        distances = [sum(abs(a - b) for a, b in zip(colour, ground, strict=True)) for colour in colours]
        assert distances == sorted(distances)
        assert distances[0] > 0
        page.click("#theme")


def test_a_film_of_checkpoints_has_the_lens_of_each_step(show: ShowPage, tmp_path: Path) -> None:
    frames = [replace(each, lens=positions(0.05 * n)) for n, each in enumerate(snapshots_of(3, 2, 2, TOKENS))]
    losses = {"loss": [], "validation_loss": []}
    steps = Steps("run", frames[-1], 3, lambda every: iter(frames[::-1][::every][::-1]), losses)
    opened = show(make_film(steps).as_page().encode())
    assert "with probability 0.6000." in told(opened.page)[0]
    opened.page.fill("#frame", "0")
    assert "with probability 0.5000." in told(opened.page)[0]
    assert '"lens": null' in make_film(kept_steps(keep(snapshots_of(2, 1, 1, TOKENS), tmp_path / "run"))).as_page(), (
        "kept snapshots"
    )


def test_gpt_lens_writes_a_page_of_its_own(show: ShowPage) -> None:
    report = {"checkpoint": "run/<b>", "step": 7, "text": "The <i>", "tokens": 4, "positions": positions()}
    means = [
        {"layer": layer} | dict.fromkeys(MEASURES, 1.25 + layer) | {f"{name}_error": 0.125 for name in MEASURES}
        for layer in (0, 1)
    ]
    opened = show(lens_page(report | {"layers": means}), "zh-CN", "dark")
    assert told(opened.page)[0] == "第 1 层，读完“␣今天”（token 3）：最可能的是“␣is”，概率 0.5000。"
    assert "run/<b>" in opened.page.inner_text("#origin")
    assert not opened.page.is_visible("#curves")
    opened = show(lens_page({**report, "layers": means, "positions": None, "text": ["a.txt", "b.txt"]}))
    assert "a.txt, b.txt" in opened.page.inner_text("#origin")
    assert opened.page.locator("#panels section").count() == len(MEASURES)
    cells = opened.page.locator("#panels section").nth(2).locator("td").all_inner_texts()
    assert cells == ["1.2500", "±0.1250", "2.2500", "±0.1250"]
    assert opened.page.locator("#panels .error").count() == 2 * len(MEASURES)


def test_with_maps_the_page_has_both_lenses_and_what_the_maps_gain(show: ShowPage) -> None:
    rows = positions()
    for layer in (row for at in rows for row in at["layers"]):
        layer |= {f"tuned_{key}": value for key, value in layer.items() if key not in ("layer", "token", "id")}
        layer |= {"tuned_token": "mapped", "tuned_token_probability": 0.75}
    means = [{"layer": layer} for layer in (0, 1)]
    for row in means:
        for place, name in enumerate(key for measure in MEASURES for key in (measure, f"tuned_{measure}")):
            row |= {name: place + 0.5, f"{name}_error": 0.25}
        row |= {"loss_gain": 0.0625, "loss_gain_error": 0.03125, "divergence_gain": 0.5, "divergence_gain_error": None}
    maps = {"text": ["a.txt"], "steps": 1500, "file": None}
    report = {"checkpoint": "run", "step": 7, "text": "The", "tokens": 4, "tuned": maps, "layers": means}
    opened = show(lens_page(report | {"positions": rows}))
    assert plain(opened.page.inner_text("#tuned")).endswith("trained on a.txt in 1,500 steps.")
    assert "“mapped” is the most probable token, with probability 0.7500." in told(opened.page)[0]
    opened.page.select_option("#which", "logit")
    assert "“␣is” is the most probable token, with probability 0.5000." in told(opened.page)[0]
    opened = show(lens_page(report | {"positions": None, "text": ["a.txt"]}))
    assert not opened.page.is_visible("#choosing")
    panels = opened.page.locator("#panels section")
    assert panels.first.locator("tr").first.inner_text().split("\t") == ["", "logit lens", "tuned lens", "gain"]
    assert panels.first.locator("td").all_inner_texts()[:6] == [
        "0.5000", "±0.2500", "1.5000", "±0.2500", "0.0625", "±0.0313",
    ]  # fmt: skip
    assert len(panels.nth(1).locator("td").all_inner_texts()) == 8, "ranks have no gain"
