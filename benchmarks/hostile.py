"""Files and flags that `gpt` refuses, made to be costly: what `python -m benchmarks.refusals` times."""

from __future__ import annotations

import gzip
import io
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import zstandard

from benchmarks.hostile_models import MB, Case, checkpoint, checkpoints, directories, sparse

CHECK, STATS = ["config", "check", "FILE"], ["data", "stats", "FILE"]
GOOD = ["sample", "--run", "good.safetensors"]


def configs() -> Iterator[Case]:
    """Y1 to Y13: configs, sweeps and command lines."""
    aliases = "a: &a [x]\n" + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [{f'*{chr(97 + i)},' * 9}]\n" for i in range(9))
    texts: dict[str, str | bytes] = {
        "Y1 tags": "a: !!python/object/apply:os.system ['touch canary']\n",
        "Y2 aliases": aliases,
        "Y2 merges": "a: &a {x: 1}\nb:\n  <<: *a\n",
        "Y2 braces": "a:" + " {a:" * 200_000,
        "Y2 brackets": "a: " + "[" * 900_000,
        "Y2 dashes": "- " * 450_000,
        "Y2 indented": "a:\n" + "".join(f"{' ' * i}a:\n" for i in range(1, 1400)),
        "Y3 no text": os.urandom(900_000),
        "Y3 UTF-16": "model:\n  d_model: 4\n".encode("utf-16"),
        "Y3 Latin-1": "# é\n".encode("latin-1") * 200_000,
        "Y3 NUL": "model:\n  d_model: 4\0\n",
        "Y4 duplicate keys": "model:\n" + "  d_model: 4\n" * 70_000,
        "Y4 a date that is none": "train:\n  seed: 2024-13-45\n",
        "Y4 900,000 digits": "train:\n  seed: " + "9" * 900_000,
        "Y5 60,000 unknown keys": "".join(f"k{i}:\n  a: 1\n" for i in range(60_000)),
        "Y5 60,000 unknown keys of a section": "model:\n" + "".join(f"  d_modle{i}: 1\n" for i in range(50_000)),
        "Y5 an unknown key of 900,000 letters": f"model:\n  {'x' * 900_000}: 1\n",
        "Y6 a list for a number": f"model:\n  d_model: [{'1, ' * 300_000}1]\n",
        "Y7 too large": "model:\n  d_model: 99999999999999999999\n",
        "Y8 heads that do not divide": "model:\n  d_model: 1000003\n  num_heads: 12\n",
    }
    for name, text in texts.items():
        yield name, "a.yaml", text if isinstance(text, bytes) else text.encode(), CHECK
    yield "Y3 1 GB", "a.yaml", sparse(10**9, b"model:\n"), CHECK
    yield "Y13 an argument of 100,000 letters", "a", b"", ["config", "show", "tiny", "--set", "x" * 100_000]
    digits = ["--set", "model.num_heads=" + "9" * 100_000]
    yield "Y13 fifteen long arguments", "a", b"", ["config", "show", "tiny", *digits * 15]
    sweeps = {
        "a thousand and one": f"grid: {{train.seed: [{','.join(map(str, range(1001)))}]}}",
        "a billion": "grid:\n" + "".join(f"  {key}: [{','.join(map(str, range(1, 999)))}]\n" for key in
                                          ("train.seed", "train.max_steps", "train.warmup_steps")),
        "a base of its own": "base: a.sweep\ngrid: {train.seed: [1]}",
        "50,000 unknown keys": "grid:\n" + "".join(f"  train.x{i}: [1]\n" for i in range(50_000)),
        "40,000 unknown sections": "".join(f"k{i}: 1\n" for i in range(80_000)),
    }  # fmt: skip
    for name, text in sweeps.items():
        start = "" if text.startswith("base") else "base: smoke\n"
        yield f"sweep: {name}", "a.sweep", (start + text).encode(), ["sweep", "FILE", "--dry-run"]


def texts() -> Iterator[Case]:
    """T1 to T13: texts; P1 to P11: prompts."""
    bomb = gzip.compress(b"a" * 10 * MB, 9) * 40
    far = zstandard.ZstdCompressionParameters(window_log=31)
    window = zstandard.ZstdCompressor(compression_params=far).compressobj()
    prepare = ["data", "prepare", "FILE", "--config", "smoke", "--set", "tokenizer.kind=char"]
    files: dict[str, tuple[str, bytes | Callable[[Path], object], list[str]]] = {
        "T1 nothing": ("a.txt", b"", STATS),
        "T1 too short": ("a.txt", b"abc", ["train", "--config", "smoke", "--data", "FILE", "--out", "out"]),
        "T2 UTF-16": ("a.txt", ("ab" * MB).encode("utf-16"), STATS),
        "T2 Latin-1 after 50 MB": ("a.txt", b"a" * 50 * MB + b"\xe9", STATS),
        "T2 surrogates": ("a.txt", b"\xed\xa0\x80" * MB, STATS),
        "T3 a line of 300 MB of JSON": ("a.jsonl", sparse(300 * MB), STATS),
        "T3 deep JSON": ("a.jsonl", b'{"text": ' + b"[" * 20 * MB, STATS),
        "T4 a pipe": ("a.txt", os.mkfifo, STATS),
        "T4 an endless device": ("a.txt", lambda path: path.symlink_to("/dev/zero"), STATS),
        "T4 a circle": ("a.txt", lambda path: path.symlink_to("a.txt"), STATS),
        "T4 nested directories": ("a", _nested, STATS),
        "a bomb of gzip": ("a.txt.gz", bomb, STATS),
        "a bomb of gzip, prepare": ("a.txt.gz", bomb, prepare),
        "a bomb of gzip, JSON": ("a.jsonl.gz", gzip.compress(b'{"text": "' + b"a" * 100 * MB, 9), STATS),
        "a bomb of Zstandard": ("a.txt.zst", zstandard.ZstdCompressor(1).compress(bytes(400 * MB)), STATS),
        "a window of 2 GB": ("a.txt.zst", window.compress(b"ab" * 1000) + window.flush(), STATS),
        "a table that is none": ("a.parquet", b"PAR1" + bytes(10 * MB) + struct.pack("<I", 9 * MB) + b"PAR1", STATS),
        "a bomb of a table": ("a.parquet", _table, STATS),
        "P1 too long": ("p.txt", b"ab" * 50, ["attn-dump", *GOOD[1:], "--prompt-file", "FILE"]),
        "P2 unknown characters": ("p.txt", b"x" * 9 * MB, [*GOOD, "--prompt-file", "FILE"]),
        "P4 11 MB": ("p.txt", b"a" * 11 * MB, [*GOOD, "--prompt-file", "FILE"]),
        "P4 no text": ("p.txt", b"\xff" * 9 * MB, [*GOOD, "--prompt-file", "FILE"]),
        "P4 an endless device": ("p.txt", lambda path: path.symlink_to("/dev/zero"), [*GOOD, "--prompt-file", "FILE"]),
        "P5 temperature": ("a", b"", [*GOOD, "--prompt", "a", "--temperature", "nan"]),
        "P5 top-k": ("a", b"", [*GOOD, "--prompt", "a", "--top-k", "-1"]),
        "P5 num-samples": ("a", b"", [*GOOD, "--prompt", "a", "--num-samples", "9" * 30]),
        "P5 max-new-tokens": ("a", b"", [*GOOD, "--prompt", "a", "--max-new-tokens", "9" * 5000]),
    }
    for name, (file, content, words) in files.items():
        yield name, file, content, words


def _nested(path: Path) -> None:
    for _ in range(300):
        path.mkdir()
        path = path / "a"


def _table(path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({"text": ["a" * MB] * 400})
    memory = io.BytesIO()
    pyarrow.parquet.write_table(table, memory, compression="zstd")
    path.write_bytes(memory.getvalue())


def runs() -> Iterator[Case]:
    """Files of a run directory."""

    def run(name: str, content: bytes | Callable[[Path], object]) -> Callable[[Path], object]:
        def make(path: Path) -> None:
            (path / "checkpoints").mkdir(parents=True)
            (path / "checkpoints" / "best.safetensors").write_bytes(checkpoint())
            place = path / name
            place.write_bytes(content) if isinstance(content, bytes) else content(place)

        return make

    for name, make in {
        "metrics of 2 GB of nothing": run("metrics.jsonl", sparse(2 * 10**9)),
        "metrics of deep JSON": run("metrics.jsonl", b"[" * 5 * MB),
    }.items():
        yield f"run: {name}, report", "run", make, ["report", "FILE", "--json"]
    record = b'{"base": "' + b"x" * 11 * MB + b'"}'
    yield "sweep: a record of 11 MB", "s/sweep.json", record, ["sweep", "good.sweep", "--out", "s"]
    yield "sweep: a deep record", "s/sweep.json", b"[" * 9 * MB, ["sweep", "good.sweep", "--out", "s"]


def cases() -> Iterator[Case]:
    """All."""
    yield from checkpoints()
    yield from directories()
    yield from configs()
    yield from texts()
    yield from runs()
