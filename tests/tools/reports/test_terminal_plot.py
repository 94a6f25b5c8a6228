from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len
from support.records import record

from gpt_cli.checkpoints.run_list import Overview
from gpt_cli.common.drawing.token_labels import COLOURS
from gpt_cli.tools.reports.terminal_plot import Style, plot_curves


def test_one_run_is_a_line_of_stars_where_the_terminal_has_ascii_alone() -> None:
    """The smoothed losses are 4, 3.2 and 2.4, the validation losses 5, 4 and 3."""
    lines = plot_curves([record()], "step", Style(60, braille=False)).plain.split("\n")
    assert all(line.isascii() for line in lines)
    assert lines[0].split() == ["run", "state", "step", "training", "validation", "bits/byte", "tokens/s"]
    assert lines[1].split() == ["a", "one", "finished", "3", "2.4000", "best", "3.0000", "1.0000", "2"]
    assert lines[3] == "loss (nats/token); o validation"
    panel = [line.partition("|") for line in lines[4:16]]
    assert [panel[row][0].strip() for row in (0, 11)] == ["5", "2.4"]
    assert panel[0][2].strip() == "o"
    assert panel[-1][2].rstrip()[-1] == "*"
    assert lines[16].endswith(" 3 steps")


def test_dots_of_braille_go_from_the_first_to_the_last_point() -> None:
    lines = plot_curves([record()], "tokens", Style(80)).plain.split("\n")
    panel = [line.partition("│")[2] for line in lines[4:16]]
    dots = {character for line in panel for character in line} - {" ", "●"}
    assert dots
    assert all(0x2800 < ord(character) < 0x2900 for character in dots)
    assert sum(line.count("●") for line in panel) == 3
    # a falling line begins in its row at each place where the one above it ends
    joined = [line for line in panel if set(line) & dots]
    assert len(joined) == 8  # from 4 down to 2.4, of 5 to 2.4 in twelve rows
    assert lines[16].endswith(" 300 tokens")


@pytest.mark.parametrize("width", [40, 80, 120, 500])
@pytest.mark.parametrize("braille", [True, False])
def test_no_line_is_wider_than_the_terminal(width: int, braille: bool) -> None:
    drawn = plot_curves([record("a" * 300), record("天气" * 60)], "step", Style(width, braille=braille)).plain
    panels = drawn.split("\n")[3:]
    assert max(map(cell_len, panels)) <= min(width, 120)
    if width >= 100:
        assert max(map(cell_len, drawn.split("\n"))) <= 120


def test_a_curve_of_one_point_is_a_mark() -> None:
    drawn = plot_curves([record(losses=(5.0,))], "step", Style(80)).plain
    assert drawn.count("●") == 1 + 2 + 4  # in the title, two losses, and the other panels


def test_several_runs_without_colour_are_letters() -> None:
    drawn = plot_curves([record("one"), record("two", (9.0, 8.0, 7.0))], "step", Style(80)).plain
    letters = {line.partition("│")[2].strip()[:1] for line in drawn.split("\n")[4:16]}
    assert letters == {"a", "b", ""}
    assert "●" not in drawn
    assert [line.split()[:2] for line in drawn.split("\n")[1:3]] == [["a", "one"], ["b", "two"]]


def test_in_colour_each_run_has_its_own() -> None:
    drawn = plot_curves([record("one"), record("two", (9.0, 8.0, 7.0))], "step", Style(80, colour=True))
    assert {str(span.style) for span in drawn.spans} - {""} == set(COLOURS[:2])
    assert any(0x2800 < ord(character) < 0x2900 for character in drawn.plain)


def test_a_run_that_has_diverged_is_by_log() -> None:
    drawn = plot_curves([record("one", (6.0, 9e3, 4e9), "diverged")], "step", Style(80)).plain
    assert "loss (nats/token), log scale; ● validation" in drawn
    assert "diverged" in drawn


@pytest.mark.parametrize("others", [0, 1])
def test_runs_that_have_logged_nothing_have_no_panels(others: int) -> None:
    drawn = plot_curves([record("new", (), "training"), *[record()] * others], "seconds", Style(80)).plain
    assert (drawn.endswith("\n\nnothing logged"), "learning rate" in drawn) == (not others, bool(others))
    assert "training" in drawn


def test_a_hostile_name_cannot_disturb_the_terminal() -> None:
    assert "\x1b" not in plot_curves([record("a\x1b[31m")], "step", Style(80)).plain


def test_a_terminal_with_another_encoding_gets_ascii() -> None:
    assert Style.of(80, "utf-8", colour=False).braille
    assert not Style.of(80, "latin-1", colour=False).braille
    assert not Style.of(80, "unheard-of", colour=False).braille


def test_a_closing_loss_has_its_error_and_its_own_bits_per_byte() -> None:
    ended = Overview(Path("runs/one"), "finished", best_loss=2.9, validation_loss=3.25, bits_per_byte=1.5)
    closed = replace(record(), overview=replace(ended, outcome={"validation_loss_error": 0.0625}))
    row = plot_curves([closed], "step", Style(80)).plain.split("\n")[1]
    assert row.split()[4:] == ["2.4000", "3.2500", "±", "0.0625", "1.5000", "2"]
    assert len(row) <= 80


def test_the_speed_of_a_run_that_has_ended_is_that_of_its_whole_training() -> None:
    """The median of the lines is 2."""
    ended = replace(record(), overview=replace(record().overview, outcome={"tokens_per_second": 1234.5}))
    speeds = [line.split()[-1] for line in plot_curves([ended, record()], "step", Style(80)).plain.split("\n")[1:3]]
    assert speeds == ["1,234", "2"]


def test_losses_of_different_tokenizers_are_not_drawn_together() -> None:
    both = record("one"), record("two")
    runs = [replace(one, overview=replace(one.overview, best_loss=2.0, tokenizer=one.name)) for one in both]
    drawn = plot_curves(runs, "step", Style(80)).plain
    assert "nats/token" not in drawn
    assert drawn.count("validation, bits per byte") == 1
    alike = [replace(one, overview=replace(one.overview, tokenizer="same")) for one in runs]
    assert plot_curves(alike, "step", Style(80)).plain.count("nats/token") == 2
