"""The memory that inputs of strangers cost, in processes of their own: a small multiple of their size, and imports."""

import copy
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.faults import scaled
from support.measured import Measured, measured
from support.strangers import Parts, behind_length, intact

IMPORTS = 200e6  # bytes; Python, numpy and our modules take 50 MB, which other versions of them may double


def require(found: Measured, code: int, peak: float, said: str = "") -> None:
    """Fails where a command ended in another way, or took more memory."""
    assert found.code == code, found.err
    assert "Traceback" not in found.err
    assert said in found.err
    assert found.peak < peak, f"{found.peak / 1e6:.0f} MB"


@pytest.mark.long
def test_a_bomb_of_gzip_stops_at_its_limit(here: Path) -> None:
    """400 MB in 400 kB cost 6.5 GB with the characters as vocabulary."""
    (here / "bomb.txt.gz").write_bytes(gzip.compress(b"a" * 10_000_000, 9) * 40)
    prepared = measured("data", "prepare", "bomb.txt.gz", "--config", "smoke", "--set", "tokenizer.kind=char")
    require(prepared, 3, IMPORTS, "it expands to more than 200 times its size, but text never does")


def test_one_long_line_takes_no_memory(here: Path) -> None:
    (here / "a.txt").write_bytes(b"a" * 100_000_000)
    require(measured("data", "stats", "a.txt", "--json"), 0, IMPORTS)


def test_a_long_line_of_json_takes_a_few_times_its_size(here: Path) -> None:
    (here / "a.jsonl").write_bytes(b'{"text": "' + b"a" * 20_000_000 + b'"}')
    require(measured("data", "stats", "a.jsonl"), 0, IMPORTS + 10 * 20e6)


def test_nested_configs_and_a_huge_command_line_are_refused(here: Path) -> None:
    """1.5 MB of words; the system allows 2 MB."""
    words = ["--set", "model.num_heads=" + "9" * 100_000] * 8 + ["x" * 100_000] * 7
    commands = ["config", "show", "tiny", *words]
    indented = "a:\n" + "".join(f"{' ' * i}a:\n" for i in range(1, 1000))
    for number, text in enumerate(["a:" + " {a:" * 100_000, "a: [" * 100_000, indented, "- " * 300_000]):
        (here / f"{number}.yaml").write_text(text)
        commands += ["&&", "config", "check", f"{number}.yaml"]
    require(measured(*commands), 2, IMPORTS)


MB = 1_000_000
LONG = scaled(10, 4) * MB  # of one part of a header
# of JSON: just below the limit, or an eighth
PARTS = scaled(4_000_000, 500_000)


def with_tokenizer(**tokenizer: Any) -> bytes:
    return replace(intact(), metadata={**intact().metadata, "tokenizer": tokenizer}).joined()


def with_tensors(number: int) -> bytes:
    entries = {f"blocks.{i}.x": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(number)}
    return replace(intact(), entries={**intact().entries, **entries}).joined()


def with_string(section: str, key: str) -> bytes:
    parts: Parts = copy.deepcopy(intact())
    parts.metadata[section][key] = "x" * LONG
    return parts.joined()


FILES: dict[str, Callable[[], bytes]] = {
    "an intact checkpoint": lambda: intact().joined(),
    "a header of one string": lambda: behind_length(
        b'{"__metadata__":{"format":"' + b"x" * scaled(60, 20) * MB + b'"}}'
    ),
    "a header of empty lists": lambda: behind_length(b'{"a":[' + b"[]," * (PARTS // 2) + b"[]]}"),
    "a header of small objects": lambda: behind_length(b'{"a":[' + b'{"a":0},' * (PARTS // 9) + b"0]}"),
    "a header of deep JSON": lambda: behind_length(b"[" * PARTS),
    "many tensors": lambda: with_tensors(scaled(100_000, 10_000)),
    "a long config": lambda: with_string("config", "model"),
    "long progress": lambda: with_string("progress", "data_digest"),
    "a long vocabulary": lambda: with_tokenizer(kind="char", characters="x" * LONG),
    "a long pattern": lambda: with_tokenizer(kind="bpe", pattern="a|" * (LONG // 2), tokens=""),
    "long tokens": lambda: with_tokenizer(kind="bpe", pattern="", tokens="QQ== " * (LONG // 5)),
}
# what docs/reliability.md promises
JSON_MEMORY = scaled(500, 70) * MB
FACTOR = 6  # a header is there as bytes, as text, and in parts


def test_files_of_strangers_take_memory_in_proportion(tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(len(FILES))]
    for path, make in zip(paths, FILES.values(), strict=True):
        path.write_bytes(make())
    folders = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]
    outcome = subprocess.run(
        [sys.executable, "-m", "support.loaded", *map(str, paths)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    for name, path, (taken, seconds) in zip(FILES, paths, json.loads(outcome.stdout), strict=True):
        size = path.stat().st_size
        assert taken < JSON_MEMORY + FACTOR * size, name
        assert seconds < 60, name  # of a hang
