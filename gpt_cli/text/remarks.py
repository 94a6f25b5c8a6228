"""Remark on a pass over texts: which fields are the text, and which parts are left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from gpt_cli.common.untrusted_files import names_of_copy
from gpt_cli.errors import DataError, visible

_MOST_NAMED = 3  # of what is left out
_LEFT_OUT = {
    "file": "file{s} without text:",
    "document": "document{s} of other programs, without the extra (pip install -e '.[documents]'):",
    "bad": "bad file{s}:",
    "picture": "picture{s} of",
    "contents": "table{s} of contents of",
    "included": "included file{s} of",
    "record": "bad record{s}:",
    "empty": "record{s} with an empty text or answer:",
    "question": "question{s} without an answer, at the end of a conversation:",
}


class Remarks:
    """Sentences about the present source, and counts of parts that the whole pass leaves out.

    With `skip_bad` it leaves out bad records, which are errors otherwise.
    """

    name = ""  # of the source that is being read
    path: Path | None = None  # of its file, where it has one
    first_bad: DataError | None = None  # of the bad records

    def __init__(self, *, skip_bad: bool = False):
        self.counts = Counter[str]()
        self._skip_bad, self._notes = skip_bad, dict[str, tuple[str, Path | None]]()
        self._names = {what: list[str]() for what in _LEFT_OUT}

    def begin(self, name: str, *, has_file: bool) -> None:
        """Take the next remarks as remarks on this source."""
        self.name, self.path = (visible(name), Path(name)) if has_file else (name, None)

    def note(self, sentence: str) -> None:
        """Note a sentence; a notice says it once, of the first source of which it is true.

        In its command, the names of that file and of a mended copy take the places of OLD and NEW.
        """
        self._notes.setdefault(sentence, (self.name, self.path))

    def leave_out(self, what: str, name: str | None = None, number: int = 1) -> None:
        """Count a file, pictures, contents or a record that are left out; the first few names stay."""
        self.counts[what] += number
        self._names[what] += [name or self.name] if len(self._names[what]) <= _MOST_NAMED else []

    def leave_out_record(self, error: DataError, others: Iterable[object] = ()) -> None:
        """Count a bad record, or raise its error unless bad records are left out, which helps if `others` are good."""
        if not self._skip_bad:
            if not error.hint and any(others):
                error.hint = "‹data.skip_bad=true› leaves such records out"
            raise error
        self.first_bad = self.first_bad or error
        self.leave_out("record", error.where)

    def lines(self) -> tuple[str, ...]:
        """Return a line for each sentence, and for each kind of part that was left out."""
        lines = list[str]()
        for sentence, (name, path) in self._notes.items():
            names = names_of_copy(path, "lf") if path else ("OLD", "NEW")
            lines.append(f"in {name}, {sentence}".replace("OLD > NEW", " > ".join(names)))
        for what, number in self.counts.items():
            things, names = _LEFT_OUT[what].format(s="" if number == 1 else "s"), self._names[what]
            more = ", ..." if len(names) > _MOST_NAMED else ""
            lines.append(f"left out {number:,} {things} {', '.join(names[:_MOST_NAMED])}{more}")
        return tuple(lines)
