"""Books, office files, web pages and PDF as text: written by pandoc, or by hand, with a known content."""

import gzip
import io
import random
import resource
import subprocess
import sys
import time
from functools import cache
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pypandoc
import pytest
from matplotlib import rc_context
from matplotlib.figure import Figure
from support.corpora import documents_of
from support.faults import scaled
from support.texts import damaged, error_lines, lay, no_home, read, read_with_notices, refused

from gpt_cli.errors import DataError, EnvironmentFailure
from gpt_cli.sampling.prompts import read_prompt
from gpt_cli.text import cache as cache_module
from gpt_cli.text import converted as module
from gpt_cli.text import pdf_text
from gpt_cli.text.converted import rtf_in_unicode

MARKDOWN = """
# 第一章\n\n今天天气很好。\n\nIt was a *fine* day.\n\n> (A **very** naïve [x-ray](https://example.com): 100 %)\n
# Chapter 2\n\n**чай**\n\nThe end.
"""
TEXT = "第一章 今天天气很好。 It was a fine day. (A very naïve x-ray: 100 %) Chapter 2 чай The end."


@cache
def written(ending: str, markdown: str, title: str, *flags: str) -> bytes:
    writer = {".htm": "html", ".tex": "latex"}.get(ending, ending[1:])
    command = [pypandoc.get_pandoc_path(), "--standalone", "--to", writer, "--metadata", f"title={title}", *flags]
    return subprocess.run([*command, "--output=-"], input=markdown.encode(), check=True, capture_output=True).stdout


def write(path: Path, markdown: str = MARKDOWN, *flags: str, title: str = "") -> None:
    path.write_bytes(written(path.suffix, markdown, title, *flags))


@pytest.mark.parametrize("ending", [ending for ending in module.DOCUMENTS if ending != ".pdf"])
def test_a_document_is_its_text_as_one_document(here: Path, ending: str) -> None:
    write(here / f"book{ending}")
    (document,) = documents_of(read(f"book{ending}"))
    # org ends emphasis after a few marks alone, and pandoc reads the star of any other as a star
    words = [word.strip("*/") for word in document.split() if word.strip("-")]
    assert " ".join(words).endswith(TEXT), document


@pytest.mark.parametrize("ending", [".docx", ".fb2", ".html", ".odt", ".org", ".rtf", ".tex"])
def test_a_title_is_the_first_line_and_occurs_once(here: Path, ending: str) -> None:
    write(here / f"a{ending}", "# One\n\nText.\n", title="A Day")
    (document,) = documents_of(read(f"a{ending}"))
    assert document.count("A Day") == 1, document
    assert document.split()[:2] == ["A", "Day"]


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        (".docx", "A Day Morning Ann Bo June Abstract In short. One Text."),
        (".tex", "A Day Ann Bo June In short. One Text."),
    ],
)
def test_what_stands_between_title_and_text_is_part_of_it(here: Path, ending: str, words: str) -> None:
    front_matter = ("subtitle=Morning", "author=Ann", "author=Bo", "date=June", "abstract=In short.")
    write(here / f"a{ending}", "# One\n\nText.\n", *(f"--metadata={part}" for part in front_matter), title="A Day")
    (document,) = documents_of(read(f"a{ending}"))
    assert " ".join(document.split()) == words


def test_pictures_are_counted_and_left_out(here: Path) -> None:
    write(here / "a.html", "One ![picture](a.png) two ![](b.png).\n")
    (document,), notices = read_with_notices("a.html")
    assert (document.split(), notices) == (["One", "two", "."], ["left out 2 pictures of a.html"])


@pytest.mark.parametrize("ending", [".html", ".docx", ".epub", ".rtf"])
def test_tables_of_contents_are_counted_and_left_out(here: Path, ending: str) -> None:
    write(here / f"a{ending}", "# One\n\nText.\n\n## Two\n\nMore, see [one](#one).\n", "--toc")
    (document,), notices = read_with_notices(f"a{ending}")
    assert document.split() == ["One", "Text.", "Two", "More,", "see", "one."]
    assert notices == [f"left out 1 table of contents of a{ending}"]


@pytest.mark.parametrize(
    ("page", "text", "number"),
    [
        ("<p>目录</p><p><a href='#x'>一</a> 1</p><p><a href='#y'>二</a> 2</p><p>正文</p>", "正文", 1),
        ("<p>See <a href='#x'>one</a></p><ul><li><a href='https://a.b'>c</a></li></ul>", "See one - c", 0),
        ("<p><a href='#x'>one</a></p><p>alone</p>", "one alone", 0),
        ("<ul><li><a href='#x'>one</a><ul><li><a href='#y'>two</a></li></ul></li></ul><p>end</p>", "end", 1),
    ],
)
def test_a_table_of_contents_is_nothing_but_links_within(here: Path, page: str, text: str, number: int) -> None:
    (here / "a.html").write_text(page)
    (document,), notices = read_with_notices("a.html")
    assert (" ".join(document.split()), len(notices)) == (text, number)


def test_a_second_start_converts_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(here / "a.docx")
    expected = read("a.docx").digest
    monkeypatch.setattr(module, "_output", None)
    assert read("a.docx").digest == expected


def pdf(words: str) -> bytes:
    """A PDF with these lines on one page."""
    content, page = io.BytesIO(), Figure()
    page.text(0.1, 0.5, words)
    with rc_context({"pdf.use14corefonts": True}):
        page.savefig(content, format="pdf")
    return content.getvalue()


def test_a_pdf_is_the_text_of_its_pages_with_whole_words(here: Path) -> None:
    (here / "a.pdf").write_bytes(pdf("A word that is hyphen-\nated twice."))
    assert documents_of(read("a.pdf")) == ("A word that is hyphenated twice.\n",)


def test_a_pdf_is_read_where_ulimit_allows_less_memory_than_its_conversion(
    monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Raising such a limit is an error, except for root."""
    monkeypatch.setattr(resource, "setrlimit", Mock(side_effect=ValueError("not allowed to raise maximum limit")))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=BytesIO(pdf("A line."))))
    pdf_text.main()
    assert capsysbinary.readouterr().out == b"A line.\n"


def test_a_document_without_text_is_an_error_as_a_scan_is(here: Path) -> None:
    lay({"scan.pdf": pdf(""), "a.html": "<html><body><script>render()</script><img src='a.png'></body></html>"})
    refused("scan.pdf", '^"scan.pdf": this PDF contains no text; perhaps its pages are scanned$')
    refused("a.html", '^"a.html": this document contains no text$')


def test_a_prompt_may_be_a_document_or_packed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(here / "a.docx", "今天 *fine*")
    lay({"a.txt.gz": gzip.compress("今天 fine\n".encode()), "a.json": '["今天"]'})
    assert [read_prompt(None, here / name, None, None)[0] for name in ("a.docx", "a.txt.gz")] == ["今天 fine"] * 2
    assert read_prompt(None, here / "a.json", None, None)[0] == '["今天"]'
    monkeypatch.setattr("gpt_cli.sampling.prompts.PROMPT_BYTES", 5)
    with pytest.raises(DataError, match="a prompt has at most 5 bytes, but this one has more"):
        read_prompt(None, here / "a.docx", None, None)


@pytest.mark.parametrize("ending", [".docx", ".epub", ".odt", ".ipynb", ".pdf"])
def test_what_is_no_document_is_refused_with_its_name(here: Path, ending: str) -> None:
    (here / f"a{ending}").write_bytes(b"PK\x03\x04 and no more")
    refused(f"a{ending}", f'"a{ending}"')


def test_an_error_of_pandoc_names_the_line(here: Path) -> None:
    (here / "a.tex").write_text("\\input{b}\n\\begin{document}\nUnclosed \\begin{foo} here.\n")
    refused("a.tex", r"this document cannot be read: line 4, column \d: unexpected end of input$")


def test_a_document_includes_nothing_and_has_bounded_time_and_size(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "secret.txt").write_text("secret")
    (here / "a.tex").write_text("\\begin{document}fine \\input{secret.txt} \\include{secret.txt}\\end{document}")
    (document,), notices = read_with_notices("a.tex")
    assert "secret" not in document
    assert notices == ["left out 2 commands to include a file, of a.tex"]
    (here / "c.tex").write_text("By \\person{Ada Lovelace}, \\vspace{1cm}\\pagestyle{empty} of \\gls{London}.")
    assert list(read("c.tex").notices()) == ["left out 1 unknown command with text, of c.tex"]
    (here / "d.tex").write_text("\\begin{figure}\\includegraphics{a}\\caption{The three ports.}\\end{figure}")
    assert documents_of(read("d.tex")) == ("The three ports.\n",)
    write(here / "b.html", "Read by no other test, so that the cache lacks it.\n")
    monkeypatch.setattr(module, "DOCUMENT_BYTES", 10)
    refused("b.html", "too much for a document")
    monkeypatch.setattr(module, "_in_utf8", pytest.fail)  # too long to be decoded in memory
    refused("b.html", "too much for a document")
    write(here / "b.docx", "Read by no other test, so that the cache lacks it.\n")
    refused("b.docx", "too much for a document")
    monkeypatch.undo()
    monkeypatch.chdir(here)
    (here / "sleep").touch(0o755)
    monkeypatch.setattr(module, "DOCUMENT_SECONDS", 0.1)
    monkeypatch.setattr(pypandoc, "get_pandoc_path", lambda: str(here / "sleep"))
    (here / "c.html").write_text("<p>Read by no other test either.</p>")
    for stdout in ("", " >&-"):  # one that still may write, one that has closed its output
        (here / "sleep").write_text(f"#!/bin/sh\nexec sleep 60{stdout}\n")
        refused("c.html", r"its conversion takes more than 0\.1 s")
    monkeypatch.setattr(module, "DOCUMENT_SECONDS", 60)
    (here / "sleep").write_text("#!/bin/sh\nexit 251\n")
    refused("c.html", "its conversion takes more than 2 GB of memory")


def test_a_document_needs_no_cache(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(here / "a.org", "Read.\n")
    monkeypatch.setattr(cache_module, "cache_directory", no_home)
    assert documents_of(read("a.org")) == ("Read.\n",)


@pytest.mark.parametrize(
    ("ending", "start", "encoding"),
    [
        (".html", '<meta charset="gb2312">', "gb18030"),
        (".html", "<meta charset=gbk>", "utf-8"),  # a browser saved it anew
        (".htm", '<meta http-equiv="Content-Type" content="text/html; charset=Shift_JIS">', "cp932"),
        (".tex", "\\usepackage[latin1]{inputenc}", "latin-1"),
        (".fb2", '<?xml version="1.0" encoding="windows-1251"?><FictionBook><body><section>', "cp1251"),
    ],
)
def test_a_document_is_read_in_the_encoding_it_declares(here: Path, ending: str, start: str, encoding: str) -> None:
    text = {"latin-1": "Café au lait", "cp1251": "Привет, мир", "cp932": "春の海"}.get(encoding, "绿茶飘香")
    body = f"\\begin{{document}}{text}\\end{{document}}" if ending == ".tex" else f"<p>{text}</p>"
    end = "</section></body></FictionBook>" if ending == ".fb2" else ""
    (here / f"a{ending}").write_bytes((start + body + end).encode(encoding))
    assert "".join(documents_of(read(f"a{ending}"))).strip() == text


@pytest.mark.parametrize(("encoding", "what"), [("gb18030", "text must be UTF-8"), ("utf-16", "this is UTF-16")])
def test_a_page_that_declares_no_encoding_is_utf8_or_an_error(here: Path, encoding: str, what: str) -> None:
    (here / "a.html").write_bytes("<html><body><p>床前明月光</p></body></html>".encode(encoding))
    refused("a.html", what)


@pytest.mark.parametrize("declared", ["undefined", "unicode_escape", "utf-16", "hex", "no-encoding"])
def test_a_page_that_declares_an_encoding_that_it_cannot_have_is_utf8_or_an_error(here: Path, declared: str) -> None:
    (here / "a.html").write_bytes(f'<meta charset="{declared}">床前明月光，C:\\ud800 ；'.encode("gb18030"))
    refused("a.html", "text must be UTF-8")
    (here / "b.html").write_text(f'<meta charset="{declared}"><p>床前明月光</p>')
    assert "".join(documents_of(read("b.html"))).strip() == "床前明月光"


def test_without_the_extra_a_named_document_names_it_and_a_folder_leaves_it_out(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay({"d/a.html": "<p>a</p>", "d/b.txt": "plain"})
    monkeypatch.setitem(sys.modules, "pypandoc", None)
    with pytest.raises(EnvironmentFailure) as raised:
        read("d/a.html")
    assert raised.value.lines() == [
        'error: "d/a.html": reading a .html file needs the library pypandoc, which is not installed',
        "hint: in the clone of gpt: pip install -e '.[documents]'",
    ]
    monkeypatch.setattr("gpt_cli.text.converted.is_installed", lambda _: False)
    corpus = read("d")
    assert documents_of(corpus) == ("plain",)
    line = "left out 1 document, because the extra documents is missing (pip install -e '.[documents]'): d/a.html"
    assert list(corpus.notices()) == [line]
    assert corpus.survey.num_skipped == 1
    (here / "d" / "b.txt").unlink()
    assert refused("d", "contains no text").hint == line


@pytest.mark.parametrize("ending", [".docx", ".epub", ".odt", ".html", ".rtf", ".ipynb", ".pdf"])
def test_a_cut_or_changed_document_is_an_error_or_has_another_text(here: Path, ending: str) -> None:
    path, draw = here / f"a{ending}", random.Random(ending)
    if ending == ".pdf":
        path.write_bytes(pdf("It was a fine day."))
    else:
        write(path)
    content = path.read_bytes()
    for _ in range(scaled(100)):
        path.write_bytes(damaged(content, draw))
        lines = error_lines(path.name)
        assert all(len(line) < 600 for line in lines), lines


# RTF of other programs: letters in the code page of a font, \u with its fallback, and what strangers may write
CHINESE = rb"{\rtf1\ansi\ansicpg936\deff0{\fonttbl{\f0\fcharset0 Times;}{\f13\fcharset134 \'cb\'ce\'cc\'e5;}}"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (rb"{\rtf1\ansi\ansicpg936{\fonttbl{\f0\fcharset134 A;}}\f0 \'b4\'b2\'c7\'b0 end.}", "床前 end."),
        (rb"{\rtf1\ansi\ansicpg1251 \'cc\'ee\'f0\'ee\'e7.}", "Мороз."),
        (rb"{\rtf1\ansi{\fonttbl\f0\fnil\fcharset204 A;\f1\fnil\fcharset0 B;}\f0\'cc\f1\'e9\plain\'cc}", "МéМ"),
        (CHINESE + rb"{\f13\'b4\'b2}\'e9 \f13\'b4" + b"\r\n" + rb"\'b2}", "床é 床"),
        (rb"{\rtf1\ansi\ansicpg932 \'83\\\'83A\'83" + b"\n" + rb"\'7b\'8f\{}", "ソアボ旬"),
        (rb"{\rtf1\mac caf\'8e}", "café"),
        (rb"{\rtf1\ansi\ansicpg99999 caf\'e9}", "café"),
        ("{\\rtf1\\ansi 床é}".encode(), "床é"),
        ("{\\rtf1\\ansi\\ansicpg936 床前}".encode("gbk"), "床前"),
        (rb"{\rtf1\ansi\uc-2\u228 Hello}", "äHello"),
        (rb"{\rtf1\ansi\uc2 \u24202\'b4\'b2\u21069\'c7\'b0 end}", "床前 end"),
        (rb"{\rtf1\ansi\u8220" + b'"quotes' + rb"\u8221" + b'" ' + rb"\u8211- dash}", "“quotes” – dash"),
        (rb"{\rtf1\ansi{\uc0\u26149}x\u-25255 ?\u123{\u92\'5c\i\u49 1}}", "春x鵙{\\1"),
        (rb"{\rtf1\ansi\u-10179?\u-8704?\uc0\u128512\u-10179 }", "😀😀\ufffd"),
        (rb"{\rtf1\ansi a\bin3 }}{{\b\'62\~c\par\'64}}", "ab\xa0c d"),
    ],
)
def test_letters_are_read_in_the_code_page_of_their_font(here: Path, content: bytes, text: str) -> None:
    (here / "a.rtf").write_bytes(content)
    (document,) = documents_of(read("a.rtf"))
    assert " ".join(document.replace("\xa0", "~").split()) == text.replace("\xa0", "~")


def test_plain_rtf_keeps_its_words() -> None:
    expected = rb"{\rtf1 \ansi \b fine\b0 day\~\{ {\*\x 1}}"
    assert rtf_in_unicode(rb"{\rtf1\ansi\b fine\b0\'64ay\~\{ {\*\x 1}}") == expected


def test_rtf_of_strangers_is_decoded_in_a_time_that_grows_with_its_size() -> None:
    content, draw = CHINESE + rb"{\f13\'b4\'b2}\u24202\'b4 \bin2 ab\uc-3\u9999999999}", random.Random(0)
    for _ in range(scaled(2000)):
        rtf_in_unicode(damaged(content, draw)).decode()
    for part in (b"{", rb"\'b4", rb"\u1"):
        start = time.process_time()
        assert rtf_in_unicode(rb"{\rtf1 " + part * 100_000)
        assert time.process_time() - start < 2.5
