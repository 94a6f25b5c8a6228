"""A file of a stranger costs memory in proportion to its size, and the time of reading it."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from support.faults import scaled
from support.strangers import Parts, behind_length, intact

MB = 1_000_000
# of JSON: just below the limit, or a quarter
PARTS = scaled(4_000_000, 1_000_000)


def with_tokenizer(**tokenizer: Any) -> bytes:
    return replace(intact(), metadata={**intact().metadata, "tokenizer": tokenizer}).joined()


def with_tensors(number: int) -> bytes:
    entries = {f"blocks.{i}.x": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(number)}
    return replace(intact(), entries={**intact().entries, **entries}).joined()


def with_string(section: str, key: str) -> bytes:
    parts: Parts = copy.deepcopy(intact())
    parts.metadata[section][key] = "x" * 10 * MB
    return parts.joined()


FILES: dict[str, Callable[[], bytes]] = {
    "an intact checkpoint": lambda: intact().joined(),
    "a header of one string": lambda: behind_length(
        b'{"__metadata__":{"format":"' + b"x" * scaled(60, 20) * MB + b'"}}'
    ),
    "a header of empty lists": lambda: behind_length(b'{"a":[' + b"[]," * (PARTS // 2) + b"[]]}"),
    "a header of small objects": lambda: behind_length(b'{"a":[' + b'{"a":0},' * (PARTS // 9) + b"0]}"),
    "a header of deep JSON": lambda: behind_length(b"[" * PARTS),
    "many tensors": lambda: with_tensors(scaled(100_000, 20_000)),
    "a config of 10 million characters": lambda: with_string("config", "model"),
    "progress of 10 million characters": lambda: with_string("progress", "data_digest"),
    "a vocabulary of 10 million characters": lambda: with_tokenizer(kind="char", characters="x" * 10 * MB),
    "a pattern of 10 million characters": lambda: with_tokenizer(kind="bpe", pattern="a|" * 5 * MB, tokens=""),
    "tokens of 10 million characters": lambda: with_tokenizer(kind="bpe", pattern="", tokens="QQ== " * 2 * MB),
}
# what docs/reliability.md promises
JSON_MEMORY = scaled(500, 125) * MB
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
