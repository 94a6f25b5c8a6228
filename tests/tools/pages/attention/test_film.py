"""The film of a training in headless Chromium."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page
from support.browsers import Opened, OpenPage
from support.model_pages import assert_fits, captions
from support.pages import BY_HAND, TICK, keep, snapshots_of

from gpt_cli.attention_maps.snapshots import kept_steps
from gpt_cli.tools.interpret.over_training import make_film

TOKENS = ["The", " value", " of", " 今天", "\n", " is", " a", " b"]  # as many as labels need
SNAPSHOTS = snapshots_of(5, 2, 3, TOKENS)  # of the steps 1, 10, 20, 30 and 40
ROW, COLUMN = np.tril_indices(len(TOKENS))


def film_of(folder: Path, unit: float = 1.0) -> Path:
    run = keep(SNAPSHOTS, folder / "run")
    losses = [
        {"step": step, "loss": unit * (4 - step / 20), "validation_loss": unit * (4.1 - step / 20)}
        for step in range(1, 46)  # also after the last snapshot
    ]
    run.metrics.write_text("".join(json.dumps(line) + "\n" for line in losses))
    path = folder / "film.html"
    path.write_bytes(make_film(kept_steps(run)).as_page().encode())
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return film_of(tmp_path_factory.mktemp("pages"))


def step(page: Page) -> int:
    found = re.match(r"step (\d+)", page.inner_text("#moment"))
    assert found
    return int(found[1])


def test_it_opens_on_the_last_step_and_plays_all_of_them_once(page: Page) -> None:
    assert page.inner_text("h1") == "Attention over training"
    assert page.title().startswith("Attention over training: The value of")
    assert page.inner_text("#moment") == "step 40 · loss 2.0000"
    assert page.inner_text("#play") == "play"
    assert page.inner_text("#head-name") == "layer 1 head 2", "the one whose induction ends highest"
    assert not page.is_visible("#writes")
    page.evaluate(BY_HAND)
    page.click("#play")
    for expected in (1, 10, 20, 30):
        assert (step(page), page.inner_text("#play")) == (expected, "pause")
        assert page.evaluate(TICK) == 500
    assert (step(page), page.inner_text("#play"), page.evaluate(TICK)) == (40, "play", None)
    page.click("#play")
    for toggle in (lambda: page.keyboard.press(" "), lambda: page.press("#frame", " "), lambda: page.click("#play")):
        playing = page.inner_text("#play")
        toggle()
        assert {playing, page.inner_text("#play")} == {"pause", "play"}
    assert (step(page), page.inner_text("#play"), page.evaluate(TICK)) == (1, "play", None)


def test_each_frame_shows_the_weights_the_scores_and_the_loss_of_its_step(page: Page, opened: Opened) -> None:
    page.click('button[aria-label="layer 1 head 2"]')
    page.press("#frame", "Home")
    for frame, snapshot in enumerate(SNAPSHOTS):
        assert page.inner_text("#moment") == f"step {snapshot.step} · loss {snapshot.loss:.4f}"
        found = [float(line[6]) for line in opened.copied()[1:]]
        np.testing.assert_allclose(found, snapshot.weights[1, 2][ROW, COLUMN], atol=1 / 255)
        values = [scores[1, 2] for scores in snapshot.scores.values()]
        shown = page.locator("#scores dd").all_inner_texts()
        assert shown == ["–" if np.isnan(value) else f"{value:.3f}" for value in values]
        assert page.inner_text("#head-role") == ("· previous token" if frame >= 2 else "")
        page.press("#frame", "ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert step(page) == 30
    page.click('button[aria-label="mean of all 6 heads"]')
    found = [float(line[6]) for line in opened.copied()[1:]]
    np.testing.assert_allclose(found, SNAPSHOTS[3].weights.mean((0, 1))[ROW, COLUMN], atol=1 / 255)


def test_an_order_follows_the_frame(page: Page) -> None:
    page.select_option("#order", "previous_token")
    for key, snapshot in (("End", SNAPSHOTS[-1]), ("Home", SNAPSHOTS[0])):
        page.press("#frame", key)
        found = snapshot.scores["previous_token"].astype(np.float32)
        rows = sorted((-float(found[layer, head]), layer, head) for layer in range(2) for head in range(3))
        assert captions(page) == [f"L{layer} H{head} {-value:.3f}" for value, layer, head in rows]
    page.select_option("#role", "previous_token")
    assert captions(page) == [], "no head has the label at the first step"
    page.keyboard.press("Escape")
    page.press("#frame", "End")
    assert captions(page)[0].startswith("L1 H2 ")


def points(page: Page, kind: str) -> np.ndarray:
    path = page.get_attribute(f"#curve .{kind}", "d") or ""
    return np.array([[float(number) for number in point.split()] for point in re.findall(r"[\d.]+ [\d.]+", path)])


def test_curves_show_the_losses_and_the_score_of_the_chosen_head(page: Page) -> None:
    page.click('button[aria-label="layer 1 head 2"]')
    page.select_option("#order", "previous_token")
    names = page.locator("#curve .name").all_text_contents()
    assert names == ["loss (orange: on validation text)", "L1 H2 previous token", "1"]
    score = points(page, "score")
    values = np.array([snapshot.scores["previous_token"][1, 2] for snapshot in SNAPSHOTS])
    scale = np.polyfit(values, score[:, 1], 1)
    np.testing.assert_allclose(score[:, 1], np.polyval(scale, values), atol=0.11)
    assert scale[0] == pytest.approx(-52, abs=0.5), "52 pixels from 0 to 1"
    steps = np.array([snapshot.step for snapshot in SNAPSHOTS])
    np.testing.assert_allclose(np.diff(score[:, 0]) / np.diff(steps), np.full(4, np.ptp(score[:, 0]) / 39), atol=0.05)
    assert len(points(page, "loss")) == len(points(page, "validation")) == 40
    for key, place in (("Home", 0), ("End", -1)):
        page.press("#frame", key)
        mark = re.match(r"M([\d.]+) ", page.get_attribute("#curve .mark", "d") or "")
        assert mark
        assert float(mark[1]) == score[place, 0]
    assert page.locator("#curve .now").all_text_contents() == ["2.0000", f"{values[-1]:.3f}"]
    x, y = score[2]
    page.locator("#curve").click(position={"x": float(x) + 5, "y": float(y)})
    assert step(page) == 20, "a click goes to the nearest step"


def test_the_slider_stays_in_view_beside_the_map(page: Page) -> None:
    page.set_viewport_size({"width": 1280, "height": 700})
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    top = "part => part.getBoundingClientRect().top"
    slider, heading = (page.locator(part).evaluate(top) for part in ("#frame", "#overview h2"))
    assert 0 <= slider < 30 < heading < 100, "the heads begin below the slider"


def test_it_speaks_chinese_and_fits_a_narrow_screen(open_page: OpenPage, file: Path) -> None:
    page = open_page(file, "zh-CN", "dark").page
    assert page.inner_text("h1") == "训练过程中的注意力"
    assert page.inner_text("#moment") == "第 40 步 · 损失 2.0000"
    assert page.inner_text("#play") == "播放"
    assert_fits(page, "loss")
    page.click("#language")
    assert page.inner_text("#play") == "play"


@pytest.mark.parametrize(("unit", "lowest"), [(0.00441, "0.00882"), (1.23e-5, "2.46e-5")])
def test_the_ends_of_an_axis_have_room(open_page: OpenPage, tmp_path: Path, unit: float, lowest: str) -> None:
    opened = open_page(film_of(tmp_path, unit))
    ends = opened.page.locator("#curve .end")
    assert lowest in ends.all_text_contents()
    left = opened.page.evaluate("document.getElementById('curve').getBoundingClientRect().left")
    assert min(end.bounding_box()["x"] for end in ends.all()) >= left  # type: ignore[index]
