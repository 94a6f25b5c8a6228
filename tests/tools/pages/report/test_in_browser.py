"""The report in headless Chromium: what it shows is what the runs have left."""

import json
import re
import shutil
from contextlib import chdir, nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page
from support.browsers import OpenPage, ShowPage
from support.pages import keep, snapshots_of
from support.records import changed
from support.scripts import RunScript

from gpt_cli.checkpoints.lock import sole_trainer
from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.tools.reports.page_content import report_page
from gpt_cli.tools.reports.run_record import LoggedSample, RunRecord, read_record

TOKENS = ["The", " value", " of", " 今天"]
LOSSES = np.array([6.0, 4.5, 4.0, 3.0])
SMOOTHED = np.array([6.0, 5.5, 5.0, 4.25])


def other(record: RunRecord) -> RunRecord:
    """A second run, with twice the losses, another width and two more samples."""
    record = changed(record, model={"d_model": 64})
    overview = replace(record.overview, state="stopped")
    metrics = {**record.metrics, "loss": 2 * LOSSES, "smoothed_loss": 2 * SMOOTHED}
    samples = (*record.samples, LoggedSample(30, "thirty"))
    return replace(record, name="other", overview=overview, metrics=metrics, samples=samples)


@pytest.fixture(scope="module")
def made(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunRecord, Path]:
    """The smoke run with losses that a person can check, and snapshots; a report of it and another one."""
    folder = tmp_path_factory.mktemp("report")
    shutil.copytree(trained / "runs", folder / "runs")
    with chdir(folder):
        keep(snapshots_of(3, 2, 12, TOKENS), Path("runs/smoke"))
        found = read_record(Path("runs/smoke"))
        record = replace(found, metrics={**found.metrics, "loss": LOSSES, "smoothed_loss": SMOOTHED})
        Path("report.html").write_bytes(report_page([record, other(record)], "step", {}))
    return record, folder / "report.html"


@pytest.fixture
def record(made: tuple[RunRecord, Path], monkeypatch: pytest.MonkeyPatch) -> RunRecord:
    monkeypatch.chdir(made[1].parent)
    return made[0]


@pytest.fixture
def file(made: tuple[RunRecord, Path]) -> Path:
    return made[1]


def tip(page: Page, panel: str = "loss") -> str:
    return page.inner_text(f".panel.{panel} .tip")


def test_one_run_has_its_figures_as_a_list(show: ShowPage, record: RunRecord) -> None:
    page = show(report_page([record], "step", {})).page
    assert page.title() == "Report: smoke – gpt"
    assert page.inner_text("#origin") == "runs/smoke"
    shown = dict(zip(page.locator("dt").all_inner_texts(), page.locator("dd").all_inner_texts(), strict=True))
    outcome = json.loads(Path("runs/smoke/outcome.json").read_text())
    assert shown["state"] == "finished"
    assert (shown["steps"], shown["training loss"]) == ("20", "4.2500")
    closing = f"{outcome['validation_loss']:.4f} ± {outcome['validation_loss_error']:.4f}"
    assert shown["validation loss (best weights)"] == closing
    assert shown["bits per byte"] == f"{outcome['bits_per_byte']:.4f}"
    assert not page.is_visible("#runs")
    assert page.locator(".curves .name").count() == 0
    assert page.inner_text("#alike") == "the settings are those of smoke"


def test_several_runs_have_a_row_each_with_the_settings_that_differ(page: Page) -> None:
    rows = page.locator("#runs tr").all()
    cells = [row.locator("th, td").all_inner_texts() for row in rows]
    assert cells[0][:3] == ["run", "model.d_model", "state"]
    assert [row[1] for row in cells[1:]] == ["32", "64"]
    assert [row[0].split() for row in cells[1:]] == [["a", "smoke"], ["b", "other"]]
    assert cells[1][2] == "finished"
    assert re.match(r"stopped\s*last line: \w+ \d+, 20\d\d", cells[2][2])
    # what all runs share needs no column
    assert cells[0][3:] == ["training loss"]
    same = page.inner_text("#alike")
    assert re.fullmatch(r"The same for all runs: validation loss .+ ± .+, steps 20, .+, parameters 59.1K\.", same)


def test_runs_of_different_tokenizers_are_compared_by_bits_per_byte(show: ShowPage, record: RunRecord) -> None:
    foreign = replace(record, name="other", overview=replace(record.overview, tokenizer="another"))
    opened = show(report_page([record, foreign], "step", {}))
    assert opened.page.locator(".panel.loss").count() == 0
    assert opened.page.locator(".panel.large").get_attribute("class") == "panel bits_per_byte large"
    assert opened.page.inner_text("#alike").endswith("losses per token cannot be compared; bits per byte can.")
    assert not opened.page.is_visible("#smooth")


def test_runs_of_several_seeds_have_a_mean(show: ShowPage, record: RunRecord) -> None:
    again = replace(changed(record, train={"seed": 7}), name="again")
    cells = show(report_page([record, again], "step", {})).page.locator("#means th, #means td").all_inner_texts()
    loss = f"{record.overview.outcome['validation_loss']:.4f}"
    assert cells == ["seeds", "mean validation loss ± standard error over seeds", "2", f"{loss} ± 0.0000"]


def test_a_run_without_a_closing_evaluation_says_so(show: ShowPage, record: RunRecord) -> None:
    overview = replace(record.overview, validation_loss=None, best_loss=5.5, bits_per_byte=3.25, state="stopped")
    opened = show(report_page([replace(record, overview=overview)], "step", {}))
    assert "5.5000 (best so far)" in opened.page.locator("dd").all_inner_texts()
    opened.page.click("text=中文")
    assert "5.5000（目前最低）" in opened.page.locator("dd").all_inner_texts()


def test_pointing_at_a_curve_tells_the_values_of_all_runs_there(page: Page) -> None:
    panel = page.locator(".panel.loss .curves")
    box = panel.bounding_box()
    assert box
    panel.hover(position={"x": box["width"] - 26, "y": 100})
    assert tip(page).split("\n")[0] == "step 20"
    assert "loss 3.0000\nsmoothed 4.2500\nvalidation 5.4970" in tip(page)
    assert "loss 6.0000\nsmoothed 8.5000" in tip(page)
    panel.hover(position={"x": 54 + (box["width"] - 80) / 4, "y": 100})
    assert tip(page).split("\n")[0] == "step 5"
    assert "validation 5.5887 (10)" in tip(page)
    marks = page.locator(".curves .mark").evaluate_all("marks => marks.map((mark) => mark.getAttribute('d') !== '')")
    assert len(marks) == 5
    assert all(marks), "the other panels mark the place too"
    assert page.locator(".tip:visible").count() == 1


def test_keys_walk_along_the_lines_of_the_axis_that_one_chooses(page: Page, record: RunRecord) -> None:
    page.focus(".panel.learning_rate .curves")
    for key, step in [("Home", 5), ("ArrowRight", 10), ("End", 20), ("ArrowRight", 20), ("ArrowLeft", 15)]:
        page.keyboard.press(key)
        assert tip(page, "learning_rate").split("\n")[0] == f"step {step}"
    page.keyboard.press("Escape")
    assert page.locator(".tip:visible").count() == 0
    page.select_option("#axis", "tokens")
    page.press(".panel.loss .curves", "End")
    assert tip(page).startswith("tokens 5,120")
    page.select_option("#axis", "seconds")
    page.press(".panel.loss .curves", "End")
    assert float(tip(page).split()[1]) == pytest.approx(record.metrics["seconds"][-1], rel=1e-4)


def heights(page: Page, kind: str) -> list[float]:
    path = page.locator(f".panel.loss g.{kind} .line").first.get_attribute("d")
    assert path
    return [float(point.split()[1]) for point in re.split("[ML]", path)[1:]]


def test_curves_stand_where_their_losses_are_and_are_switched_off(page: Page) -> None:
    down = heights(page, "loss")
    assert np.diff(down) / (down[-1] - down[0]) == pytest.approx([0.5, 1 / 6, 1 / 3], abs=0.01)
    page.check("#logarithmic")
    down = heights(page, "loss")
    expected = np.diff(np.log(LOSSES)) / np.log(LOSSES[-1] / LOSSES[0])
    assert np.diff(down) / (down[-1] - down[0]) == pytest.approx(expected, abs=0.01)
    assert page.locator(".panel.loss g.thin").count() == 2
    page.uncheck("#smooth")
    assert page.locator("g.smoothed_loss, g.thin").count() == 0
    assert page.locator(".panel.loss .name").all_text_contents() == ["a", "b"], "the lower one first"
    page.uncheck('input[aria-label="show smoke"]')
    assert page.locator(".panel.loss .name").all_text_contents() == ["b"]


def test_of_very_many_evaluations_some_have_dots(show: ShowPage, record: RunRecord) -> None:
    metrics = {name: np.arange(1, 101.0) for name in record.metrics}
    page = show(report_page([replace(record, metrics=metrics)], "step", {})).page
    assert page.locator(".validation_loss .dot").count() == 50


def test_runs_differ_by_more_than_their_colour_when_there_are_many(show: ShowPage, record: RunRecord) -> None:
    opened = show(report_page([replace(record, name=f"run {number}") for number in range(30)], "step", {}))
    looks = opened.page.locator("#runs .swatch .line").evaluate_all(
        "lines => lines.map((line) => getComputedStyle(line).stroke + getComputedStyle(line).strokeDasharray)"
    )
    assert len(set(looks)) == 30
    assert opened.page.locator("#runs th b").all_inner_texts()[25:28] == ["z", "27", "28"]


def test_samples_stand_side_by_side_by_step(page: Page, record: RunRecord) -> None:
    captions = page.locator(".sample figcaption")
    assert captions.all_inner_texts() == ["a smoke · step 20", "b other · step 30"]
    assert page.locator(".sample p").nth(1).text_content() == "thirty"
    page.press("#sample-step", "Home")
    assert page.inner_text("#sample-moment") == "step 10"
    assert page.locator(".sample p").first.text_content() == record.samples[0].text
    (shared,) = page.locator(".sample mark").all_inner_texts()  # nothing that "thirty" begins with too
    assert all(sample.text.startswith(shared) for sample in record.samples)
    assert page.inner_text("#samples-marked").startswith("Shaded: the prompt")
    page.check("#every-sample")
    assert page.locator(".sample").count() == 5


def test_settings_environment_and_corpus_are_tables(page: Page) -> None:
    for summary in page.locator("#settings-part summary").all():
        summary.click()
    found = {
        row.split("\t")[0]: row.split("\t")[1:] for row in page.inner_text("#settings-part").split("\n") if "\t" in row
    }
    assert found["train.max_steps"] == ["20", "20"]
    assert found["device"] == ["cpu", "cpu"]
    assert found["training tokens"] == ["196489", "196489"]
    assert found["source"] == ["python-docs", "python-docs"]
    assert page.locator("#settings .differs th").all_inner_texts() == ["model.d_model"]


def test_attention_follows_the_slider_and_the_chosen_head(page: Page) -> None:
    part = page.locator("figure.attention").first
    assert part.locator("output").inner_text() == "step 20 · loss 2.0000"
    assert part.locator("canvas").count() == 25
    ink = "canvas => canvas.toDataURL()"
    before = part.locator(".large").evaluate(ink)
    part.locator('button[aria-label="layer 1 head 1"]').click()
    chosen = part.locator(".large").evaluate(ink)
    assert chosen != before
    part.locator("input").press("Home")
    assert part.locator("output").inner_text() == "step 1 · loss 4.0000"
    assert part.locator(".large").evaluate(ink) != chosen
    assert "gpt attn-dump --run runs/smoke --over-training" in part.inner_text()


CHINESE = {"training": "训练中", "diverged": "已发散", "empty": "空", "damaged": "已损坏"}


@pytest.mark.parametrize("state", CHINESE)
def test_every_state_has_a_page(show: ShowPage, copied: Path, state: str) -> None:
    run = RunDirectory(copied)
    if state == "empty":
        shutil.rmtree(run.checkpoints)
        run.checkpoints.mkdir()
        for path in (run.metrics, run.samples, run.outcome):
            path.unlink()
    elif state == "damaged":
        run.outcome.write_text("{}")
    else:
        run.end("diverged", 13)
    with sole_trainer(copied, lambda _: None) if state == "training" else nullcontext():
        record = read_record(copied)
    page = show(report_page([record], "step", {})).page
    assert page.inner_text(".state").startswith(state)
    assert ("last line:" in page.inner_text(".state")) == (state != "empty")
    assert page.is_visible("#nothing") == (state == "empty")
    assert page.locator(".panel").count() == (0 if state == "empty" else 5)
    assert "gpt report runs/smoke --prompt TEXT" in page.inner_text("#no-attention")
    assert ("outcome.json" in page.inner_text("#notes")) == (state == "damaged")
    page.click("#language")
    assert page.inner_text(".state").startswith(CHINESE[state])


@pytest.mark.parametrize(("width", "theme"), [(360, "dark"), (1300, "light")])
def test_it_fits_widths_in_both_themes_and_languages(open_page: OpenPage, file: Path, width: int, theme: str) -> None:
    page = open_page(file, scheme=theme).page
    page.set_viewport_size({"width": width, "height": 900})
    for _ in range(2):
        page.locator(".panel.loss .curves").hover(position={"x": width // 2, "y": 60})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        box = page.locator(".tip:visible").bounding_box()
        assert box
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        page.click("#language")
    assert page.inner_text("h1") == "Report"
    drawn = page.evaluate("document.querySelector('.panel.loss .curves').clientWidth")
    assert page.get_attribute(".panel.loss .curves", "viewBox") == f"0 0 {drawn} 340", "so that it shrinks on paper"


def test_ticks_that_are_close_have_numbers_of_their_own(run_script: RunScript) -> None:
    numbers = [0, 5e-4, 0.001, 0.0015, 0.002, 1.7395, 1.74, 3.3002, 3.3004, 1234.5]
    expected = ["0", "5e-4", "0.001", "0.0015", "0.002", "1.7395", "1.74", "3.3002", "3.3004", "1,234.5"]
    assert run_script(["report/numbers.js"], "(numbers) => numbers.map(tickText)", numbers) == expected


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("en", ["5.12K", "59.1K", "410K", "1.14M", "42.1M", "1.23B"]),
        ("zh", ["5,120", "5.91 万", "41 万", "114 万", "4,210 万", "12.3 亿"]),
    ],
)
def test_tokens_are_counted_as_the_language_does(language: str, expected: list[str], run_script: RunScript) -> None:
    function = """([language, numbers]) => {
        document.documentElement.lang = language;
        const found = numbers.map(FORMATS.tokens);
        document.documentElement.lang = "en";
        return found;
    }"""
    numbers = [5120, 59_100, 410_000, 1_139_000, 42_070_000, 1_234_000_000]
    assert run_script(["report/numbers.js"], function, [language, numbers]) == expected
