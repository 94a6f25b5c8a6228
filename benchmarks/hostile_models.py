"""Checkpoints and model directories that `gpt` refuses, made to be costly: a part of `benchmarks.hostile`."""

from __future__ import annotations

import copy
import json
import os
import pickle
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import torch

from gpt_cli.checkpoints.checkpoint import Checkpoint, Progress, save_checkpoint
from gpt_cli.checkpoints.verify import BLANK, digest
from gpt_cli.config.load import read_config
from gpt_cli.model import GPT
from gpt_cli.text.tokenizer import byte_letters
from gpt_cli.text.tokenizers import CharTokenizer

MB = 1_000_000
# a name, the file to make, its content or what makes it, and the words of the command
Case = tuple[str, str, "bytes | Callable[[Path], object]", list[str]]
INFO, SAMPLE = ["info", "FILE"], ["sample", "--run", "FILE", "--prompt", "ab"]
IMPORT = ["import", "FILE", "--out", "out"]


@cache
def _parts() -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """Metadata, entries of tensors and their bytes of a small intact checkpoint."""
    config = read_config("smoke", ["model.d_model=4", "model.num_blocks=1", "tokenizer.kind=char"])
    model = GPT(config.model, 4, torch.Generator().manual_seed(0))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a")
        progress = Progress(7, 7, 2.5, 0.5, 1.5, 2.25, 1, 1000, "digest", {"torch": "x"})
        save_checkpoint(path, Checkpoint(config, CharTokenizer("ab今"), progress, model.state_dict(), {}))
        content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    entries = json.loads(content[8 : 8 + length])
    metadata = entries.pop("__metadata__")
    for key in ("config", "tokenizer", "progress"):
        metadata[key] = json.loads(metadata[key])
    return metadata, entries, content[8 + length :]


def checkpoint(
    change: Callable[[dict[str, Any], dict[str, Any]], object] = lambda *_: None, data: bytes = b""
) -> bytes:
    """The small checkpoint with changed metadata and entries, and digests that match."""
    metadata, entries, own = copy.deepcopy(_parts())
    change(metadata, entries)
    own = data or own
    written = {key: value if isinstance(value, str) else json.dumps(value) for key, value in metadata.items()}
    written |= {"digest_weights": BLANK, "digest_rest": digest([b""])}
    header = _header(json.dumps({"__metadata__": written, **entries}).encode())
    return header.replace(BLANK.encode(), digest([header, own]).encode(), 1) + own


def _header(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def _set(*place: str, to: Any) -> bytes:
    """The checkpoint with another value in its metadata."""

    def change(metadata: dict[str, Any], _: object) -> None:
        holder: Any = metadata
        for key in place[:-1]:
            holder = holder[key]
        holder[place[-1]] = to

    return checkpoint(change)


def _tokenizer(**stored: Any) -> bytes:
    return checkpoint(lambda metadata, _: metadata.update(tokenizer=stored))


def _entry(**changes: Any) -> bytes:
    return checkpoint(lambda _, entries: entries["final_norm.weight"].update(changes))


class _Runs:
    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("touch canary",)


def _zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(_Runs()))
        archive.writestr("archive/data/0", bytes(500 * MB))


def sparse(size: int, start: bytes = b"") -> Callable[[Path], object]:
    def make(path: Path) -> None:
        path.write_bytes(start)
        os.truncate(path, size)

    return make


def checkpoints() -> Iterator[Case]:
    """C4 to C8: headers, tensors, pickles, strings and sizes of a checkpoint."""
    none = checkpoint()
    length = len(none)
    files: dict[str, bytes | Callable[[Path], object]] = {
        "C4 swapped shape": _entry(shape=[2, 2]),
        "C4 unknown dtype": _entry(dtype="F4"),
        "C4 overlapping tensors": _entry(data_offsets=[0, 16]),
        "C4 huge shape": _entry(shape=[2**62]),
        "C4 negative shape": _entry(shape=[-4]),
        "C4 missing tensor": checkpoint(lambda _, entries: entries.pop("final_norm.weight")),
        "C4 a hundred thousand tensors": checkpoint(
            lambda _, entries: entries.update(
                {f"blocks.{i}.x": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(100_000)}
            )
        ),
        "C4 duplicate names": none.replace(b'"final_norm.weight"', b'"final_norm.bias"  ', 1),
        "C4 numbers of 5,000 digits": _entry(shape=["N"]).replace(b'"N"', b"9" * 5000),
        "C4 NaN in JSON": _set("progress", "loss", to=float("nan")),
        "C4 header of deep JSON": _header(b"[" * 4_000_000),
        "C4 header of empty lists": _header(b'{"a":[' + b"[]," * 2_000_000 + b"[]]}"),
        "C4 header of small objects": _header(b'{"a":[' + b'{"a":0},' * 440_000 + b"0]}"),
        "C4 header of one string": _header(b'{"__metadata__":{"format":"' + b"x" * 60 * MB + b'"}}'),
        "C4 header longer than any file": struct.pack("<Q", 2**63) + none[8:],
        "C4 2 GB of nothing": sparse(2 * 10**9, struct.pack("<Q", 60 * MB)),
        "C4 cut in the middle": none[: length // 2],
        "C5 pickle": pickle.dumps(_Runs()),
        "C5 pickle of PyTorch": lambda path: torch.save({"a": torch.zeros(3)}, path),
        "C5 legacy pickle of PyTorch": lambda path: torch.save([1], path, _use_new_zipfile_serialization=False),
        "C5 array of objects": lambda path: np.save(path.open("wb"), np.array([_Runs()], object), allow_pickle=True),
        "C6 zip bomb of 500 MB": _zip,
        "C7 unknown key of a config": _set("config", "_target_", to="os.system"),
        "C7 model of 10 MB": _set("config", "model", to="x" * 10 * MB),
        "C7 vocabulary of 10 million characters": _tokenizer(kind="char", characters="x" * 10 * MB),
        "C7 a million characters": _tokenizer(kind="char", characters="".join(map(chr, range(0xE000, 0x10FFFF)))),
        "C7 tokens of 10 MB": _tokenizer(kind="bpe", pattern="", tokens="QQ== " * 2 * MB),
        "C7 pattern with a lookahead": _tokenizer(kind="bpe", pattern=r"(?=a)(a+)+\1", tokens="QQ=="),
        "C7 pattern of 50 MB": _tokenizer(kind="bpe", pattern="a|" * 25 * MB, tokens=""),
        "C8 a billion blocks": _set("config", "model", "num_blocks", to=10**9),
        "C8 many blocks": _set("config", "model", "num_blocks", to=1024),
        "C8 width of a million": _set("config", "model", "d_model", to=2**20),
        "C8 context of a billion": _set("config", "model", "context_length", to=2**30),
        "C9 a format to come": _set("format_version", to="99"),
        "C9 a format that never was": _set("format_version", to="-1"),
        "C9 a negative step": _set("progress", "step", to=-1),
        "C13 weights that are NaN": checkpoint(data=b"\xff" * len(_parts()[2])),
    }
    for name, content in files.items():
        # what is refused while a header is read is refused alike by all commands
        yield f"{name}, {INFO[0]}", "a.safetensors", content, INFO
        if name.startswith(("C8", "C13")):
            yield f"{name}, {SAMPLE[0]}", "a.safetensors", content, SAMPLE


def directories() -> Iterator[Case]:
    """Model directories of transformers."""
    letters = {letter: i for i, letter in enumerate(byte_letters())}
    step = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    end = [{"id": 256, "content": "<|endoftext|>"}]

    def tokenizer(vocabulary: dict[str, int], merges: list[Any]) -> dict[str, Any]:
        model = {"type": "BPE", "vocab": vocabulary, "merges": merges}
        return {"model": model, "added_tokens": end, "pre_tokenizer": step}

    def directory(config: dict[str, Any], tokens: dict[str, Any], **files: Any) -> Callable[[Path], object]:
        def make(path: Path) -> None:
            path.mkdir()
            sizes = {"model_type": "gpt2", "n_positions": 4, "n_embd": 4, "n_layer": 1, "n_head": 1}
            weights = safetensors.numpy.save({"wte.weight": np.zeros((257, 4), np.float32)})
            (path / "config.json").write_text(json.dumps(sizes | config))
            (path / "tokenizer.json").write_text(json.dumps(tokens))
            (path / "model.safetensors").write_bytes(files.get("weights", weights))
            if "index" in files:
                (path / "model.safetensors").unlink()
                (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files["index"]}))

        return make

    plain = tokenizer(letters, [])
    long = {"a" * n: 300 + n for n in range(2, 6_000)}
    many = {f"{chr(97 + i % 26)}{i}": 300 + i for i in range(200_000)}
    for name, make in {
        "no tensor but one": directory({}, plain),
        "a billion blocks": directory({"n_layer": 10**9}, plain),
        "width of a million": directory({"n_embd": 2**20}, plain),
        "code of its own": directory({"auto_map": {"AutoModel": "x.Y"}, "model_type": "x"}, plain),
        "merges of long tokens": directory(
            {}, tokenizer(letters | long, [["a" * (n - 1), "a"] for n in range(2, 6_000)])
        ),
        "two hundred thousand tokens": directory({}, tokenizer(letters | many, [])),
        "a hundred thousand merges of nothing": directory({}, tokenizer(letters, [["a", "b"]] * 100_000)),
        "ten thousand files": directory({}, plain, index={f"a{i}": f"{i}.safetensors" for i in range(10_000)}),
        "files elsewhere": directory({}, plain, index={"wte.weight": "../../etc/passwd"}),
        "a header of 4 MB": directory({}, plain, weights=_header(b'{"a":"' + b"x" * 4_190_000 + b'"}')),
        "a header of small objects": directory({}, plain, weights=_header(b'{"a":[' + b'{"a":0},' * 440_000 + b"0]}")),
    }.items():
        yield f"directory: {name}", "hf", make, IMPORT
