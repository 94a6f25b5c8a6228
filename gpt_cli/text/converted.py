"""Convert documents of other programs to text: books, office files and web pages with pandoc, PDF with PDFium.

The pip extra `documents` installs both. Each runs in a separate process, with limits on time and memory; pandoc can
read only the document. The text is cached by the digest of the document.
"""

import codecs
import contextlib
import hashlib
import json
import re
import subprocess
import threading
from collections.abc import Sequence
from functools import partial
from io import BufferedReader
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO, cast

from gpt_cli.common.extras import is_installed, optional_library
from gpt_cli.common.files import python_command, spooled
from gpt_cli.common.limits import DOCUMENT_BYTES, DOCUMENT_MEMORY, DOCUMENT_SECONDS
from gpt_cli.errors import DataError, EnvironmentFailure, shown, visible
from gpt_cli.text.cache import cached, read_cached_json, write_json
from gpt_cli.text.documents import decode_utf8
from gpt_cli.text.remarks import Remarks

# how file names end -> what pandoc calls the format
_PANDOC = {
    ".docx": "docx",
    ".epub": "epub",
    ".fb2": "fb2",
    ".htm": "html",
    ".html": "html",
    ".ipynb": "ipynb",
    ".odt": "odt",
    ".org": "org",
    ".rtf": "rtf",
    ".tex": "latex",
}
DOCUMENTS = (*_PANDOC, ".pdf")
# formats from whose text pandoc removes these parts
_WITH_FRONT_MATTER = (".docx", ".org", ".tex")
_FRONT_MATTER = ("title", "subtitle", "author", "date", "abstract")
_VERSION = 9  # of the conversion
# formats that are text, how they declare their encoding, which pandoc ignores, and what browsers read in its place
_ENCODED = (".fb2", ".htm", ".html", ".org", ".rtf", ".tex")
_DECLARED = re.compile(rb"""(?:charset|encoding)\s*=\s*["']?([\w-]+)|\[(\w+)\]\{inputenc\}""", re.IGNORECASE)
_WIDER = {"gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932", "iso-8859-1": "cp1252", "latin1": "cp1252"}
_WIDER |= dict.fromkeys(("utf-16", "utf-16be", "utf-16le"), "utf-8")  # else nobody could have read the declaration
# of RTF: a word with its number, a byte in hex, text, an escaped character, a brace, a line break, another symbol
_RTF = re.compile(rb"(?is)\\([a-z]+)(-?\d{1,10})? ?|\\'([\da-f]{2})|([^\\{}\r\n]+)|\\([\\{}])|([{}])|([\r\n])|\\.")
_escaped_rtf = partial(re.compile(r"[\\{}]").sub, r"\\\g<0>")
# code pages by number in \fcharset or \ansicpg, or by a word for the whole file; for other fonts, \ansicpg decides
_RTF_CODECS: dict[int | bytes, str] = {0: "cp1252", 77: "mac_roman", 128: "cp932", 129: "cp949", 130: "cp1361"}
_RTF_CODECS |= {134: "gb18030", 136: "cp950", 161: "cp1253", 162: "cp1254", 163: "cp1258", 177: "cp1255", 178: "cp1256"}
_RTF_CODECS |= {186: "cp1257", 204: "cp1251", 222: "cp874", 238: "cp1250", 254: "cp437", 255: "cp850"}
_RTF_CODECS |= {936: "gb18030", 10000: "mac_roman", b"mac": "mac_roman", b"pc": "cp437", b"pca": "cp850"}
_HEAP_EXHAUSTED = 251  # the exit code of Haskell programs that lack memory
# titles of tables of contents, and the targets of their links: places in the document, or chapters of a book
_CONTENTS = re.compile(r"(table of )?contents|目\s*[录錄]|toc", re.IGNORECASE)
# a LaTeX command that pandoc does not know, with words in its braces, unless it is a layout command
_UNKNOWN = re.compile(
    r"Skipped '\\(?!begin|end|index|label|\w*style|page\w+|bibliography|use|input|include|new|renew)[a-zA-Z]+"
    r"\{[^'{}\d]*[^\W\d_]{2}[^'{}]*\}'"
)
_WITHIN = re.compile(r"#|[^:]*\.xhtml\b")


def can_convert(path: Path) -> bool:
    """Return whether the library that converts documents of this type (.docx, .pdf, ...) is installed."""
    return is_installed("pypdfium2" if path.suffix.lower() == ".pdf" else "pypandoc")


def converted(path: Path, file: BinaryIO, remarks: Remarks) -> str:
    """Return the text of a document; count in `remarks` its pictures and other parts that are left out of the text.

    Raises DataError for a damaged or too large document, or one without text (scanned pages); EnvironmentFailure if
    pandoc or PDFium is missing.
    """
    digest = hashlib.file_digest(cast("BufferedReader", file), "sha256").hexdigest()
    stored = None
    with contextlib.suppress(EnvironmentFailure):  # a user without a home directory has no cache
        stored = cached("documents", _VERSION, path.suffix.lower(), digest).with_suffix(".json")
    content = stored and read_cached_json(stored)
    if not isinstance(content, dict) or not isinstance(content.get("text"), str):
        file.seek(0)
        content = (_content_of_pdf if path.suffix.lower() == ".pdf" else _content_of_pandoc)(path, file)
        if stored:
            write_json(stored, content)
    for what in ("picture", "contents", "included", "unknown"):
        if number := content.get(what):
            remarks.leave_out(what, visible(path), number)
    return content["text"]


def _content_of_pandoc(path: Path, file: BinaryIO) -> dict[str, Any]:
    """Return a dict: "text", and counts of left-out pictures, tables of contents, included files, unknown commands."""
    pandoc = optional_library("pypandoc", "documents", path).get_pandoc_path()
    limits = ["+RTS", f"-M{DOCUMENT_MEMORY}", "-RTS"]
    with contextlib.ExitStack() as stack:
        if path.suffix.lower() in _ENCODED:
            content = _bounded(path, file.read(DOCUMENT_BYTES + 1))
            file = stack.enter_context(spooled([_in_utf8(path, content)], path.name))
        source = ["--sandbox", "--verbose", "--from", _PANDOC[path.suffix.lower()]]
        tree, messages = _output(path, [pandoc, *source, "--to", "json", *limits], file)
    try:
        content = json.loads(tree)
        counts = {"picture": 0, "contents": 0, "included": messages.count("[WARNING] Could not load include file")}
        counts["unknown"] = len(_UNKNOWN.findall(messages))
        if path.suffix.lower() in _WITH_FRONT_MATTER:
            content["blocks"][:0] = [block for part in _FRONT_MATTER for block in _blocks_of(content["meta"].get(part))]
        _leave_out(content["blocks"], counts)
        tree = json.dumps(content).encode()
    except (ValueError, RecursionError) as error:
        raise DataError(shown(path), "this document is nested too deeply") from error
    with spooled([tree], path.name) as held:
        text, _ = _output(path, [pandoc, "--from", "json", "--to", "plain", "--wrap", "none", *limits], held)
    if not text.strip():
        raise DataError(shown(path), "this document contains no text")
    return {"text": text.decode("utf-8"), **counts}


def _in_utf8(path: Path, content: bytes) -> bytes:
    """Return a markup file in UTF-8, decoded as UTF-8 or its declared encoding; raise DataError if neither fits."""
    if path.suffix.lower() == ".rtf":
        return rtf_in_unicode(content)
    declared = _DECLARED.search(content[:4096])
    name = (declared[1] or declared[2]).decode().lower() if declared else "utf-8"
    for encoding in ("utf-8", _WIDER.get(name, name)):
        with contextlib.suppress(LookupError, UnicodeError):
            return decode_utf8(content.decode(encoding).encode(), visible(path)).encode()
    return decode_utf8(content, visible(path)).encode()


def rtf_in_unicode(content: bytes) -> bytes:
    """Return RTF in UTF-8, with the codes \\u and \\'xx replaced by characters; a font's code page decodes \\'xx.

    Pandoc supports only Western code pages, and drops a letter that follows a \\u code.
    """
    with contextlib.suppress(UnicodeDecodeError):  # some programs write UTF-8
        content = re.sub(r"[^\0-\x7f]", lambda match: f"{{\\uc0\\u{ord(match[0])}}}", content.decode()).encode()
    state: dict[bytes, Any] = {b"codec": "cp1252", b"f": 0, b"deff": 0, b"uc": 1}  # until the group ends
    output, held, num_skipped, at = list[str](), bytearray(), 0, 0
    groups, fonts = list[dict[bytes, Any]](), dict[int, str]()
    while token := _RTF.match(content, at):
        word, digits, code, text, escaped, brace, line_break = token.groups()
        at, number = token.end(), int(digits or 0)
        if line_break:
            continue
        if characters := bytes.fromhex(code.decode()) if code else text or escaped:
            held += characters[num_skipped:]  # the second byte of a character may be text
            num_skipped = max(0, num_skipped - len(characters))
            continue
        if held:
            output.append(_escaped_rtf(held.decode(fonts.get(state[b"f"]) or state[b"codec"], "replace")))
            held.clear()
        num_skipped = state[b"uc"] if word == b"u" else 0
        if word == b"u":
            output.append(_escaped_rtf(chr(number if 0 <= number <= 0x10FFFF else number % 0x10000)))
        elif word == b"bin":
            at += max(0, number)
        else:
            markup = token[0].decode("latin-1")
            output.append(f"{markup.rstrip()} " if word else markup)
        if brace == b"{":
            groups.append(state)
        elif brace and groups:
            state = groups.pop()
        elif word == b"fcharset" and number in _RTF_CODECS:
            fonts[state[b"f"]] = _RTF_CODECS[number]
        elif word == b"ansicpg":
            with contextlib.suppress(LookupError):
                state = state | {b"codec": codecs.lookup(_RTF_CODECS.get(number, f"cp{number}")).name}
        elif word in (b"f", b"deff", b"uc"):
            state = state | {word: max(0, number)}
        elif word == b"plain":
            state = state | {b"f": state[b"deff"]}
        elif word in _RTF_CODECS:
            state = state | {b"codec": _RTF_CODECS[word]}
    return "".join(output).encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _blocks_of(value: Any) -> list[Any]:
    """Return the blocks of a value of pandoc's metadata, such as the abstract; [] for None and other data."""
    match value:
        case {"t": "MetaInlines", "c": inlines}:
            return [{"t": "Para", "c": inlines}]
        case {"t": "MetaBlocks", "c": blocks}:
            return blocks
        case {"t": "MetaList", "c": values}:
            return [block for one in values for block in _blocks_of(one)]
    return []


def _leave_out(blocks: list[Any], counts: dict[str, int]) -> None:
    """Remove pictures and tables of contents from pandoc's syntax tree, in place, and add their numbers to `counts`."""
    open_lists = [blocks]
    while open_lists:
        nodes, retained = open_lists.pop(), list[Any]()
        for are_entries, members in groupby(nodes, _is_entry):
            group = [part for member in members for part in _with_caption(member)]
            if are_entries and (len(group) > 1 or group[0]["t"] not in ("Para", "Plain")):
                counts["contents"] += 1
                if retained and _CONTENTS.fullmatch(_words(retained[-1]).strip()):
                    retained.pop()
                continue
            pictures = [isinstance(node, dict) and node.get("t") == "Image" for node in group]
            counts["picture"] += sum(pictures)
            retained += [node for node, is_picture in zip(group, pictures, strict=True) if not is_picture]
        nodes[:] = retained
        open_lists += [inner for node in nodes if isinstance(inner := _inside(node), list)]


def _with_caption(node: Any) -> list[Any]:
    """Return the blocks of a figure and its caption, which pandoc's plain text lacks; [node] for any other node."""
    is_figure = isinstance(node, dict) and node.get("t") == "Figure"
    return [*node["c"][2], *node["c"][1][1]] if is_figure else [node]


def _is_entry(node: Any) -> bool:
    """Return whether a block belongs to a table of contents: internal links, a list of these, or Word's TOC heading."""
    match node:
        case {"t": "Para" | "Plain", "c": inlines}:
            return any(map(_is_link, inlines)) and all(_is_link(part) or not _letters(part) for part in inlines)
        case {"t": "BulletList", "c": items} | {"t": "OrderedList", "c": [_, items]}:
            return bool(items) and all(item and all(map(_is_entry, item)) for item in items)
        case {"t": "Header", "c": [_, [_, classes, _], _]}:
            return "TOC-Heading" in classes  # of Word
    return False


def _is_link(part: Any) -> bool:
    match part:
        case {"t": "Link", "c": [_, _, [target, _]]}:
            return _WITHIN.match(target) is not None
        case {"t": "Underline" | "Strong" | "Emph", "c": [inner]}:
            return _is_link(inner)
    return False


def _letters(part: Any) -> bool:
    """Return whether an inline node of pandoc's tree contains more than punctuation and numbers."""
    return isinstance(part, dict) and (
        part["t"] not in ("Str", "Space", "SoftBreak", "Span") or any(map(str.isalpha, _words(part)))
    )


def _words(node: Any) -> str:
    """Return the words of a node of pandoc's tree, with spaces between them."""
    if isinstance(node, dict) and node.get("t") in ("Str", "Space", "SoftBreak"):
        return node.get("c", " ")
    inner = _inside(node)
    return "".join(map(_words, inner)) if isinstance(inner, list) else ""


def _inside(node: Any) -> Any:
    return node.get("c") if isinstance(node, dict) else node


def _content_of_pdf(path: Path, file: BinaryIO) -> dict[str, Any]:
    optional_library("pypdfium2", "documents", path)
    content, _ = _output(path, [*python_command(), "-m", "gpt_cli.text.pdf_text"], file)
    if not (text := content.decode("utf-8")).strip():
        hint = "recognise its text first: ocrmypdf --force-ocr FILE.pdf OUT.pdf"
        raise DataError(shown(path), "this PDF contains no text; perhaps its pages are scanned", hint=hint)
    return {"text": text}


def _bounded(path: Path, text: bytes) -> bytes:
    """Return `text` unchanged; raise DataError if it is longer than a document may be."""
    if len(text) > DOCUMENT_BYTES:
        raise DataError(shown(path), f"its text has more than {DOCUMENT_BYTES / 1e6:.0f} MB, too much for a document")
    return text


def _output(path: Path, command: Sequence[str], content: BinaryIO) -> tuple[bytes, str]:
    """Run a program with the document `content` as stdin; return (stdout, messages on stderr).

    Raises DataError if the program fails, or takes too much time, memory or output.
    """
    with (
        spooled([], path.name) as errors,
        subprocess.Popen(command, stdin=content, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        timer = threading.Timer(DOCUMENT_SECONDS, process.kill)
        timer.start()
        try:
            output = cast("BinaryIO", process.stdout).read(DOCUMENT_BYTES + 1)
            if len(output) > DOCUMENT_BYTES:
                process.kill()
            code = process.wait()
        except BaseException:
            process.kill()
            raise
        finally:
            was_late = not timer.is_alive()
            timer.cancel()
        errors.seek(0)
        messages = errors.read(2**20).decode("utf-8", "replace").strip()
    _bounded(path, output)
    if was_late:
        raise DataError(shown(path), f"its conversion takes more than {DOCUMENT_SECONDS} s")
    if code == _HEAP_EXHAUSTED:
        raise DataError(shown(path), "its conversion takes more than 2 GB of memory")
    if code:
        at = re.search(r"\((line \d+, column \d+)\):\n(.+)", messages)  # followed by the line, and a ^ below it
        why = f"{at[1]}: {at[2]}" if at else messages.rpartition("\n")[2] or "it does not say why"
        raise DataError(shown(path), f"this document cannot be read: {visible(why)}")
    return output, messages
