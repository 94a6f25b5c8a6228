"""Faults that we put into the package on purpose, each with the tests that must notice it.

A fault is a file `seeded/NAME.patch`: a line that says what goes wrong, a line `tests:` with the words for pytest, and a
unified diff, which `git apply` and `patch -p1` take too.
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

SEEDED = Path(__file__).parent / "seeded"


@dataclass(frozen=True)
class Hunk:
    """Neighbouring lines of a file, before and after."""

    before: str
    after: str


@dataclass(frozen=True)
class SeededFault:
    """What goes wrong, the tests that must fail (pytest's own words), and the change to one file of the package."""

    name: str
    wrong: str
    tests: tuple[str, ...]
    file: str
    hunks: tuple[Hunk, ...]

    def apply(self, folder: Path) -> None:
        """Change the copy of the package in `folder`; an AssertionError where the patch does not fit the code.

        The lines before the change must occur exactly once, wherever in the file, so edits elsewhere do no harm.
        """
        path = folder / self.file
        code = path.read_text()
        for hunk in self.hunks:
            found = code.count(hunk.before)
            assert found == 1, f"{self.name}.patch: its lines occur {found} times in {self.file}"
            code = code.replace(hunk.before, hunk.after)
        path.write_text(code)


def read_fault(patch: Path) -> SeededFault:
    """Read a fault from its patch; an AssertionError where the patch has another form than the module says."""
    text = patch.read_text()
    head = re.match(r"(?P<wrong>.+)\ntests: (?P<tests>.+)\n\n--- a/(?P<file>.+)\n\+\+\+ b/(?P=file)\n(?=@@ )", text)
    assert head, f"{patch.name}: not a sentence, a line of tests and the diff of one file"
    hunks = re.split(r"^@@ .*\n", text[head.end() :], flags=re.MULTILINE)[1:]
    return SeededFault(
        patch.stem, head["wrong"], tuple(shlex.split(head["tests"])), head["file"], tuple(map(_hunk, hunks))
    )


def _hunk(text: str) -> Hunk:
    lines = text.splitlines(keepends=True)
    before, after = ("".join(line[1:] for line in lines if line[0] in kept) for kept in (" -", " +"))
    return Hunk(before, after)


def read_faults() -> list[SeededFault]:
    return [read_fault(patch) for patch in sorted(SEEDED.glob("*.patch"))]
