"""Collect remarks while texts are read: which fields are the text, and which parts are left out."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from gpt_cli.common.untrusted_files import names_of_copy
from gpt_cli.errors import DataError, visible

_MOST_NAMED = 3  # of what is left out
_PACKED = (".zip", ".gz", ".zst", ".tar", ".tgz")  # no command repairs line ends in these
_LEFT_OUT = {
    "file": "file{s} without text:",
    "document": "document{s}, because the extra documents is missing (pip install -e '.[documents]'):",
    "bad": "bad file{s}:",
    "picture": "picture{s} of",
    "contents": "table{s} of contents of",
    "included": "command{s} to include a file, of",
    "unknown": "unknown command{s} with text, of",
    "record": "bad record{s}:",
    "empty": "record{s} with an empty text or answer:",
    "question": "question{s} without an answer, at the end of a conversation:",
}


class Remarks:
    """A collector of remarks during one reading of all sources: notes on a source, and counts of parts left out.

    With `skip_bad`, bad records are counted and left out; otherwise they raise DataError.
    """

    name = ""  # of the source that is being read
    path: Path | None = None  # of its file, where it has one
    first_bad: DataError | None = None  # of the bad records

    def __init__(self, *, skip_bad: bool = False):
        self.counts = Counter[str]()
        self._skip_bad, self._notes = skip_bad, dict[str, tuple[str, Path | None]]()
        self._names = {what: list[str]() for what in _LEFT_OUT}

    def begin(self, name: str, *, has_file: bool) -> None:
        """Set the source to which the next remarks belong; `has_file` means that `name` is the path of a file."""
        self.name, self.path = (visible(name), Path(name)) if has_file else (name, None)

    def note(self, sentence: str) -> None:
        """Record a sentence about the current source; if later sources repeat it, only the first source is named.

        In a command with `OLD > NEW`, `lines` replaces OLD and NEW by the paths of the source (if a file) and a copy.
        """
        self._notes.setdefault(sentence, (self.name, self.path))

    def leave_out(self, what: str, name: str, number: int = 1) -> None:
        """Count `number` more parts of the kind `what`, such as picture, as left out; keep the first few names."""
        self.counts[what] += number
        self._names[what] += [name] if len(self._names[what]) <= _MOST_NAMED else []

    def leave_out_record(self, error: DataError, others: Iterable[object]) -> None:
        """Count a bad record as left out or, without `skip_bad`, raise its `error`.

        If any of `others` is true, the source has good records, too; an error without a hint then suggests skip_bad.
        """
        if not self._skip_bad:
            if not error.hint and any(others):
                error.hint = "‹data.skip_bad=true› leaves such records out"
            raise error
        self.first_bad = self.first_bad or error
        self.leave_out("record", error.where)

    def lines(self) -> tuple[str, ...]:
        """Return the lines to print: each noted sentence, then one for each reason to leave parts of the text out."""
        lines = list[str]()
        for sentence, (name, path) in self._notes.items():
            is_plain = path and path.suffix.lower() not in _PACKED
            names = names_of_copy(path, "lf") if path and is_plain else ("OLD", "NEW")
            lines.append(f"in {name}, {sentence}".replace("OLD > NEW", " > ".join(names)))
        for what, number in self.counts.items():
            things, names = _LEFT_OUT[what].format(s="" if number == 1 else "s"), self._names[what]
            more = ", ..." if len(names) > _MOST_NAMED else ""
            lines.append(f"left out {number:,} {things} {', '.join(names[:_MOST_NAMED])}{more}")
        return tuple(lines)
