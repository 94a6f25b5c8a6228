import numpy as np
from rich.cells import cell_len
from support.pages import ORIGIN

from gpt_cli.attention_maps.patterns import AttentionDump
from gpt_cli.attention_maps.terminal_map import draw_text_map, maps_to_draw
from gpt_cli.common.drawing.token_labels import colour_of

WEIGHTS = np.array([[1, 0, 0], [0.25, 0.75, 0], [0.01, 0.09, 0.9]])


def test_a_map_has_a_row_a_token_and_darker_cells_for_more_weight() -> None:
    text, shown = draw_text_map(("The", "今天", "\n"), WEIGHTS, 80, colour=False)
    assert shown == 3
    assert text.plain.split("\n")[:3] == [" The ██", "今天 ▒▒██", "   ↵   ░░██"]


def test_columns_have_their_tokens_downwards() -> None:
    text, _ = draw_text_map((" The", " 今天", " expression"), WEIGHTS, 80, colour=False)
    assert text.plain.split("\n")[3:] == [
        "            T 今e",
        "            h 天x",
        "            e   p",
        "                r",
        "                e",
        "                …",
        "",
    ]


def test_labels_line_up_whatever_their_width() -> None:
    text, _ = draw_text_map(("a" * 30, "今天天气很好今天", "b"), np.tril(np.ones((3, 3))), 80, colour=False)
    lines = text.plain.split("\n")[:3]
    assert {cell_len(line[: line.index("█")]) for line in lines} == {15}


def test_a_narrow_terminal_shows_the_last_tokens() -> None:
    weights = np.tril(np.ones((50, 50)))
    text, shown = draw_text_map(tuple("x" * 50), weights, 30, colour=False)
    assert shown == 28
    assert max(map(len, text.plain.split("\n"))) == 30


def test_colour_says_the_same_with_backgrounds() -> None:
    text, _ = draw_text_map(("a", "b", "c"), WEIGHTS, 80, colour=True)
    styles = [str(span.style) for span in text.spans]
    assert styles[0] == "on #fde725"
    assert len(styles) == 6


def test_in_colour_a_long_text_takes_half_a_line_a_token() -> None:
    weights = np.tril(np.ones((5, 5))) / np.arange(1, 6)[:, None]
    text, shown = draw_text_map(("a", " b", " 今天", "d", "e"), weights, 9, colour=True)
    assert shown == 5
    assert text.plain.split("\n") == ["a b ▀▄", " 今 ▀▀▀▄", "  e ▀▀▀▀▀", ""]
    one, half, third, quarter, fifth = map(colour_of, 1 / np.arange(1, 6))
    assert [str(span.style) for span in text.spans] == [
        f"{one} on {half}",
        half,
        *[f"{third} on {quarter}"] * 3,
        quarter,
        *[fifth] * 5,
    ]


def test_half_lines_on_a_narrow_terminal_show_the_last_tokens() -> None:
    weights = np.tril(np.ones((51, 51)))
    text, shown = draw_text_map(tuple("x" * 51), weights, 30, colour=True)
    assert shown == 27
    lines = text.plain.split("\n")
    assert max(map(len, lines)) <= 30
    assert lines[0] == "xx ▀▄"
    assert lines[-2] == " x " + "▀" * 27


def test_many_heads_are_drawn_as_their_mean() -> None:
    weights = np.stack([np.zeros((3, 2, 2)), np.ones((3, 2, 2))])
    many = AttentionDump(("a", "b"), (0, 1), (0, 1), (0, 1, 2), {"weights": weights}, ORIGIN)
    ((title, mean),) = maps_to_draw(many).items()
    assert title == "mean of 6 heads (choose with --layers and --heads)"
    assert (mean == 0.5).all()
    few = AttentionDump(("a", "b"), (0, 1), (4,), (0, 1, 2), {"weights": weights[:1]}, ORIGIN)
    assert list(maps_to_draw(few)) == ["layer 4 head 0", "layer 4 head 1", "layer 4 head 2"]
