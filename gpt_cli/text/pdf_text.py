"""Write the text of a PDF from stdin to stdout; run as a separate process, because PDFium is native code."""

import contextlib
import importlib
import resource
import sys

from gpt_cli.common.limits import DOCUMENT_BYTES


def main() -> None:
    """Read a PDF from stdin, and write the text of its pages to stdout, each page on a new line."""
    pypdfium2 = importlib.import_module("pypdfium2")
    most = 4 * DOCUMENT_BYTES
    with contextlib.suppress(ValueError):  # ulimit allows less
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    try:
        document = pypdfium2.PdfDocument(sys.stdin.buffer.read())
        for page in document:
            # PDFium joins a word that a hyphen divides between lines by U+FFFE
            text = page.get_textpage().get_text_range().replace("\r\n", "\n").replace("\ufffe", "")
            sys.stdout.buffer.write(text.encode("utf-8", "replace") + b"\n")
    except (pypdfium2.PdfiumError, MemoryError) as error:
        sys.exit(str(error) or "it takes too much memory")


if __name__ == "__main__":
    main()
