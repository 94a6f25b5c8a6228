"""The notes are complete, their index is up to date, and what names a note finds it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
NOTES = ROOT / "docs/notes"
FILES = sorted(NOTES.glob("0*.md"))
NUMBERS = {path.name[:4] for path in FILES}
MENTION = re.compile(r"(?:\bnotes? |实测记录 )(\d{4})(?: to (\d{4}))?", re.IGNORECASE)
LINK = re.compile(r"\]\(((?:\.\./)*[\w/.-]+)(?:#[\w-]+)?\)")


def test_the_index_is_up_to_date() -> None:
    run = subprocess.run([sys.executable, NOTES / "index.py", "--check"], check=False)
    assert run.returncode == 0, "run: python docs/notes/index.py"


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_a_note_says_what_was_asked_and_answers_with_a_number(path: Path) -> None:
    head, prose = path.read_text("utf-8").split("---\n", 2)[1:]
    note = yaml.safe_load(head)
    assert note["question"].endswith("?")
    assert f"# {note['question']}\n" in prose
    assert note["status"] in ("decided", "dropped", "open")
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", note["date"])
    assert re.fullmatch(r"[0-9a-f]{8}", str(note["commit"]))
    assert note["machine"]
    assert note["area"]
    assert re.search(r"\d", note["answer"])
    assert all(": " in trial for trial in note.get("dropped", ())), "a dropped trial is `what: why`"
    assert all((NOTES / data).exists() for data in note.get("data", ()))
    if "code" in note:
        file, _, name = note["code"].partition(" ")
        assert name in (ROOT / file).read_text("utf-8")
    for target in LINK.findall(prose):
        assert (NOTES / target).exists(), target


def test_numbers_are_in_order_and_none_occurs_twice() -> None:
    assert [path.name[:4] for path in FILES] == [f"{number:04d}" for number in range(1, len(FILES) + 1)]


def test_each_mention_of_a_note_finds_it() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    mentions = 0
    for name in listed.splitlines():
        file = ROOT / name
        if file.suffix not in (".py", ".md", ".yaml", "") or not file.is_file() or file == Path(__file__):
            continue
        text = file.read_text("utf-8")
        assert "NOTES.md" not in text, name
        for match in MENTION.finditer(text):
            mentions += 1
            assert {number for number in match.groups() if number} <= NUMBERS, f"{name}: {match[0]}"
    assert mentions > 20 or not listed
