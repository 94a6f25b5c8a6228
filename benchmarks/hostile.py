"""Files and flags that `gpt` refuses, made to be costly: what `python -m benchmarks.refusals` times."""

from __future__ import annotations

import copy
import gzip
import io
import json
import os
import pickle
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import zstandard

from gpt_cli.checkpoints.checkpoint import Checkpoint, Progress, save_checkpoint
from gpt_cli.checkpoints.verify import BLANK, digest
from gpt_cli.config.load import read_config, write_config
from gpt_cli.model import GPT
from gpt_cli.text.tokenizers import CharTokenizer, byte_letters

MB = 1_000_000
Content = bytes | Callable[[Path], object]  # of a file, or what makes it
Case = tuple[str, str, Content, list[str]]  # name, file, content, words of the command
CHECK, STATS, INFO = ["config", "check", "FILE"], ["data", "stats", "FILE"], ["info", "FILE"]
GOOD = ["--run", "good.safetensors"]


@cache
def _parts() -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """Return metadata, entries of tensors and their bytes of a small intact checkpoint."""
    config = read_config("smoke", ["model.d_model=4", "model.num_blocks=1", "tokenizer.kind=char"])
    weights = GPT(config.model, 4).state_dict()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a")
        progress = Progress(7, 7, 2.5, 0.5, 1.5, 2.25, 1, 1000, "digest", {"torch": "x"})
        save_checkpoint(path, Checkpoint(config, CharTokenizer("ab今"), progress, weights, {}))
        content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    entries = json.loads(content[8 : 8 + length])
    metadata = entries.pop("__metadata__")
    metadata |= {key: json.loads(metadata[key]) for key in ("config", "tokenizer", "progress")}
    return metadata, entries, content[8 + length :]


def checkpoint(change: Callable[[dict[str, Any], dict[str, Any]], object] = lambda *_: None) -> bytes:
    """Return the small checkpoint with changed metadata and entries, and digests that match."""
    metadata, entries, tensors = copy.deepcopy(_parts())
    change(metadata, entries)
    strings = {key: value if isinstance(value, str) else json.dumps(value) for key, value in metadata.items()}
    strings |= {"digest_weights": BLANK, "digest_rest": digest([b""])}
    header = _header(json.dumps({"__metadata__": strings, **entries}).encode())
    return header.replace(BLANK.encode(), digest([header, tensors]).encode(), 1) + tensors


def _header(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def _config(**sizes: Any) -> bytes:
    return checkpoint(lambda metadata, _: metadata["config"]["model"].update(sizes))


def _tokenizer(**stored: Any) -> bytes:
    return checkpoint(lambda metadata, _: metadata.update(tokenizer=stored))


def _entry(shape: list[Any]) -> bytes:
    return checkpoint(lambda _, entries: entries["final_norm.weight"].update(shape=shape))


def _sparse(size: int, start: bytes = b"") -> Callable[[Path], object]:
    def make(path: Path) -> None:
        path.write_bytes(start)
        os.truncate(path, size)

    return make


def _zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps([]))
        archive.writestr("archive/data/0", bytes(500 * MB))


def checkpoints() -> Iterator[Case]:
    """Headers, tokenizers and sizes of a checkpoint."""
    empty = {f"blocks.{i}.x": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(100_000)}
    for name, content in {
        "huge shape": _entry([2**62]),
        "numbers of 5,000 digits": _entry(["N"]).replace(b'"N"', b"9" * 5000),
        "a hundred thousand tensors": checkpoint(lambda _, entries: entries.update(empty)),
        "header of deep JSON": _header(b"[" * 4_000_000),
        "header of empty lists": _header(b'{"a":[' + b"[]," * 2_000_000 + b"[]]}"),
        "header of small objects": _header(b'{"a":[' + b'{"a":0},' * 440_000 + b"0]}"),
        "header of one string": _header(b'{"__metadata__":{"format":"' + b"x" * 60 * MB + b'"}}'),
        "header longer than any file": struct.pack("<Q", 2**63) + checkpoint()[8:],
        "2 GB of nothing": _sparse(2 * 10**9, struct.pack("<Q", 60 * MB)),
        "zip bomb of 500 MB": _zip,
        "model of 10 MB": checkpoint(lambda metadata, _: metadata["config"].update(model="x" * 10 * MB)),
        "vocabulary of 10 million characters": _tokenizer(kind="char", characters="x" * 10 * MB),
        "a million characters": _tokenizer(kind="char", characters="".join(map(chr, range(0xE000, 0x10FFFF)))),
        "tokens of 10 MB": _tokenizer(kind="bpe", pattern="", tokens="QQ== " * 2 * MB),
        "pattern of 50 MB": _tokenizer(kind="bpe", pattern="a|" * 25 * MB, tokens=""),
        "a billion blocks": _config(num_blocks=10**9),
        "many blocks": _config(num_blocks=1024),
        "width of a million": _config(d_model=2**20),
        "context of a billion": _config(context_length=2**30),
    }.items():
        yield f"checkpoint: {name}", "a.safetensors", content, INFO
    sample = ["sample", "--run", "FILE", "--prompt", "a"]
    yield "checkpoint: a billion blocks, sample", "a.safetensors", _config(num_blocks=10**9), sample


def directories() -> Iterator[Case]:
    """Model directories of transformers."""
    letters = {letter: i for i, letter in enumerate(byte_letters())}
    step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    steps = {"pre_tokenizer": step, "decoder": step}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    end = {"content": "<|endoftext|>", "special": True, **flags}
    wte = safetensors.numpy.save({"wte.weight": np.zeros((257, 4), np.float32)})

    def directory(
        longer: Iterable[str] = (),
        merges: Sequence[Any] = (),
        weights: bytes = wte,
        index: dict[str, str] | None = None,
        **sizes: int,
    ) -> Callable[[Path], object]:
        vocabulary = letters | {token: 256 + i for i, token in enumerate(longer)}
        model = {"type": "BPE", "vocab": vocabulary, "merges": merges}
        tokenizer = {"model": model, "added_tokens": [{"id": len(vocabulary), **end}], **steps}
        config = {"model_type": "gpt2", "n_positions": 4, "n_embd": 4, "n_layer": 1, "n_head": 1} | sizes

        def make(path: Path) -> None:
            path.mkdir()
            (path / "config.json").write_text(json.dumps(config))
            (path / "tokenizer.json").write_text(json.dumps(tokenizer))
            if index is None:
                (path / "model.safetensors").write_bytes(weights)
            else:
                (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))

        return make

    many = [f"{chr(97 + i % 26)}{i}" for i in range(200_000)]
    lengths = range(2, 6_000)
    for name, make in {
        "one tensor": directory(),
        "a billion blocks": directory(n_layer=10**9),
        "width of a million": directory(n_embd=2**20),
        "merges of long tokens": directory(
            {"a" * n: 300 + n for n in lengths}, [["a" * (n - 1), "a"] for n in lengths]
        ),
        "two hundred thousand tokens": directory(many),
        "a hundred thousand merges of nothing": directory(merges=[["a", "b"]] * 100_000),
        "ten thousand files": directory(index={f"a{i}": f"{i}.safetensors" for i in range(10_000)}),
        "a header of 4 MB": directory(weights=_header(b'{"a":"' + b"x" * 4_190_000 + b'"}')),
        "a header of small objects": directory(weights=_header(b'{"a":[' + b'{"a":0},' * 440_000 + b"0]}")),
    }.items():
        yield f"directory: {name}", "hf", make, ["import", "FILE", "--out", "out"]


def configs() -> Iterator[Case]:
    """Configs, command lines, and files and records of sweeps."""
    aliases = "a: &a [x]\n" + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [{f'*{chr(97 + i)},' * 9}]\n" for i in range(9))
    texts: dict[str, Content] = {
        "aliases": aliases.encode(),
        "braces": b"a:" + b" {a:" * 200_000,
        "brackets": b"a: " + b"[" * 900_000,
        "dashes": b"- " * 450_000,
        "indented": b"a:\n" + b"".join(b" " * i + b"a:\n" for i in range(1, 1400)),
        "no text": os.urandom(900_000),
        "Latin-1": "# é\n".encode("latin-1") * 200_000,
        "duplicate keys": b"model:\n" + b"  d_model: 4\n" * 70_000,
        "900,000 digits": b"train:\n  seed: " + b"9" * 900_000,
        "60,000 unknown sections": "".join(f"k{i}:\n  a: 1\n" for i in range(60_000)).encode(),
        "50,000 unknown keys": b"model:\n" + "".join(f"  d_modle{i}: 1\n" for i in range(50_000)).encode(),
        "a key of 900,000 letters": b"model:\n  " + b"x" * 900_000 + b": 1\n",
        "a list for a number": b"model:\n  d_model: [" + b"1, " * 300_000 + b"1]\n",
        "1 GB": _sparse(10**9, b"model:\n"),
    }
    for name, text in texts.items():
        yield f"config: {name}", "a.yaml", text, CHECK
    show, digits = ["config", "show", "tiny"], ["--set", "model.num_heads=" + "9" * 100_000]
    yield "an argument of 100,000 letters", "a", b"", [*show, "--set", "x" * 100_000]
    yield "fifteen long arguments", "a", b"", [*show, *digits * 15]
    three = ("train.seed", "train.max_steps", "train.warmup_steps")
    thousand = ",".join(map(str, range(1001)))
    for name, text in {
        "a thousand and one": f"grid: {{train.seed: [{thousand}]}}",
        "a billion": "grid:\n" + "".join(f"  {key}: [{thousand[2:-5]}]\n" for key in three),
        "50,000 unknown keys": "grid:\n" + "".join(f"  train.x{i}: [1]\n" for i in range(50_000)),
        "80,000 unknown sections": "".join(f"k{i}: 1\n" for i in range(80_000)),
    }.items():
        yield f"sweep: {name}", "a.sweep", f"base: smoke\n{text}".encode(), ["sweep", "FILE", "--dry-run"]
    for name, record in {"11 MB": b'{"base": "' + b"x" * 11 * MB + b'"}', "deep": b"[" * 9 * MB}.items():
        yield f"sweep: a record, {name}", "s/sweep.json", record, ["sweep", "good.sweep", "--out", "s"]


def texts() -> Iterator[Case]:
    """Texts, prompts, and metrics of runs."""
    bomb = gzip.compress(b"a" * 10 * MB, 9) * 40
    far = zstandard.ZstdCompressionParameters(window_log=31)
    window = zstandard.ZstdCompressor(compression_params=far).compressobj()
    prepare = ["data", "prepare", "FILE", "--config", "smoke", "--set", "tokenizer.kind=char"]
    prompt, number = ["sample", *GOOD, "--prompt-file", "FILE"], ["sample", *GOOD, "--prompt", "a", "--max-new-tokens"]
    files: dict[str, tuple[str, Content, list[str]]] = {
        "UTF-16": ("a.txt", ("ab" * MB).encode("utf-16"), STATS),
        "Latin-1 after 50 MB": ("a.txt", b"a" * 50 * MB + b"\xe9", STATS),
        "surrogates": ("a.txt", b"\xed\xa0\x80" * MB, STATS),
        "a line of 300 MB of JSON": ("a.jsonl", _sparse(300 * MB), STATS),
        "deep JSON": ("a.jsonl", b'{"text": ' + b"[" * 20 * MB, STATS),
        "a pipe": ("a.txt", os.mkfifo, STATS),
        "an endless device": ("a.txt", lambda path: path.symlink_to("/dev/zero"), STATS),
        "nested directories": ("a", _nested, STATS),
        "a bomb of gzip": ("a.txt.gz", bomb, STATS),
        "a bomb of gzip, prepare": ("a.txt.gz", bomb, prepare),
        "a bomb of gzip, JSON": ("a.jsonl.gz", gzip.compress(b'{"text": "' + b"a" * 100 * MB, 9), STATS),
        "a bomb of Zstandard": ("a.txt.zst", zstandard.ZstdCompressor(1).compress(bytes(400 * MB)), STATS),
        "a window of 2 GB": ("a.txt.zst", window.compress(b"ab" * 1000) + window.flush(), STATS),
        "no table": ("a.parquet", b"PAR1" + bytes(10 * MB) + struct.pack("<I", 9 * MB) + b"PAR1", STATS),
        "a bomb of a table": ("a.parquet", _table, STATS),
        "prompt: unknown characters": ("p.txt", b"x" * 9 * MB, prompt),
        "prompt: 11 MB": ("p.txt", b"a" * 11 * MB, prompt),
        "prompt: no text": ("p.txt", b"\xff" * 9 * MB, prompt),
        "prompt: an endless device": ("p.txt", lambda path: path.symlink_to("/dev/zero"), prompt),
        "a number of 5,000 digits": ("a", b"", [*number, "9" * 5000]),
        "metrics of 2 GB of nothing": ("run", _run_with(_sparse(2 * 10**9)), ["report", "FILE", "--json"]),
        "metrics of deep JSON": ("run", _run_with(lambda path: path.write_bytes(b"[" * 5 * MB)), ["report", "FILE"]),
    }
    for name, (file, content, words) in files.items():
        yield f"text: {name}", file, content, words


def _nested(path: Path) -> None:
    for _ in range(300):
        path.mkdir()
        path = path / "a"


def _table(path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    memory = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"text": ["a" * MB] * 400}), memory, compression="zstd")
    path.write_bytes(memory.getvalue())


def _run_with(metrics: Callable[[Path], object]) -> Callable[[Path], object]:
    def make(path: Path) -> None:
        (path / "checkpoints").mkdir(parents=True)
        (path / "config.yaml").write_text(write_config(read_config("smoke")))
        metrics(path / "metrics.jsonl")

    return make


def cases() -> Iterator[Case]:
    """Yield every case."""
    for kind in (checkpoints, directories, configs, texts):
        yield from kind()
