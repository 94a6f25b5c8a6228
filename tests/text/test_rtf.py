"""RTF of other programs: letters in the code page of a font, \\u with its fallback, and what strangers may write."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from support.faults import scaled

from gpt_cli.config import DataConfig
from gpt_cli.text.load import read_data
from gpt_cli.text.rtf import in_unicode

CHINESE = rb"{\rtf1\ansi\ansicpg936\deff0{\fonttbl{\f0\fcharset0 Times;}{\f13\fcharset134 \'cb\'ce\'cc\'e5;}}"


def hexes(text: str, encoding: str) -> bytes:
    return "".join(f"\\'{byte:02x}" for byte in text.encode(encoding)).encode()


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
        (rb"{\rtf1\ansi\uc2 \u24202\'b4\'b2\u21069\'c7\'b0 end}", "床前 end"),
        (rb"{\rtf1\ansi\u8220" + b'"quotes' + rb"\u8221" + b'" ' + rb"\u8211- dash}", "“quotes” – dash"),
        (rb"{\rtf1\ansi{\uc0\u26149}x\u-25255 ?\u123{\u92\'5c\i\u49 1}}", "春x鵙{\\1"),
        (rb"{\rtf1\ansi\u-10179?\u-8704?\uc0\u128512\u-10179 }", "😀😀\ufffd"),
        (rb"{\rtf1\ansi a\bin3 }}{{\b\'62\~c\par\'64}}", "ab\xa0c d"),
    ],
)
def test_letters_are_read_in_the_code_page_of_their_font(here: Path, content: bytes, text: str) -> None:
    (here / "a.rtf").write_bytes(content)
    (document,) = read_data(DataConfig(source="a.rtf")).documents
    assert " ".join(document.replace("\xa0", "~").split()) == text.replace("\xa0", "~")


def test_plain_rtf_keeps_its_words() -> None:
    assert in_unicode(rb"{\rtf1\ansi\b fine\b0\'64ay\~\{ {\*\x 1}}") == rb"{\rtf1 \ansi \b fine\b0 day\~\{ {\*\x 1}}"


def test_rtf_of_strangers_is_decoded_in_a_time_that_grows_with_its_size() -> None:
    content, draw = CHINESE + rb"{\f13\'b4\'b2}\u24202\'b4 \bin2 ab\uc-3\u9999999999}", random.Random(0)
    for number in range(scaled(2000)):
        damaged = bytearray(content)
        damaged[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        in_unicode(bytes(damaged) if number % 2 else content[: draw.randrange(len(content))]).decode()
    for part in (b"{", b"}", rb"\'b4", rb"\u1", rb"\uc1"):
        start = time.process_time()
        assert in_unicode(rb"{\rtf1 " + part * 200_000)
        assert time.process_time() - start < 10
