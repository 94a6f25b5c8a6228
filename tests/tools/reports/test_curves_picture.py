import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib.colors
import matplotlib.image
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from support.records import record

from gpt_cli.common.drawing import canvas
from gpt_cli.common.drawing.token_labels import COLOURS
from gpt_cli.config.load import read_config
from gpt_cli.tools import pages
from gpt_cli.tools.reports import curves_picture as picture
from gpt_cli.tools.reports.compare_runs import MOST_DRAWN, groups_of
from gpt_cli.tools.reports.curves_picture import draw_curves, draw_losses
from gpt_cli.tools.reports.run_record import RunRecord

pytestmark = pytest.mark.slow


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """What is drawn, in place of the files that it would become, which take half a second each."""
    drawn = list[Figure]()
    monkeypatch.setattr(picture, "as_file", lambda figure, _: drawn.append(figure) or b"")
    return drawn


def texts(figure: Figure) -> list[str]:
    """Every text of a picture."""
    return [text.get_text() for text in figure.findobj(Text)]


def count(png: bytes, colour: str) -> int:
    """How many pixels have a colour."""
    pixels = matplotlib.image.imread(io.BytesIO(png))[..., :3]
    return int((np.abs(pixels - matplotlib.colors.to_rgb(colour)).max(-1) < 0.01).sum())


def test_an_svg_has_its_words_as_text() -> None:
    svg = draw_curves([record("one"), record("two")], "step", "svg").decode()
    ElementTree.fromstring(svg)
    assert svg.count("<!-- step -->") == 5
    for text in ("loss (nats/token)", "learning rate", "one", "two"):
        assert f"<!-- {text} -->" in svg


@pytest.mark.parametrize(
    ("losses", "axis", "label", "ticks"),
    [
        ((9.0, 8.0), "step", "step", ["0", "1", "2"]),
        ((4.0, 3.0, 2.0), "step", "step", ["0", "1", "2", "3"]),
        ((4.0, 3.0, 2.0), "tokens", "tokens", ["0", "50", "100", "150", "200", "250", "300"]),
        ((4.0, 3.0, 2.0), "seconds", "training time (min)", ["0", "0.5", "1", "1.5", "2", "2.5", "3"]),
    ],
)
def test_every_axis_has_its_name_and_ticks_at_whole_steps_or_round_minutes(
    losses: tuple[float, ...], axis: str, label: str, ticks: list[str], figures: list[Figure]
) -> None:
    draw_curves([record("one", losses)], axis, "png")
    assert [axes.get_xlabel() for axes in figures[0].axes] == [label] * 5
    for axes in figures[0].axes:
        assert [axes.xaxis.get_major_formatter()(tick) for tick in axes.get_xticks()] == ticks


def test_losses_are_drawn_as_on_the_page(figures: list[Figure]) -> None:
    """A thin pale line for each line of metrics, a thick one smoothed, dots for validation, for one run as for two."""
    of_the_page = "thick: smoothed; thin: each line of metrics; dots: validation text"
    assert f'lossLegend: "{of_the_page}"' in (Path(pages.__file__).parent / "report" / "words.js").read_text()
    for runs in ([record("one")], [record("one"), record("two")]):
        draw_curves(runs, "step", "png")
        axes = figures[-1].axes[0]
        assert axes.get_title() == f"{of_the_page}, a star at its lowest"
        part = [replace(one, metrics={**one.metrics, "validation_tokens": np.full(3, 1024.0)}) for one in runs]
        draw_curves(part, "step", "png")
        assert figures[-1].axes[0].get_title() == f"{of_the_page} (of 1,024 tokens), a star at its lowest"
        assert figures[-1].axes[1].get_ylabel() == "validation, bits per byte\n(of 1,024 tokens)"
        for number in range(len(runs)):
            logged, smoothed, validation, lowest = axes.lines[4 * number : 4 * number + 4]
            assert {line.get_color() for line in (logged, smoothed, validation, lowest)} == {COLOURS[number]}
            assert np.asarray(logged.get_ydata()).tolist() == [4, 3, 2]
            assert (logged.get_linewidth() < 1, logged.get_alpha()) == (True, 0.38)
            assert smoothed.get_linewidth() > 1.5
            assert (np.asarray(validation.get_ydata()).tolist(), validation.get_marker()) == ([5, 4, 3], "o")
            assert (np.asarray(lowest.get_xydata()).tolist(), lowest.get_marker()) == ([[3, 3]], "*")


def test_a_line_of_one_point_is_a_dot(figures: list[Figure]) -> None:
    draw_curves([record("one", (4.0,))], "step", "png")
    assert [[line.get_marker() for line in axes.lines] for axes in figures[0].axes] == [["o"] * 3 + ["*"], *[["o"]] * 4]


def test_the_picture_of_losses_is_of_one_run(smoke_run: Path) -> None:
    assert count(draw_losses(smoke_run) or b"", COLOURS[0]) > 600


def test_losses_of_different_tokenizers_are_not_drawn_together(figures: list[Figure]) -> None:
    both = record("one"), record("two")
    runs = [replace(one, overview=replace(one.overview, best_loss=2.0, tokenizer=one.name)) for one in both]
    draw_curves(runs, "step", "png")
    labels = [axes.get_ylabel() for axes in figures[0].axes]
    assert "loss (nats/token)" not in labels
    assert labels.count("validation, bits per byte") == 1


def test_as_many_settings_as_can_be_told_apart_have_a_colour_the_others_are_grey(figures: list[Figure]) -> None:
    """Of 20 runs the 12 with the lowest closing losses, which here are the last."""
    runs = [
        replace(one, overview=replace(one.overview, validation_loss=30.0 - number))
        for number, one in enumerate(record(f"run-{number}") for number in range(20))
    ]
    groups = groups_of(runs)
    strokes = [tuple(picture._stroke(group).values()) for group in groups]
    assert len(set(strokes)) == MOST_DRAWN + 1
    assert strokes[:8] == [("#777777", ":")] * 8
    for some in (runs, runs[:2]):
        draw_curves(some, "step", "png")
    many, few = figures
    assert {"run-8", "8 more, with higher losses"} <= set(texts(many))
    assert "run-7" not in texts(many)
    assert many.get_figheight() > few.get_figheight(), "room for the names"


def sweep_of(values: tuple[Any, ...], seeds: tuple[int, ...], key: str = "learning_rate") -> list[RunRecord]:
    """Runs that differ in a setting of `train` and in their seeds; they end with place + seed / 10."""
    config, runs = read_config("smoke"), list[RunRecord]()
    for place, value in enumerate(values):
        for seed in seeds:
            changed = config.changed(train={key: value, "seed": seed})
            one = record(f"s/{place}-{seed}", (8.0, 6.0 + place + seed / 10))
            ended = replace(one.overview, config=changed, validation_loss=place + seed / 10)
            runs.append(replace(one, overview=ended))
    return runs


def test_repeats_are_one_line_in_a_band_and_the_loss_stands_by_the_setting(figures: list[Figure]) -> None:
    """Seeds 1 and 3 end with 6.1 and 6.3 in training: mean 6.2, standard error 0.1; validation is 1 higher."""
    draw_curves(sweep_of((1e-4, 1e-3, 1e-2), (1, 3)), "step", "png")
    losses, by_rate = figures[0].axes[:2]
    assert [text.get_text() for text in figures[0].legends[0].get_texts()] == [
        "learning_rate=0.0001", "learning_rate=0.001", "learning_rate=0.01",
    ]  # fmt: skip
    smoothed = [line for line in losses.lines if line.get_linewidth() == 1.8]
    assert [line.get_color() for line in smoothed] == list(COLOURS[:3])
    assert "means over seeds ± standard error" in losses.get_title()
    validation = next(line for line in losses.lines if line.get_marker() == "o")
    assert np.asarray(validation.get_ydata()).tolist() == pytest.approx([9, 7.2])
    band = losses.collections[1].get_paths()[0].vertices
    at_the_end = [y for x, y in np.asarray(band).tolist() if x == 2]
    assert (min(at_the_end), max(at_the_end)) == (pytest.approx(7.1), pytest.approx(7.3))
    assert (by_rate.get_xscale(), by_rate.get_xlabel()) == ("log", "train.learning_rate")
    joined = next(line for line in by_rate.lines if line.get_color() == "#777777")
    assert np.asarray(joined.get_xydata()) == pytest.approx(np.array([[1e-4, 0.2], [1e-3, 1.2], [1e-2, 2.2]]))


def test_a_setting_that_is_no_number_has_a_tick_for_each_value(figures: list[Figure]) -> None:
    draw_curves(sweep_of((None, 8, 16), (1,), "micro_batch_size"), "step", "png")
    ticks = figures[0].axes[1].get_xticklabels()
    assert [text.get_text() for text in ticks] == ["null", "8", "16"]


@pytest.mark.parametrize("losses", [[()], [(5.0,), (6.0, 1e30)]])
def test_runs_with_hardly_any_lines_and_those_that_explode_are_drawn(losses: list[tuple[float, ...]]) -> None:
    svg = draw_curves([record("a", of_run, "diverged") for of_run in losses], "step", "svg").decode()
    assert ("<!-- nothing logged -->" in svg) == (losses == [()])
    assert "<!-- a (diverged) -->" in svg


def test_a_name_of_any_characters_is_drawn_as_it_is(figures: list[Figure], monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(picture, "find_fonts", lambda characters: (["DejaVu Sans"], {"今"} & characters))
    for runs in ([record("今 $a_b")], [record("今 $a_b"), record("b\n")]):
        draw_curves(runs, "step", "svg", lines.append)
        assert "□ $a_b" in texts(figures[-1])
    assert r"b\n" in texts(figures[-1])
    assert lines == ["no installed font has the characters 今 (Debian: apt install fonts-noto-cjk)"] * 2


def test_every_word_of_the_picture_has_chinese(figures: list[Figure], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canvas, "find_fonts", lambda _: (["DejaVu Sans"], set()))
    monkeypatch.setenv("GPT_LANGUAGE", "zh")
    said: set[str] = set()
    for runs, axis in (([record("今")], "step"), ([record("天", ())], "step"), ([record("今")] * 2, "seconds")):
        draw_curves(runs, axis, "png")
        found = set(texts(figures[-1]))
        english = {text for text in found if re.search("[a-z]{3}", text) and not re.search("[\u4e00-\u9fff]", text)}
        assert english == set(), "each has Chinese"
        said |= found
    assert {"每秒 token 数", "训练时间（min）", "没有记录"} < said


def test_without_a_chinese_font_it_stays_english(figures: list[Figure], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canvas.font_manager, "findSystemFonts", list)
    monkeypatch.setenv("GPT_LANGUAGE", "zh")
    lines: list[str] = []
    draw_curves([record("one")], "step", "png", lines.append)
    assert "learning rate" in texts(figures[0])
    assert lines == [
        "no installed font has Chinese characters, so the picture is in English (Debian: apt install fonts-noto-cjk)"
    ]
