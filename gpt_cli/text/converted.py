"""Convert documents of other programs to text: books, office files and web pages with pandoc, PDF with PDFium.

The extra `documents` brings both. Each conversion is a process of its own, which reads nothing but the document, for a
bounded time in bounded memory. The cache keeps the text by the content of the document.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, cast

from gpt_cli.common.extras import is_installed, optional_library
from gpt_cli.common.limits import DOCUMENT_BYTES, DOCUMENT_MEMORY, DOCUMENT_SECONDS
from gpt_cli.errors import DataError, counted, shown, visible
from gpt_cli.text.cache import cached, read_cached_json, write_json

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
_VERSION = 1  # of the conversion


def can_convert(path: Path) -> bool:
    """Whether the library is installed that converts such a document."""
    return is_installed("pypdfium2" if path.suffix == ".pdf" else "pypandoc")


def converted(path: Path, file: BinaryIO, note: Callable[[str], object]) -> str:
    """Convert a document to text; `note` receives the number of pictures that the text lacks.

    Raises DataError for a document that is damaged, too large, or contains no text, as scanned pages do.
    """
    digest = hashlib.file_digest(cast("BufferedReader", file), "sha256").hexdigest()
    stored = cached("documents", _VERSION, path.suffix, digest).with_suffix(".json")
    content = read_cached_json(stored)
    if not isinstance(content, dict) or not isinstance(content.get("text"), str):
        file.seek(0)
        text, num_pictures = (_text_of_pdf(path, file), 0) if path.suffix == ".pdf" else _text_of_pandoc(path, file)
        content = {"text": text, "num_pictures": num_pictures}
        write_json(stored, content)
    if num_pictures := content["num_pictures"]:
        note(f"gpt left out {counted(num_pictures, 'picture')}")
    return content["text"]


def _text_of_pandoc(path: Path, file: BinaryIO) -> tuple[str, int]:
    pandoc = optional_library("pypandoc", "documents", path).get_pandoc_path()
    limits = ["+RTS", f"-M{DOCUMENT_MEMORY}", "-RTS"]
    tree = _output(path, [pandoc, "--sandbox", "--from", _PANDOC[path.suffix], "--to", "json", *limits], file)
    try:
        content = json.loads(tree)
        num_pictures = _without_pictures(content["blocks"])
        tree = json.dumps(content).encode()
    except (ValueError, RecursionError) as error:
        raise DataError(shown(path), "this document is nested too deeply") from error
    with tempfile.TemporaryFile() as held:
        held.write(tree)
        held.seek(0)
        text = _output(path, [pandoc, "--from", "json", "--to", "plain", "--wrap", "none", *limits], held)
    return text.decode("utf-8"), num_pictures


def _without_pictures(blocks: list[Any]) -> int:
    """Take pictures out of a tree of pandoc; returns their number."""
    number, open_lists = 0, [blocks]
    while open_lists:
        nodes = open_lists.pop()
        pictures = [isinstance(node, dict) and node.get("t") == "Image" for node in nodes]
        number += sum(pictures)
        nodes[:] = [node for node, is_picture in zip(nodes, pictures, strict=True) if not is_picture]
        for node in nodes:
            inner = node.get("c") if isinstance(node, dict) else node
            if isinstance(inner, list):
                open_lists.append(inner)
    return number


def _text_of_pdf(path: Path, file: BinaryIO) -> str:
    optional_library("pypdfium2", "documents", path)
    text = _output(path, [sys.executable, "-m", "gpt_cli.text.pdf_text"], file).decode("utf-8")
    if not text.strip():
        hint = "recognise its letters first: ocrmypdf --force-ocr FILE.pdf OUT.pdf"
        raise DataError(shown(path), "this PDF contains no text, as scanned pages do not", hint=hint)
    return text


def _output(path: Path, command: Sequence[str], content: BinaryIO) -> bytes:
    """Run a program with a document as stdin and return its stdout; raises DataError if it fails or takes too much."""
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(command, stdin=content, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        timer = threading.Timer(DOCUMENT_SECONDS, process.kill)
        timer.start()
        try:
            output = cast("BinaryIO", process.stdout).read(DOCUMENT_BYTES + 1)
        except BaseException:
            process.kill()
            raise
        finally:
            was_late = not timer.is_alive()
            timer.cancel()
        if len(output) > DOCUMENT_BYTES:
            process.kill()
        code = process.wait()
        errors.seek(0)
        lines = errors.read(4096).decode("utf-8", "replace").strip().splitlines() or ["it does not say why"]
    if len(output) > DOCUMENT_BYTES:
        raise DataError(shown(path), f"its text has more than {DOCUMENT_BYTES / 1e6:.0f} MB, more than a document has")
    if was_late:
        raise DataError(shown(path), f"its conversion takes more than {DOCUMENT_SECONDS} s")
    if code:
        raise DataError(shown(path), f"this document cannot be read: {visible(lines[-1])}")
    return output
