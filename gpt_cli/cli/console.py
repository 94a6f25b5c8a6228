"""Print results on stdout, everything else on stderr."""

import contextlib
import io
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from json import dumps
from typing import Any, TextIO

from rich.cells import cell_len
from tqdm import tqdm

from gpt_cli.cli.progress import Bar, Lines
from gpt_cli.common.host import Host, uncounted
from gpt_cli.common.language import labelled, say
from gpt_cli.common.machine.memory import importing_torch
from gpt_cli.common.machine.signals import PATIENCE, handling, write_until
from gpt_cli.common.results import Result, Screen
from gpt_cli.common.spelling import as_flags
from gpt_cli.common.tables import filled
from gpt_cli.errors import inert

_CHINESE = "\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef"
_OPENING, _CLOSING = "（“‘《「『【", "，。；：？！、）”’》」』】…"
_WORD = rf"""(?:'[^']*'|"[^"]*"|[^\s'"{_CHINESE}])+"""  # of a shell; quotes may contain spaces
_FLAG = rf"--?[a-z][\w-]*(?:[ =](?!-){_WORD})?"
# commands of other programs, with files that they read and write
_OTHER = rf"(?:iconv|tr|python|ulimit)(?: -\w+(?: (?![<>-]){_WORD})?)+(?: (?![<>-]){_WORD})?(?: [<>] {_WORD})*"
_WHOLE = rf"(?:{_OTHER}|(?:(?:gpt|pip|hf|apt)(?: (?!-){_WORD}){{1,3}}|{_FLAG})(?: {_FLAG})*(?: > {_WORD})?)"
# what stays together: a command, a Chinese character, a word; each with the punctuation around it
_PIECE = re.compile(
    rf"\s|[{_OPENING}]*(?:{_WHOLE}[^\s{_CHINESE}]*|[{_CHINESE}]|[^\s{_CHINESE}]+)[{_CLOSING}]*|[{_OPENING}]+"
)


def prepare_streams() -> None:
    """Make stdout and stderr escape characters that they cannot encode; wrap stderr in `Patient` for slow readers.

    Bytes that stdin cannot decode become lone surrogates; `tokenizers.utf8` later raises DataError that names the byte.
    A stream that was closed before the program began is replaced by the null device.
    """
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115 - as long as the process
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="surrogateescape" if stream is sys.stdin else "backslashreplace")
    sys.stderr = Patient(sys.stderr)


class Patient:
    """Wrapper of a text stream whose writes wait for a slow reader, such as a pager.

    After `hurry`, each write waits at most one second; once a write has timed out, later writes do not wait. If the
    reader is gone or the disk is full, text is lost without an error.
    """

    def __init__(self, stream: TextIO):
        self._stream, self._pending = stream, ""
        self._hurried = self._abandoned = False
        try:
            self._descriptor: int | None = stream.fileno()
        except OSError:  # a stream in memory
            self._descriptor = None

    def hurry(self) -> None:
        """Let the current and later writes wait at most one second for the reader; any thread may call this method."""
        self._hurried = True

    def write(self, text: str) -> int:
        self._pending += text
        if "\n" in text or "\r" in text:
            self.flush()
        return len(text)

    def flush(self) -> None:
        text, self._pending = self._pending, ""
        with contextlib.suppress(OSError):
            if self._descriptor is None:
                self._stream.write(text)
                self._stream.flush()
            else:
                content = text.encode(self._stream.encoding, "backslashreplace")
                self._abandoned = not write_until(self._descriptor, content, self._clock())

    def _clock(self) -> Callable[[], bool]:
        """Return a function that tells whether a write must end: never before `hurry`, then after PATIENCE seconds."""
        late_at: float | None = None

        def is_late() -> bool:
            nonlocal late_at
            if self._hurried and late_at is None:
                late_at = time.monotonic() + (0 if self._abandoned else PATIENCE)
            return late_at is not None and time.monotonic() >= late_at

        return is_late

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def hurry() -> None:
    """Let writes to stderr wait at most one second for a slow reader, after a signal has asked this command to end."""
    if isinstance(sys.stderr, Patient):
        sys.stderr.hurry()


@contextlib.contextmanager
def hurried_stdout() -> Iterator[None]:
    """Let writes to stdout in the context wait at most one second for a slow reader; ignore a reader that is gone."""
    stream = Patient(sys.stdout)
    stream.hurry()
    with contextlib.redirect_stdout(stream):  # pyright: ignore[reportArgumentType]
        yield


@contextlib.contextmanager
def removing_unfinished() -> Iterator[None]:
    """Turn TERM and HUP in the context into SystemExit, so that long work removes its temporary file, as after Ctrl-C.

    The exit code is 128 plus the signal's number. Signals that were ignored before stay ignored.
    """

    def leave(number: int, _: object) -> None:
        hurry()
        raise SystemExit(128 + number)

    with handling((signal.SIGTERM, signal.SIGHUP), leave):
        yield


def colourful(stream: TextIO) -> bool:
    """Return whether a stream is a terminal and neither NO_COLOR nor TERM=dumb asks for plain text."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


@dataclass(frozen=True)
class Console:
    """Output of a command: results on stdout, translated messages on stderr; `quiet` hides notices and progress.

    A console that is `mute` prints nothing, for all ranks (processes) of a training but the first.
    """

    quiet: bool = False
    mute: bool = False

    def notice(self, text: str) -> None:
        """Print a line of information on stderr, unless the console is `quiet`."""
        if not self.quiet:
            first, newline, rest = text.partition("\n")  # a sample may quote words in the marks of flags
            self._line(say(as_flags(first) + newline + rest))

    def tell(self, text: str, label: str = "") -> None:
        """Print an important line on stderr, even if the console is `quiet`, after a label such as "hint: "."""
        self._line(label + say(as_flags(text)))

    def warn(self, text: str) -> None:
        """Print a warning on stderr, even if the console is `quiet`."""
        self.tell(text, "warning: ")

    def result(self, text: str) -> None:
        """Print a line of a command's result on stdout."""
        if not self.mute:
            print(text, flush=True)

    def pieces(self, pieces: Iterable[str]) -> None:
        """Print the pieces of a result on stdout one by one, as they may not all fit in memory; end with a newline."""
        if self.mute:
            return
        last = ""
        for last in filter(None, pieces):
            print(for_stdout(last), end="")
        print(end="" if last.endswith("\n") else "\n", flush=True)

    def show(self, result: Result, *, json: bool = False) -> None:
        """Print a command's result on stdout: as JSON if `json`, else as text that suits a terminal or a pipe."""
        if json:
            pieces = result.as_json()
            if (sys.stdout.encoding or "utf-8").lower() not in ("utf-8", "utf8"):  # whose own escapes are no JSON
                pieces = (re.sub(r"[^\x00-\x7f]", lambda one: dumps(one[0])[1:-1], piece) for piece in pieces)
            self.pieces(pieces)
            return
        width, is_terminal = shutil.get_terminal_size().columns, sys.stdout.isatty()
        result.show(Screen(width, is_terminal, colourful(sys.stdout), self.result, self.pieces, self.notice))

    @contextlib.contextmanager
    def counting(self, what: str, total: int | None, unit: str) -> Iterator[Callable[[int], object]]:
        """Show the progress of the task `what`: yield a function to call with the number of newly completed units.

        A terminal shows a bar after two seconds; otherwise, a line is printed every ten seconds at most. `total` is the
        number of units, or None. The first call starts the clock; a thread updates the display between two calls.
        """
        label, is_terminal = inert(labelled(what)), sys.stderr.isatty()
        progress = Bar(label, total, say(unit)) if is_terminal else Lines(what, total, unit, self.notice)
        with contextlib.closing(progress):
            yield progress.count

    def host(self) -> Host:
        """Return a Host that prints a task's lines and progress on this console; a signal removes a partial file."""
        counting = uncounted if self.quiet else self.counting
        return Host(self.notice, self.warn, counting, importing_torch, removing_unfinished, sys.stdin)

    def _line(self, text: str) -> None:
        if not self.mute:  # tqdm keeps a progress bar in one piece
            tqdm.write(wrapped(inert(text), terminal_width(sys.stderr)), file=sys.stderr)


def for_stdout(text: str) -> str:
    """Escape the control characters of a text if stdout is a terminal; else return the text unchanged."""
    return inert(text) if sys.stdout.isatty() else text


def terminal_width(stream: TextIO) -> int | None:
    """Return the width in columns of the terminal behind a stream; None without a terminal or with an unknown width."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or None if stream.isatty() else None
    except (OSError, ValueError):
        return None


def wrapped(text: str, width: int | None) -> str:
    """Wrap a text to lines of at most `width` columns, between words and between Chinese characters; None: no limit.

    A command stays on one line, even if it is wider than the terminal, so that users can copy it.
    """
    if width is None or len(text) * 2 <= width:
        return text
    return "\n".join(broken for line in text.split("\n") for broken in _lines(line, width))


def _lines(line: str, width: int) -> Iterator[str]:
    if cell_len(line) <= width:
        yield line
        return
    # continue below the text of a row, or of a line that is indented
    lead = re.match(r"\S+ {2,}| *", line)
    indent = " " * cell_len(lead[0] if lead else "")
    indent = indent if 2 * len(indent) <= width else ""
    yield from filled(_PIECE.findall(line), width, indent)
