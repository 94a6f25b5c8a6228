"""Write docs/notes/README.md from the front matter of the notes; `--check` only compares."""

import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

NOTES = Path(__file__).parent
INDEX = NOTES / "README.md"
HEAD = """# Notes: measurements, decisions and failed ideas

[README](../../README.md) · [Benchmarks](../benchmarks.md) · [CONTRIBUTING](../../CONTRIBUTING.md)

`python docs/notes/index.py` writes this page from the front matter of the notes. Each note answers one question, with
the command that gives its figures. Where it does not say otherwise, nothing else ran on the machine, and the Zen 5 had
24 GiB. Such machines are
noisy: compare ratios, and never time two trainings at once (two processes of two threads each on two cores ran 5 to 10
times slower, not 2 times). "Predicted" is what we expected before we measured. A benchmark that is gone is in the
history: `git show COMMIT:benchmarks/NAME.py`.
"""


def notes() -> dict[str, dict[str, Any]]:
    """Return the front matter of each note by the name of its file."""
    return {path.name: front(path) for path in sorted(NOTES.glob("0*.md"))}


def front(path: Path) -> dict[str, Any]:
    """Return the front matter of one note."""
    return yaml.safe_load(path.read_text("utf-8").split("---\n")[1])


def lines() -> Iterator[str]:
    """Yield the index: the notes by area, then what was tried and dropped."""
    yield HEAD
    for area, group in groupby(notes().items(), key=lambda item: item[1]["area"]):
        yield f"\n## {area}\n\n| note | question | answer |\n| --- | --- | --- |\n"
        for name, note in group:
            mark = "" if note["status"] == "decided" else f" ({note['status']})"
            yield f"| [{name[:4]}]({name}) | {cell(note['question'])}{mark} | {cell(note['answer'])} |\n"
    yield "\n## Tried and dropped\n\n| what | why | note |\n| --- | --- | --- |\n"
    for name, note in notes().items():
        for trial in note.get("dropped", ()):
            what, _, why = trial.partition(": ")
            yield f"| {cell(what)} | {cell(why)} | [{name[:4]}]({name}) |\n"


def cell(text: str) -> str:
    """Return the text as a cell of a table."""
    return text.replace("|", "\\|")


def main() -> int:
    """Write the index, or say whether it is up to date."""
    text = "".join(lines())
    if "--check" in sys.argv:
        return int(not INDEX.exists() or INDEX.read_text("utf-8") != text)
    INDEX.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
