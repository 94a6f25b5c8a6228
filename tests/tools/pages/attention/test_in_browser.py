"""The page in headless Chromium: what it shows is what the file holds. Hostile texts: test_hostile_text.py."""

import csv
import io
import re
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from playwright.sync_api import Browser, Page
from support.browsers import Opened, OpenPage, ShowPage
from support.model_pages import choose, plain
from support.pages import dump_of, random_weights, restored
from support.scripts import RunScript

from gpt_cli.attention_maps.patterns import Origin, Prediction
from gpt_cli.common.drawing.token_labels import inert_cell
from gpt_cli.tools.interpret.attention_files import attention_page

TOKENS = ["The", " value", " of", " 今天", "\n", " is", " <b>", " None"]
WEIGHTS = random_weights(2, 3, 8)
ROW, COLUMN = np.tril_indices(8)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "attention.html"
    origin = Origin("runs/tiny/checkpoints/best.safetensors", 1200, "The value of 今天\n is")
    path.write_bytes(attention_page(dump_of(TOKENS, WEIGHTS, (Prediction(0.125, 2), Prediction(0.5, 1)), origin)))
    return path


def strongest(page: Page, line: int) -> list[float]:
    """The numbers in a line of the details."""
    return [float(found) for found in re.findall(r"\) (\d\.\d{4})", page.locator("#details p").nth(line).inner_text())]


def test_the_weights_of_heads_and_their_means_are_those_of_the_file(page: Page, opened: Opened, file: Path) -> None:
    expected = restored(file.read_bytes())
    for layer in range(2):
        for number in range(3):
            choose(page, f"layer {layer} head {number}")
            title, *lines = opened.copied()
            assert title == ["layer", "head", "query", "key", "query_token", "key_token", "weight"]
            found = np.array([float(line[6]) for line in lines])
            np.testing.assert_allclose(found, expected[layer, number], rtol=1e-5)
            np.testing.assert_allclose(found, WEIGHTS[layer, number][ROW, COLUMN], atol=2e-5)
            assert [line[:6] for line in lines] == [
                [str(layer), str(number), str(q), str(k), TOKENS[q], TOKENS[k]]
                for q, k in zip(ROW, COLUMN, strict=True)
            ]
    means = {"layer 1 mean of 3 heads": WEIGHTS[1].mean(0), "mean of all 6 heads": WEIGHTS.mean((0, 1))}
    for name, mean in means.items():
        choose(page, name)
        np.testing.assert_allclose([float(line[6]) for line in opened.copied()[1:]], mean[ROW, COLUMN], atol=2e-5)


def test_a_token_tells_where_it_looks_and_who_looks_at_it(page: Page) -> None:
    choose(page, "layer 0 head 2")
    weights = WEIGHTS[0, 2]
    page.locator(".token").nth(3).focus()
    np.testing.assert_allclose(strongest(page, 0), sorted(weights[3, :4], reverse=True), atol=1e-4)
    np.testing.assert_allclose(strongest(page, 1), sorted(weights[3:, 3], reverse=True)[:5], atol=1e-4)
    assert "今天" in page.inner_text("#details")
    for other in range(8):
        colours = "e => [getComputedStyle(e).backgroundColor, getComputedStyle(e).borderBottomColor]"
        style = page.locator(".token").nth(other).evaluate(colours)
        opacities = [float(colour.split(",")[3].rstrip(")")) if colour.count(",") == 3 else 1.0 for colour in style]
        looks, looked = weights[3, other], weights[other, 3]
        np.testing.assert_allclose(opacities, np.sqrt([looks / 4, looked]), atol=0.005)


def lines(page: Page) -> dict[tuple[str, int, int], float]:
    """The opacity of each line on the page, by its kind, the token above and the token below."""
    middle = "es => es.map(e => e.offsetLeft + e.offsetWidth / 2)"
    above, below = (np.array(page.eval_on_selector_all(f"#{row} span", middle)) for row in ("lookers", "targets"))
    found = {}
    for path in page.locator("#between path").all():
        kind, opacity = path.get_attribute("class") or "", float(path.evaluate("e => e.style.opacity"))
        for start, end in re.findall(r"M([\d.]+) 0L([\d.]+) 110", path.get_attribute("d") or ""):
            ends = (int(np.abs(row - float(x)).argmin()) for row, x in ((above, start), (below, end)))
            found[(kind, *ends)] = opacity
    return found


def test_colours_that_say_something_stay_in_a_theme_of_high_contrast(page: Page) -> None:
    colours = "es => es.map(getComputedStyle).map((style) => [style.backgroundColor, style.borderBottomColor])"
    parts = page.locator(".token, #maps button")
    before = parts.evaluate_all(colours)
    page.emulate_media(forced_colors="active")
    after = parts.evaluate_all(colours)
    page.emulate_media(forced_colors="none")
    assert after == before


def test_lines_lead_from_a_token_to_where_it_looks_and_from_those_that_look_at_it(page: Page) -> None:
    page.hover("#lookers span >> nth=2")
    of_token = {("looks", 2, key): WEIGHTS[0, 0, 2, key] for key in range(3)}
    of_token |= {("looked", query, 2): WEIGHTS[0, 0, query, 2] for query in range(3, 8)}
    strong = {line: np.sqrt(weight) for line, weight in of_token.items() if np.sqrt(weight) * 32 >= 0.5}
    assert lines(page) == pytest.approx(strong, abs=1 / 64 + 1e-3)
    page.keyboard.press("Escape")
    assert set(lines(page)) == {
        ("looks", q, k) for q, k in zip(ROW, COLUMN, strict=True) if np.sqrt(WEIGHTS[0, 0, q, k]) * 32 >= 0.5
    }


def test_the_map_has_the_colours_of_viridis_and_tells_what_lies_under_the_pointer(page: Page) -> None:
    cell = 26  # pixels, the largest, for few tokens
    side, pixels = page.evaluate(
        """(cell) => {
          const { width } = document.getElementById("map"), context = document.getElementById("map").getContext("2d");
          const { data } = context.getImageData(0, 0, width, width);
          const middles = [...Array(8).keys()].map((token) => width - (8 - token) * cell + cell / 2);
          const pixel = (x, y) => [...data.slice(4 * (y * width + x), 4 * (y * width + x) + 3)];
          return [width, middles.map((y) => middles.map((x) => pixel(x, y)))];
        }""",
        cell,
    )
    margin = side - 8 * cell
    expected = 255 * matplotlib.colormaps["viridis"](np.sqrt(WEIGHTS[0, 0]))[..., :3]
    np.testing.assert_allclose(np.array(pixels)[ROW, COLUMN], expected[ROW, COLUMN], atol=6)
    assert pixels[0][3] == [255, 255, 255], "the future stays empty"
    page.locator("#map").scroll_into_view_if_needed()
    page.locator("#map").hover(position={"x": margin + 1.5 * cell, "y": margin + 5.5 * cell})
    assert plain(page.inner_text("#cell")) == f"“␣is” (token 5) looks at “␣value” (token 1): {WEIGHTS[0, 0, 5, 1]:.4f}"
    page.keyboard.press("Escape")
    assert page.inner_text("#cell") == ""


def test_weights_below_the_threshold_are_hidden(page: Page) -> None:
    page.locator("#threshold").evaluate("e => { e.value = 50; e.dispatchEvent(new Event('input')); }")
    assert page.inner_text("#threshold-shown") == "0.2500"
    for token in range(8):
        page.locator(".token").nth(token).focus()
        expected = sorted((w for w in WEIGHTS[0, 0, token, : token + 1] if w >= 0.25), reverse=True)
        np.testing.assert_allclose(strongest(page, 0), expected, atol=1e-4)


def test_all_of_it_works_from_the_keyboard(page: Page) -> None:
    page.focus('button[aria-label="layer 0 head 0"]')
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    assert page.inner_text("#head-name") == "layer 1 head 2"
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#head-name") == "layer 1 mean of 3 heads"
    page.keyboard.press("ArrowDown")
    assert page.inner_text("#head-name") == "mean of all 6 heads"
    page.keyboard.press("Tab")  # to the heads by two scores
    page.keyboard.press("Tab")
    chosen = "document.activeElement.textContent"
    assert page.evaluate(chosen) == " None", "the last token is chosen at first"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(chosen) == " is"
    assert plain(page.inner_text("#details")).startswith("“␣is” (token 5) looks at: ")
    page.keyboard.press("Home")
    assert page.evaluate(chosen) == "The"
    page.keyboard.press("Escape")
    assert page.inner_text("#details") == ""
    page.keyboard.press("Enter")
    assert page.evaluate(chosen) == "The"
    assert plain(page.inner_text("#details")).startswith("“The” (token 0) looks at: "), "it is chosen again"


def test_a_finger_on_the_map_tells_the_weight(browser: Browser, file: Path) -> None:
    context = browser.new_context(viewport={"width": 420, "height": 800}, has_touch=True, locale="en-US")
    page = context.new_page()
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-ready]")
    side = page.evaluate("parseFloat(document.getElementById('map').style.width)")
    cell = 26
    page.locator("#map").tap(position={"x": side - 7.5 * cell, "y": side - 0.5 * cell})
    assert plain(page.inner_text("#cell")) == f"“␣None” (token 7) looks at “The” (token 0): {WEIGHTS[0, 0, 7, 0]:.4f}"
    assert page.evaluate("document.documentElement.scrollWidth") <= 420, "nothing wider than the screen"
    context.close()


def test_the_map_stays_where_it_is_while_tokens_are_chosen(show: ShowPage) -> None:
    page = show(attention_page(dump_of(["expression " * 3] * 128, random_weights(1, 2, 128)))).page
    places = set()
    for token in (127, 3, 64):
        page.locator(".token").nth(token).focus()
        places.add(page.evaluate("document.getElementById('map').getBoundingClientRect().top + scrollY"))
        looker = page.locator("#lookers span").nth(token).bounding_box()
        assert looker is not None
        assert 600 < looker["x"] < 1300, "brought to view in the rows"
    assert len(places) == 1


def test_a_line_narrower_than_a_dot_still_shows_in_the_overview(show: ShowPage) -> None:
    weights = np.zeros((1, 16, 200, 200), np.float32)
    weights[..., 0] = 0.02
    weights[..., 101] = 0.98 * np.tri(200)[:, 101]
    bright = show(attention_page(dump_of(["x"] * 200, weights))).page.evaluate("""() => [...document.querySelectorAll("#heads canvas")].map((canvas) => {
        const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        let count = 0;
        for (let at = 0; at < data.length; at += 4) count += data[at] > 200 && data[at + 1] > 200 && data[at + 3] > 0;
        return [canvas.width, count];
    })""")
    assert len(bright) == 17
    assert all(width < 100 and count > 0.4 * width for width, count in bright), bright


def test_a_page_that_the_browser_saves_has_each_part_once(show: ShowPage, file: Path) -> None:
    opened = show(file.read_bytes())
    parts = opened.page.locator("main *").count()
    show(opened.page.content().replace(" data-ready=", " data-saved=").encode())
    assert opened.page.locator("main *").count() == parts
    opened.complaints.clear()  # the policy forbids the styles that the browser saved


def test_without_a_clipboard_it_is_saved_as_a_file(browser: Browser, file: Path) -> None:
    context = browser.new_context(locale="en-US")
    page = context.new_page()
    page.add_init_script("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-ready]")
    with page.expect_download() as saved:
        page.click("#copy-csv")
    assert saved.value.suggested_filename == "attention.csv"
    assert saved.value.path().read_text().startswith("layer,head,query,key,")
    assert page.inner_text("#status") == "saved as attention.csv"
    context.close()


def test_a_table_for_a_spreadsheet_has_no_formula(run_script: RunScript) -> None:
    """As what gpt attn-dump writes to a .csv file."""
    tokens = ["=1+1", "＝a", "\n+b", "-", "x=1"]
    function = """(tokens) => {
        const weights = new Weights([0], [0]);
        weights.setText(tokens, tokens, 0);
        weights.of = () => new Float32Array(15);
        return weights.csv(0, 0);
    }"""
    table = run_script(["attention_views/weights.js"], function, tokens)
    rows = list(csv.DictReader(io.StringIO(table)))
    assert [row["key_token"] for row in rows[-5:]] == [inert_cell(token) for token in tokens]
    assert rows[-1]["query_token"] == "x=1"


def test_a_written_token_tells_its_probability(page: Page) -> None:
    assert "written by the model with probability 0.5000, rank 1" in page.inner_text("#details")
    page.locator(".token").nth(6).focus()
    assert "probability 0.1250, rank 2" in page.inner_text("#details")
    page.locator(".token").nth(5).focus()
    assert "probability" not in page.inner_text("#details")


def test_the_page_names_prompt_checkpoint_and_step(page: Page) -> None:
    origin = "“The value of 今天↵ is” · runs/tiny/checkpoints/best.safetensors, step 1200"
    assert plain(page.inner_text("#origin")) == origin
    assert page.title() == "Attention: The value of 今天↵ is – gpt"
    page.click("#language")
    assert plain(page.inner_text("#origin")).endswith("best.safetensors，第 1200 步")


def test_a_picture_is_copied_with_its_ground(page: Page) -> None:
    page.click("#theme")
    page.click("#copy-png")
    page.wait_for_selector("#status:not(:empty)")
    corner = page.evaluate("""async () => {
        const [item] = await navigator.clipboard.read();
        const picture = await createImageBitmap(await item.getType("image/png"));
        const context = new OffscreenCanvas(picture.width, picture.height).getContext("2d");
        context.drawImage(picture, 0, 0);
        return [picture.width, ...context.getImageData(0, 0, 1, 1).data];
    }""")
    assert corner[0] > 8 * 26
    assert corner[1:] == [22, 24, 29, 255], "the dark ground"


def test_it_speaks_chinese_and_english_and_turns_dark(open_page: OpenPage, file: Path) -> None:
    page = open_page(file, "zh-CN", "dark").page
    assert page.inner_text("h1") == "注意力"
    assert page.get_attribute("html", "lang") == "zh-CN"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 24, 29)"
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator(".token").first.evaluate("e => getComputedStyle(e).printColorAdjust") == "exact"
    page.emulate_media(media="screen")
    page.click("#language")
    page.click("#theme")
    assert page.inner_text("h1") == "Attention"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    left = page.evaluate("document.body.innerText").replace("今天", "").replace("中文", "")
    assert not re.search("[\u4e00-\u9fff]", left)
