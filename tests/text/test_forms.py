"""Several contents in each form, written by other programs: Python's csv, pyarrow as `datasets` uses it."""

import csv
import gzip
import io
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.archives import tarred, zipped
from support.faults import scaled
from support.texts import damaged, error_lines, parquet, read

from gpt_cli.text.encode import encode
from gpt_cli.text.tokenizers import ByteTokenizer

PARTS = (
    "今天天气很好，我们去公园。",
    'It was "fine"; truly, a good day.',
    "line\nbreak",
    "carriage\r\nreturn",
    "tab\there",
    "a,b;c|d",
    "'single' `back` \\ slash",
    "\u2028 separator \x85",
    "🙂 emoji",
    "{json: [1]}",
    "<p>tags</p>",
    " leading and trailing ",
    "a long one " * 500,
)


def contents(number: int) -> list[str]:
    """Texts of one file: the first number has each part as a text, the others any of them."""
    draw = random.Random(number)
    if number == 0:
        return [*PARTS]
    return ["".join(draw.choices(PARTS, k=draw.randrange(1, 6))) for _ in range(draw.randrange(1, 9))]


def table(texts: Sequence[str], **dialect: Any) -> bytes:
    content = io.StringIO(newline="")
    writer = csv.writer(content, **dialect)
    writer.writerows([["id", "text", "note"], *([number, text, "n"] for number, text in enumerate(texts))])
    return content.getvalue().encode()


def lines(texts: Sequence[str], **how: Any) -> bytes:
    """As `datasets` writes to_json: a line for each row, characters beyond ASCII escaped or not."""
    return "".join(json.dumps({"id": 1, "text": text}, **how) + "\n" for text in texts).encode()


def files_of(texts: Sequence[str]) -> dict[str, bytes]:
    return {f"d/{number:03}.txt": text.encode() for number, text in enumerate(texts)}


FORMS: dict[str, Callable[[Sequence[str]], bytes]] = {
    "excel.csv": table,
    "excel-marked.csv": lambda texts: b"\xef\xbb\xbf" + table(texts),
    "unix.csv": lambda texts: table(texts, dialect="unix"),
    "semicolon.csv": lambda texts: table(texts, delimiter=";"),
    "bar.csv": lambda texts: table(texts, delimiter="|", quoting=csv.QUOTE_NONNUMERIC),
    "tabs.csv": lambda texts: table(texts, delimiter="\t"),
    "excel-tab.tsv": lambda texts: table(texts, dialect="excel-tab"),
    "lines.jsonl": lines,
    "texts.jsonl": lambda texts: "".join(json.dumps(text) + "\n" for text in texts).encode(),
    "lines-unescaped.NDJSON.gz": lambda texts: gzip.compress(lines(texts, ensure_ascii=False)),
    "lines.json": lambda texts: lines([*texts, ""]),
    "array.json": lambda texts: json.dumps([{"text": text, "id": 1} for text in texts]).encode(),
    "array-indented.json": lambda texts: json.dumps([{"text": text} for text in texts], indent=4).encode(),
    "array-marked.json": lambda texts: b"\xef\xbb\xbf" + json.dumps([*texts], ensure_ascii=False).encode(),
    "rows.parquet": parquet,
    "rows-zstd.parquet": lambda texts: parquet(texts, compression="zstd", row_group_size=3),
    "files.zip": lambda texts: zipped(files_of(texts)),
    "files.tar": lambda texts: tarred(files_of(texts)),
    "tables.zip": lambda texts: zipped({"a/table.csv": table(texts), "b.png": b"\x89PNG\r\n\x1a\n"}),
}


@pytest.mark.parametrize("name", FORMS)
def test_contents_give_the_ids_of_the_plain_texts(here: Path, name: str) -> None:
    tokenizer = ByteTokenizer()
    for number in range(scaled(20, least=4)):
        texts = contents(number)
        (here / name).write_bytes(FORMS[name](texts))
        expected = [byte for text in texts for byte in (tokenizer.end_of_text, *text.encode())][1:]
        assert encode(read(name), tokenizer)[:].tolist() == expected, (number, texts)


@pytest.mark.parametrize("name", FORMS)
def test_a_cut_or_changed_file_is_an_error_or_has_another_text(here: Path, name: str) -> None:
    content, draw = FORMS[name](PARTS[:-1]), random.Random(0)
    for _ in range(scaled(40, least=10)):
        (here / name).write_bytes(damaged(content, draw))
        lines = error_lines(name)
        assert all(len(line) < 600 for line in lines), lines
