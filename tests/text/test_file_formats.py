import gzip
import io
import itertools
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pytest
import zstandard
from support.faults import scaled
from support.measured import measured
from support.texts import joined, json_lines, lay, parquet

from gpt_cli.errors import DataError, EnvironmentFailure
from gpt_cli.text import compressed
from gpt_cli.text import file_formats as module
from gpt_cli.text.file_formats import Reading, read_file
from gpt_cli.text.remarks import Remarks

pytestmark = pytest.mark.slow

TEXT = "今天天气很好。🙂\nIt was a fine day.\r\n" * 20


def documents(path: Path | str, how: Reading | None = None, *, named: bool = True) -> list[str] | None:
    remarks = Remarks()
    found = joined(read_file(Path(path), how or Reading(), remarks, named=named))
    return None if remarks.counts["file"] else found


def refusal(path: Path | str, how: Reading | None = None) -> str:
    with pytest.raises(DataError) as raised:
        documents(path, how)
    return "\n".join(raised.value.lines())


def test_a_byte_order_mark_is_dropped_at_the_start_alone(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "BLOCK", 8192)
    text = "\ufeff" + "今" * 8192 + "\ufeffend"
    lay({"a.txt": text, "a.txt.gz": gzip.compress(text.encode())})
    assert documents("a.txt") == documents("a.txt.gz") == [text[1:]]


def test_the_first_bad_byte_is_named_with_its_line_in_any_block(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "BLOCK", 8192)
    content = "今\n".encode() * 5000 + b"ab\xff"
    lay({"a.txt": content, "b.txt": content[:-3] + "今".encode()[:2]})
    assert "a.txt: line 5,001: this is UTF-8 that is damaged or cut off at byte 0xff, offset 20,002" in refusal("a.txt")
    assert "b.txt: line 5,001: this is UTF-8 that is damaged or cut off at byte 0xe4, offset 20,000" in refusal("b.txt")


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_packed_data_that_ends_anywhere_too_early_is_damaged(here: Path, suffix: str) -> None:
    content = gzip.compress(TEXT.encode()) if suffix == "gz" else zstandard.compress(TEXT.encode())
    path = here / f"a.txt.{suffix}"
    for length in range(1, len(content)):
        path.write_bytes(content[:length])
        assert "data is damaged" in refusal(path), length
    path.write_bytes(content)
    assert documents(path) == [TEXT]
    path.write_bytes(content + b"rubbish")
    assert "data is damaged" in refusal(path)
    path.write_bytes(b"")
    assert documents(path) == []


@pytest.mark.parametrize("suffix", ["gz", "zst", "parquet"])
def test_a_changed_bit_never_gives_another_text(here: Path, suffix: str) -> None:
    path, draw = here / f"a.{suffix}", random.Random(0)
    texts = [f"line {number}: 今天天气很好" for number in range(40)]
    content = {
        "gz": gzip.compress(TEXT.encode(), mtime=0),
        "zst": zstandard.ZstdCompressor(write_checksum=True).compress(TEXT.encode()),
        "parquet": parquet(texts, compression="snappy", write_page_checksum=True),
    }[suffix]
    expected = texts if suffix == "parquet" else [TEXT]
    for _ in range(scaled(300, least=60)):
        damaged = bytearray(content)
        damaged[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        found, lines = expected, list[str]()
        try:
            found = documents(path)
        except DataError as error:
            lines = error.lines()
        assert found == expected, "the names, dates and flags of a header may change, and nothing else"
        assert len(lines) <= 2, lines
        assert all(len(line) < 400 for line in lines)


def test_skippable_frames_of_zstandard_are_skipped(here: Path) -> None:
    skippable = (0x184D2A50).to_bytes(4, "little") + (5).to_bytes(4, "little") + b"note!"
    (here / "a.zst").write_bytes(skippable + zstandard.compress(b"one ") + skippable + zstandard.compress(b"two"))
    assert documents("a.zst") == ["one two"]


@pytest.mark.parametrize(("library", "extra"), [("zstandard", "zst"), ("pyarrow", "parquet")])
def test_a_missing_library_is_named_with_the_command_that_installs_it(
    here: Path, monkeypatch: pytest.MonkeyPatch, library: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    (here / f"a.{extra}").write_bytes(b"anything")
    for named in (True, False):
        with pytest.raises(EnvironmentFailure) as raised:
            documents(f"a.{extra}", named=named)
        assert raised.value.lines() == [
            f'error: "a.{extra}": reading a .{extra} file needs the library {library}, which is not installed',
            f"hint: in the clone of gpt: pip install -e '.[{extra}]'",
        ]


def test_a_table_gives_a_document_for_each_row_that_has_text(here: Path) -> None:
    texts = ["one", None, "", "今天🙂", "two\n"]
    for kind in (arrow.string(), arrow.large_string(), arrow.dictionary(arrow.int32(), arrow.string())):
        (here / "a.parquet").write_bytes(parquet(texts, kind=kind, row_group_size=2))
        assert documents("a.parquet") == ["one", "今天🙂", "two\n"]
    (here / "a.parquet").write_bytes(parquet(texts, "body"))
    assert documents("a.parquet", Reading(text_field="body")) == ["one", "今天🙂", "two\n"]
    (here / "none.parquet").write_bytes(parquet([]))
    assert documents("none.parquet") == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (parquet(["a"], "body"), 'their mean length in characters: "body" (1)\nhint: --set data.text_field=body'),
        (parquet([1], kind=arrow.int64()), 'a.parquet: row 1: this record has no field "text" that contains text'),
        (b"plain text\n" * 9, '"a.parquet": this is not a Parquet file, though its name ends in .parquet'),
        (b"PAR1 and no more", "the Parquet data is damaged: its end is missing"),
        (b"", "the Parquet data is damaged"),
        (parquet(["a" * 1000] * 9)[:-20], "the Parquet data is damaged"),
    ],
)
def test_a_table_without_text_is_refused(here: Path, content: bytes, message: str) -> None:
    (here / "a.parquet").write_bytes(content)
    assert message in refusal("a.parquet")


def test_a_name_that_promises_gzip_is_told(here: Path) -> None:
    (here / "a.gz").write_bytes("原文".encode())
    assert refusal("a.gz") == (
        'error: "a.gz": this is not a gzip file, though its name ends in .gz\n'
        "hint: if it is not packed, give the file a name that ends in .txt"
    )
    (here / "a.jsonl.gz").write_text("{}")
    assert refusal("a.jsonl.gz").endswith("give the file a name that ends in .jsonl")
    (here / "a.tgz").write_bytes(bytes(1024))  # a tar without files
    message = refusal("a.tgz")
    assert "though its name ends in .tgz\n" in message
    assert message.endswith("give the file a name that ends in .tar")


def test_a_file_that_changes_while_it_is_read_is_an_error(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "BLOCK", 16)
    changes: list[Callable[[Path], object]] = [
        lambda path: path.write_bytes(path.read_bytes() + b"more"),
        lambda path: os.truncate(path, 40),
        lambda path: os.utime(path, ns=(1, 1)),
    ]
    for name, change in itertools.product(("a.txt", "a.jsonl", "a.txt.gz"), changes):
        content = json_lines(["one line"] * 9) if name == "a.jsonl" else random.Random(0).randbytes(999).hex().encode()
        (here / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
        blocks = read_file(here / name, Reading(), Remarks(), named=True)
        next(blocks)
        change(here / name)
        with pytest.raises(DataError, match="changed while gpt read it"):
            list(blocks)


def test_a_disk_that_breaks_is_an_error_of_the_file(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.FileIO):
        def read(self, *_: Any) -> bytes:
            raise OSError(5, "Input/output error")

    (here / "a.txt").write_text("A")
    monkeypatch.setattr(module, "open_regular", lambda path, *_, **__: Broken(path))
    assert refusal("a.txt") == 'error: "a.txt": input/output error'


BOMBS = ["a.jsonl.gz", "a.txt.gz", "dictionary.parquet", "row.parquet", "a.txt.zst", "rows.parquet"]


def bomb(name: str, size: int = 2**20) -> bytes:
    """A file of less than 1 MB with 120 MB of the letter a, or with 120 times `size`."""
    letters = b"a" * size
    if name == "a.txt.gz":
        return gzip.compress(letters) * 200
    if name == "a.jsonl.gz":
        return gzip.compress(b'{"text": "' + letters * 120 + b'"}')
    if name == "a.txt.zst":
        packer = zstandard.ZstdCompressor().compressobj()
        return b"".join([packer.compress(letters) for _ in range(120)] + [packer.flush()])
    texts = [(letters * 120).decode()] if name == "row.parquet" else [letters.decode()] * 120
    return parquet(texts, compression="zstd", compression_level=1, use_dictionary=name == "dictionary.parquet")


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused(here: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(compressed, "EXPANSION_FROM", 0)
    (here / name).write_bytes(bomb(name, 2**14))
    assert "it expands to more than 200 times its size, but text never does" in refusal(name)


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells the peak of memory")
def test_a_bomb_is_refused_in_little_memory(here: Path) -> None:
    (here / "small").mkdir()
    for name in BOMBS:
        (here / "small" / name).write_bytes(bomb(name, 10))
    small = measured("data", "stats", "small")
    assert small.code == 0
    for name in BOMBS:
        (here / name).write_bytes(bomb(name))
        assert (here / name).stat().st_size < 2**20
        refused = measured("data", "stats", name)
        assert "it expands to more than 200 times its size, but text never does" in refused.err
        assert refused.peak - small.peak < 200 * 2**20


def test_text_that_looks_like_a_bomb_may_be_unpacked(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "EXPANSION_FROM", 0)
    lay({"a.txt.gz": gzip.compress(b"a" * 100_000), "plain.txt": b"a" * 100_000})
    assert "hint: if it is text after all, unpack it, and name the unpacked file" in refusal("a.txt.gz")
    assert documents("plain.txt") == ["a" * 100_000]


def test_what_nobody_named_is_judged_by_its_first_bytes(here: Path) -> None:
    with open(here / "sparse", "wb") as file:
        file.truncate(2**34)
    lay({"a.gz": gzip.compress(bytes(2**20)), "a.zst": zstandard.compress(bytes(2**20))})
    assert [documents(name, named=False) for name in ("sparse", "a.gz", "a.zst")] == [None] * 3


def test_bytes_of_the_file_are_counted_once(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "BLOCK", 16)
    for name, content in {
        "a.txt": TEXT.encode(),
        "a.jsonl": json_lines([TEXT] * 3),
        "a.gz": gzip.compress(TEXT.encode()),
        "a.parquet": parquet([str(number) for number in range(1000)]),
    }.items():
        (here / name).write_bytes(content)
        counted = list[int]()
        list(read_file(here / name, Reading(), Remarks(), named=True, count=counted.append))
        assert sum(counted) == len(content)
        assert min(counted) >= 0


def test_json_text_may_contain_anything(here: Path) -> None:
    lines = ['{"text": "\\ud83d\\ude42"}', '{"text": "\\u0000"}', '\t{"text": "a"}\r']
    (here / "a.jsonl").write_text("\n".join(lines))
    assert documents("a.jsonl") == ["🙂", "\0", "a"]


def test_a_file_that_would_wait_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was read without end."""

    class Waiting(io.FileIO):
        """A file that has nothing yet, such as /proc/kmsg."""

        def read(self, *_: Any) -> None:
            return None

    monkeypatch.setattr(module, "open_regular", lambda path, *_, **__: Waiting(path))
    assert documents(os.devnull) == []
