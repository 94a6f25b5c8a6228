"""The lesson in both languages: its commands run, and print what the page shows: to the digit where neither training nor
the Python at hand has a say, else in its form."""

import math
import re
import shlex

import pytest
from support.documents import DOCS, Shell, form, in_both_languages, is_in_order, looking, reads_the_same_text, shown

PAGES = ("lesson.md", "lesson.zh-CN.md")
QUICKLY = "--max-steps 4 --set train.batch_size=2 --set data.validation_tokens=256 --set train.eval_tokens=256"


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_print_what_the_page_shows(page: str, shell: Shell) -> None:
    found = shown(page)
    assert len(found) == 10
    same_text = reads_the_same_text(shell)
    for command, lines in found:
        words = shlex.split(command)[1:]
        outcome = shell.run(f"{command} {QUICKLY}" if words[0] == "train" else command)
        # stderr begins before stdout and ends after it
        printed = in_both_languages((outcome.err + outcome.out + outcome.err).splitlines())
        if words[0] == "sample":
            assert outcome.out.strip()
            continue
        if same_text or not {"data", "train", "--run"} & set(words):
            assert is_in_order(list(map(form, lines)), list(map(form, printed))), command
        if words[0] == "explain":
            # of a trained run only what random numbers show
            exact = lines if "--run" not in words else [line for line in lines if line.lstrip().startswith("K = ")]
            assert is_in_order(exact, [line.rstrip() for line in printed]), command


def test_the_check_of_the_order_notices_a_wrong_line() -> None:
    assert is_in_order(["a", "c"], ["a", "b", "c"])
    assert not is_in_order(["c", "a"], ["a", "b", "c"])
    assert form("8 string looks most at: 5 . 0.9743") == "# string looks most at:"
    assert form("     If         ▒▒██░░") == form("     If ░░ ▓▓") == "If"


@pytest.mark.parametrize("page", PAGES)
def test_each_number_of_the_page_follows_from_those_left_of_it(page: str) -> None:
    """Scores, divided by the root of K, masked, softmaxed: as far as four decimals go."""
    (lines,) = [lines for command, lines in shown(page) if command.startswith("gpt explain --run")]
    _, _, masked, weights = looking(lines, num_rows=9, size=32).T
    text = (DOCS / page).read_text()
    assert f"e^{masked.max()}" in text
    assert f"{100 * weights.max():.1f}" in text


def test_both_pages_show_the_same_numbers() -> None:
    numbers = [
        [
            re.findall(r"-?\d+\.\d{4}", line)
            for command, lines in shown(page)
            for line in lines
            if "sample" not in command
        ]
        for page in PAGES
    ]
    english, chinese = ([row for row in rows if row] for rows in numbers)
    assert len(english) == len(chinese)
    for one, other in zip(english, chinese, strict=True):
        # titles of another width leave room for more or fewer numbers
        assert one[: min(len(one), len(other))] == other[: min(len(one), len(other))]


@pytest.mark.parametrize(("page", "words"), [("lesson.md", "Exercises|Solutions"), ("lesson.zh-CN.md", "练习|答案")])
def test_each_exercise_has_a_solution_whose_numbers_follow_from_the_page(page: str, words: str) -> None:
    exercises, solutions = words.split("|")
    text = (DOCS / page).read_text()
    chapters = re.split(r"^## \d\. .*$", text, flags=re.MULTILINE)[1:8]
    for chapter in chapters:
        _, asked, solved = re.split(rf"\*\*{exercises}\*\*|<summary>{solutions}</summary>", chapter)
        numbers = [re.findall(r"^(\d)\. ", part, re.MULTILINE) for part in (asked, solved)]
        assert numbers[0] == numbers[1] != []
    num_computed = 0
    for left, right in re.findall(r"((?:[\d.,]+ [-+x/] )+[\d.,]+) = ([\d.,]*\d)", text):
        value = eval(left.replace(",", "").replace("x", "*"))
        decimals = len(right.partition(".")[2])
        assert float(right.replace(",", "")) == pytest.approx(value, abs=10**-decimals), left
        num_computed += 1
    assert num_computed >= 15
    row = [0.9995, 0.9544, 0.9422, 0.4753, 0.4576, 0.6310]
    total = sum(map(math.exp, row))
    for value in (math.exp(2.2894 - 7.1119), math.log(64), total, math.exp(row[0]) / total, 1.4950**0.5, 0.6654**0.5):
        assert re.search(rf"{value:.4f}|{value:.3f}|{value:.2f}", text)


def test_both_pages_have_the_same_exercises() -> None:
    numbers = [
        re.findall(
            r"\d[\d.,]*\d", "".join(re.findall(r"<details>(.*?)</details>", (DOCS / page).read_text(), re.DOTALL))
        )
        for page in PAGES
    ]
    assert numbers[0] == numbers[1]
    minutes = [re.findall(r"^\| [^|]+((?: \| \d+)+) \|$", (DOCS / page).read_text(), re.MULTILINE) for page in PAGES]
    assert minutes[0] == minutes[1]
    assert sum(map(int, minutes[0][1].split(" | ")[1:])) == 80
