import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from rich.cells import cell_len

from gpt_cli.common.language import LANGUAGES, say
from gpt_cli.common.tables import WORD, filled
from gpt_cli.tools.explain import studies
from gpt_cli.tools.explain.explanation import HEAD_STEPS, Explanation, Note, Step, title_of
from gpt_cli.tools.explain.render import to_html, to_markdown, to_terminal
from gpt_cli.tools.explain.worked_example import journey

BESIDE = [
    Step("scores", "s", np.array([[1.0, -2.5]]), ["is"], ["今天", "is"], beside=True),
    Step("masked", "m", np.array([[1.0, -np.inf]]), ["is"], ["今天", "is"], beside=True),
]
TITLE = "masking before softmax, or renormalising after it"
REPORT = Explanation(TITLE, [*BESIDE, Step("values", "v", np.arange(40.0).reshape(2, 20), ["今天", "<b>|x"])])


def test_steps_beside_each_other_become_columns() -> None:
    lines = to_terminal(REPORT, "en", 80).splitlines()
    assert lines[2:7] == [
        "1. scores:  s  [1, 2]",
        "2. masked:  m  [1, 2]",
        "       scores  masked",
        "今天   1.0000  1.0000",
        "  is  -2.5000      -∞",
    ]


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_no_row_of_a_table_is_wider_than_the_terminal(width: int) -> None:
    lines = to_terminal(REPORT, "zh", width).splitlines()
    rows = [line for line in lines if re.search(r"\d\.\d{4}", line)]
    assert max(map(cell_len, rows)) <= width
    assert all(line.endswith("…") for line in rows[-2:]) == (width < 200)
    # columns that have names go on below where they do not fit
    assert len(rows) == (5 if width == 20 else 4)
    assert not any(line.endswith("…") for line in rows[:-2])


def test_markdown_has_tables_that_keep_their_cells() -> None:
    text = to_markdown(REPORT, "en")
    assert "| 今天 | 1.0000 | 1.0000 |" in text
    row = next(line for line in text.splitlines() if "b\\>" in line)
    assert row.startswith("| \\<b\\>\\|x | 20.0000 |")
    assert row.endswith("| 31.0000 | … |")
    note = Note("most_weight", "6 ` looks most at: 4 ` 0.5, 5 <script> 0.1")
    told = to_markdown(Explanation(TITLE, [replace(BESIDE[0], notes=[note])], source="a*b.txt"), "en")
    assert "6 \\` looks most at: 4 \\` 0.5, 5 \\<script\\> 0.1" in told
    assert "a\\*b.txt" in told


@pytest.mark.parametrize("write", [to_markdown, to_html])
def test_no_column_of_tokens_is_left_out(write: Callable[[Explanation, str], str]) -> None:
    tokens = [f"token {number}" for number in range(30)]
    text = write(Explanation(TITLE, [Step("scores", "s", np.ones((2, 30)), ["a", "b"], tokens)]), "en")
    assert "token 29" in text
    assert "…" not in text.replace("… stands for omitted", "")


def test_the_page_escapes_text_and_asks_for_nothing() -> None:
    page = to_html(REPORT, "zh")
    assert "&lt;b&gt;|x" in page
    assert "<b>" not in page
    assert '<html lang="zh-CN">' in page
    assert '<meta name="viewport" content="width=device-width' in page, "a phone shows it in its own width"
    assert "default-src 'none'; style-src 'sha256-" in page
    assert "<script" not in page


def test_the_json_of_a_long_text_comes_in_pieces_that_take_little_memory() -> None:
    names = ["token"] * 400
    pieces = [*map(len, Explanation(TITLE, [Step("weights", "w", np.full((400, 400), 0.5), names, names)]).to_json())]
    assert max(pieces) < 80_000 < sum(pieces) / 8


@pytest.mark.parametrize("step", HEAD_STEPS)
def test_every_step_of_a_head_has_a_chinese_title(step: str) -> None:
    assert re.search("[\u4e00-\u9fff]", say(title_of(step), "zh"))


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    "write", [lambda explanation, language: to_terminal(explanation, language, 100), to_markdown, to_html]
)
@pytest.mark.parametrize(
    "make", [journey, lambda: studies.scaling(None), studies.mask, studies.dropout, studies.padding]
)
def test_every_report_is_written_in_both_languages(make, write, language: str) -> None:  # type: ignore[no-untyped-def]
    report = make()
    text = write(report, language)
    assert say(report.title, language) in text
    if language == "zh":
        for step in report.steps:
            names = [label.text for label in (*step.rows, *step.columns, *step.notes) if isinstance(label, Note)]
            for said in [step.title or title_of(step.name), *names]:
                assert re.search("[\u4e00-\u9fff]|÷", say(said, "zh")), said
    assert not re.search(r"{\w+}|None|nan", text)
    # formulas and names of tokens aside, the English text has no Chinese
    assert (language == "zh") == bool(re.search("[\u4e00-\u9fff]", text))


@pytest.mark.parametrize(
    ("sentence", "width", "lines"),
    [
        ("softmax picks one key", 12, ["softmax", "picks one", "key"]),
        ("softmax 只选一个键，熵降到 0。", 12, ["softmax 只选", "一个键，熵降", "到 0。"]),
        ("一二三，四", 6, ["一二", "三，四"]),
        ("unbreakable", 4, ["unbreakable"]),
    ],
)
def test_a_sentence_is_broken_between_words_or_chinese_characters(sentence: str, width: int, lines: list[str]) -> None:
    assert [*filled(WORD.findall(sentence), width)] == lines


def test_no_sentence_of_a_study_is_wider_than_the_terminal() -> None:
    for language in ("en", "zh"):
        lines = to_terminal(studies.scaling(None), language, 80).splitlines()
        assert max(cell_len(line) for line in lines if "softmax(" not in line) <= 80
    assert "entropy   (÷√K)  largest   (÷√K)  gradient   (÷√K)" in to_terminal(studies.scaling(None), "en", 80)
