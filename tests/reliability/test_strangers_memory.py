"""The memory that inputs of strangers cost, in processes of their own: a small multiple of their size, and imports."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from support.measured import Measured, measured

IMPORTS = 200e6  # bytes; Python, numpy and our modules take 50 MB, which other versions of them may double


def require(found: Measured, code: int, peak: float, said: str = "") -> None:
    """Fails where a command ended in another way, or took more memory."""
    assert found.code == code, found.err
    assert "Traceback" not in found.err
    assert said in found.err
    assert found.peak < peak, f"{found.peak / 1e6:.0f} MB"


@pytest.fixture(name="bomb")
def _bomb(here: Path) -> Path:
    """400 MB in 400 kB."""
    packed = gzip.compress(b"a" * 10_000_000, 9)
    (here / "bomb.txt.gz").write_bytes(packed * 40)
    return here / "bomb.txt.gz"


@pytest.mark.parametrize(
    "command",
    [
        "data stats bomb.txt.gz",
        pytest.param("data prepare bomb.txt.gz --config smoke --set tokenizer.kind=char", marks=pytest.mark.long),
    ],
)
def test_a_bomb_of_gzip_stops_at_its_limit(command: str, bomb: Path) -> None:
    """It cost 6.5 GB with the characters as vocabulary."""
    require(measured(*command.split()), 3, IMPORTS, "it expands to more than 200 times its size, which text does not")


def test_one_long_line_takes_no_memory(here: Path) -> None:
    (here / "a.txt").write_bytes(b"a" * 100_000_000)
    require(measured("data", "stats", "a.txt", "--json"), 0, IMPORTS)


def test_a_long_line_of_json_takes_a_few_times_its_size(here: Path) -> None:
    (here / "a.jsonl").write_bytes(b'{"text": "' + b"a" * 20_000_000 + b'"}')
    require(measured("data", "stats", "a.jsonl"), 0, IMPORTS + 10 * 20e6)


@pytest.mark.parametrize(
    "text",
    [
        "a:" + " {a:" * 100_000,
        "a: [" * 100_000,
        "a:\n" + "".join(f"{' ' * i}a:\n" for i in range(1, 1000)),
        "- " * 300_000,
    ],
    ids=["braces", "brackets", "indented", "dashes"],
)
def test_a_nested_config_is_refused(text: str, here: Path) -> None:
    (here / "a.yaml").write_text(text)
    require(measured("config", "check", "a.yaml"), 2, IMPORTS)


def test_a_huge_command_line_is_refused(here: Path) -> None:
    """1.5 MB of words; the system allows 2 MB."""
    words = ["--set", "model.num_heads=" + "9" * 100_000] * 8 + ["x" * 100_000] * 7
    require(measured("config", "show", "tiny", *words), 2, IMPORTS)
