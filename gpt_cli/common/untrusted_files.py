"""Read untrusted files: only regular files, read completely, and refused if they change while they are read."""

import codecs
import contextlib
import os
import re
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from shlex import quote
from typing import BinaryIO

from gpt_cli.common.machine.failures import reason
from gpt_cli.errors import EnvironmentFailure, GptError, shown, visible

UTF8_MARK = codecs.BOM_UTF8
_NO_TEXT = bytes({*range(1, 32)} - {*b"\b\t\n\r\f\x1b"})


@contextlib.contextmanager
def reading(path: Path, kind: type[GptError]) -> Iterator[BufferedReader]:
    """Open a regular file for reading in the context, and never wait for a pipe or a device.

    Raises an error of class `kind` if the file is missing or not regular, if the disk fails, or if the file changes
    while it is open; raises EnvironmentFailure if permission is missing.
    """
    with open_regular(path, kind) as file:
        before = os.fstat(file.fileno())
        try:
            yield file
        except OSError as error:  # a broken disk
            raise kind(shown(path), reason(error)) from error
        require_unchanged(path, file, before, kind)


def open_regular(path: Path, kind: type[GptError], *, hint: str | None = None) -> BufferedReader:
    """Open a regular file, which the caller closes. Raises `kind` on failure, EnvironmentFailure without permission."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, ValueError):  # ValueError: a NUL in the name
        raise kind(shown(path), "there is no such file", hint=hint) from None
    except PermissionError as error:
        raise EnvironmentFailure(f"reading {shown(path)}", reason(error)) from error
    except OSError as error:
        raise kind(shown(path), reason(error), hint=hint) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise kind(shown(path), "this is not a regular file", hint=hint)
    return open(descriptor, "rb")


def require_size(path: Path, file: BinaryIO, kind: type[GptError], *, most: tuple[str, int] | None) -> os.stat_result:
    """Return the stat of an open file; raise `kind` if it is larger than `most`, such as ("a config", 1_000_000)."""
    status = os.fstat(file.fileno())
    if most and status.st_size > most[1]:
        raise kind(shown(path), f"{most[0]} has at most {most[1]:,} bytes, but this file has {status.st_size:,}")
    return status


def require_unchanged(
    path: Path, file: BinaryIO, before: os.stat_result, kind: type[GptError], *, complete: bool = True
) -> None:
    """Raise `kind` if a file has changed since its stat `before`, or if it was not read to its end (not `complete`)."""
    after = os.fstat(file.fileno())
    if not complete or (after.st_mtime_ns, after.st_size) != (before.st_mtime_ns, before.st_size):
        hint = "try again when no other program writes to it"
        raise kind(shown(path), "this file changed while gpt read it", hint=hint)


def read_bytes(path: Path, kind: type[GptError], *, most: tuple[str, int] | None = None) -> bytes:
    """Return the content of a regular file; raise EnvironmentFailure if permission is missing.

    Raises `kind` for other failures, and, before reading, for more bytes than `most`, such as ("a config", 1_000_000).
    """
    with reading(path, kind) as file:
        before = require_size(path, file, kind, most=most)
        # bounded, as the file may grow without end; read returns None if it would block, as for /proc/kmsg
        content = file.read(before.st_size + 1) or b""
        require_unchanged(path, file, before, kind, complete=len(content) == before.st_size)
    return content


def require_reachable(path: Path) -> None:
    """Raise EnvironmentFailure for a path in a directory that the user may not enter."""
    try:
        os.stat(path)
    except PermissionError as error:
        raise EnvironmentFailure(f"reading {shown(path)}", reason(error)) from error
    except (OSError, ValueError):
        return


def is_damaged_utf8(sample: bytes) -> bool:
    """Guess whether bytes that are not valid UTF-8 are UTF-8 text that was cut off or overwritten in part."""
    text = sample.decode("utf-8", "replace")
    return sample.startswith(UTF8_MARK) or sum(character > "\x7f" for character in text) > 2 * text.count("\ufffd")


def is_binary(sample: bytes) -> bool:
    """Guess whether bytes are binary: they have NULs, are not UTF-16, and are half NULs or over 2 % other controls."""
    is_text = len(sample.translate(None, _NO_TEXT)) >= 0.98 * len(sample) and sample.count(0) < len(sample) / 2
    return b"\0" in sample and not is_text and utf16_of(sample) is None


def is_numbers(sample: bytes) -> bool:
    """Guess whether bytes are integers of 2, 4 or 8 bytes, such as token ids, by the zeros among their high bytes."""
    low, high = sorted((sample[::2].count(0), sample[1::2].count(0)))
    pairs = high > 4 * low and high > len(sample) / 20
    return any(sample) and not sample[:4].isalnum() and (pairs or sample[3::4].count(0) > 0.9 * len(sample[3::4]))


def encoding_hint(sample: bytes, name: str) -> str:
    """Return a hint about a text whose start, `sample`, is not UTF-8: usually a command for each likely encoding.

    The commands convert the file `name`. If there is no such file, as with a pipe, the commands contain OLD and NEW.
    """
    old, new = names_of_copy(Path(name))
    if is_damaged_utf8(sample):
        command = f"iconv -c -f utf-8 -t utf-8 {old} > {new}"
        return f"{command} leaves out what is damaged; look at the new file before you use it"
    if sample[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return f"if it is UTF-16: iconv -f UTF-16 -t utf-8 {old} > {new}"
    if b"\0" in sample:
        encoding = utf16_of(sample)
        return f"if it is {encoding}: iconv -f {encoding} -t utf-8 {old} > {new}" if encoding else "name a text file"
    runs = re.findall(rb"[\x80-\xff]+", sample)
    num_high = sum(map(len, runs))
    # in Latin-1 text, few bytes are high, and most of these have no high neighbour
    if num_high <= 0.3 * len(sample) and num_high < 2 * len(runs):
        text = sample.decode("utf-8", "replace")
        if sum(character > "\x7f" for character in text) >= 1.5 * text.count("\ufffd"):
            return "some of its lines are UTF-8 and some are not: convert each file before you join files"
        encoding = "CP1252" if re.search(rb"[\x80-\x9f]", sample) else "LATIN1"
        return f"if it is {encoding}: iconv -f {encoding} -t utf-8 {old} > {new}"
    seconds = b"".join(re.findall(rb"[\x81-\xfe]([\x40-\xfe])", sample))
    if sum(byte < 0x7F for byte in seconds) > 0.15 * len(seconds):
        return (
            f"if it is traditional Chinese, in Big5: iconv -f BIG5 -t utf-8 {old} > {new}; if it is simplified, "
            f"in GBK: iconv -f GB18030 -t utf-8 {old} > {new}; look at the new file before you use it"
        )
    return (
        f"if it is simplified Chinese, in GBK: iconv -f GB18030 -t utf-8 {old} > {new}; if it is traditional, "
        f"in Big5: iconv -f BIG5 -t utf-8 {old} > {new}; look at the new file before you use it"
    )


def name_in_shell(path: Path) -> str:
    """Return the shell-quoted name of a file; OLD if no file exists or if its name cannot be typed."""
    if not path.is_file() or visible(str(path)) != str(path):
        return "OLD"
    return quote(os.path.join(".", path) if str(path).startswith("-") else str(path))  # else the name would be a flag


def names_of_copy(path: Path, label: str = "utf8") -> tuple[str, str]:
    """Return quoted names of a file and its copy: a.txt, a-`label`.txt; OLD, NEW if missing, packed or untypable."""
    old = name_in_shell(path)
    if old == "OLD" or path.suffix.lower() in (".gz", ".zst"):  # commands would read the packed bytes
        return "OLD", "NEW"
    return old, quote(str(path.with_name(f"{path.stem}-{label}{path.suffix}")))


def utf16_of(sample: bytes) -> str | None:
    """Return UTF-16BE or UTF-16LE if a sample is text in that encoding, by its byte order mark or NULs; else None."""
    zeros, marks = (sample[::2].count(0), sample[1::2].count(0)), (codecs.BOM_UTF16_BE, codecs.BOM_UTF16_LE)
    if not sample.startswith(marks) and min(zeros) * 2 >= max(zeros):  # ASCII has NULs at every other byte
        return None
    is_big = sample[:2] == marks[0] if sample.startswith(marks) else zeros[0] > zeros[1]
    encoding = "UTF-16BE" if is_big else "UTF-16LE"
    with contextlib.suppress(UnicodeDecodeError):
        text = codecs.getincrementaldecoder(encoding)().decode(sample)
        return encoding if sum(map(text.count, "\0" + _NO_TEXT.decode())) < 0.01 * len(text) else None
    return None
