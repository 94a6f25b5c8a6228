"""Checkpoints and directories as strangers might send them: any header, any metadata, any numbers, digests that match."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from gpt_cli.checkpoints.checkpoint import Checkpoint, save_checkpoint
from gpt_cli.checkpoints.header import OPTIMIZER_PREFIX, Progress
from gpt_cli.checkpoints.verify import BLANK, digest
from gpt_cli.model import GPT
from gpt_cli.text.tokenizers import CharTokenizer
from support.helpers import small_config

# what stands where something else is expected
ODD = [
    None, True, -1, 0, 1, 2, 3, 0.5, 1e308, 2**16, 2**31, 2**63, 10**30, "", "x", "\0", "../../x", "os.system", "\ud800",
    "\x1b]0;x\x07", "今" * 1000, [], {}, [[]], [1, [2]], {"a": {"b": 1}}, {"__class__": "x"}, [0] * 300,
]  # fmt: skip
TEXTS = ["", "{}", "[]", "null", "7", "NaN", "1e999", "[" * 5000, '{"a":1,"a":2}', "{", "9" * 5000, "-" * 9, "\ud800"]


def behind_length(header: bytes) -> bytes:
    """A header as a checkpoint begins with it, whatever it contains."""
    return struct.pack("<Q", len(header)) + header


def places(content: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of plain data, as (holder, key)."""
    pairs = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in list(pairs):
        yield content, key
        yield from places(value)


@dataclass(frozen=True)
class Parts:
    """A checkpoint taken apart: metadata whose JSON is parsed, the entries of its tensors, their bytes."""

    metadata: Mapping[str, Any]
    entries: Mapping[str, Any]
    data: bytes
    raw: Mapping[str, str] = field(default_factory=dict)  # metadata in the place of the above

    def changed(self, **raw: str) -> Parts:
        """The same with other metadata, given as the texts that the header contains."""
        return replace(self, raw={**self.raw, **raw})

    def joined(self) -> bytes:
        """The file, with digests that match what it says, as far as it says anything."""
        written = {key: value if isinstance(value, str) else json.dumps(value) for key, value in self.metadata.items()}
        ends = [end for name, entry in self.entries.items() for end in _ends(name, entry)]
        num_weight_bytes = max(ends, default=0)
        written |= {"digest_weights": BLANK, "digest_rest": digest([self.data[num_weight_bytes:]])}
        written |= self.raw
        # as our writer does it: a run is known by how its checkpoints begin
        text = json.dumps({"__metadata__": written, **self.entries}, separators=(",", ":")).encode()
        header = behind_length(text)
        own = digest([header, self.data[:num_weight_bytes]])
        return header.replace(BLANK.encode(), own.encode(), 1) + self.data


def _ends(name: str, entry: Any) -> list[int]:
    try:
        return [] if name.startswith(OPTIMIZER_PREFIX) else [int(entry["data_offsets"][1])]
    except (KeyError, TypeError, ValueError, IndexError, OverflowError):
        return []


@cache
def intact() -> Parts:
    """A small checkpoint with moments."""
    config, tokenizer = small_config("model.d_model=4", "model.num_blocks=1"), CharTokenizer("ab今")
    weights = GPT(config.model, tokenizer.vocab_size, torch.Generator().manual_seed(0)).state_dict()
    moments = {f"{name}.exp_avg": torch.zeros_like(weight) for name, weight in weights.items()}
    progress = Progress(7, 7, 2.5, 0.5, 1.5, 2.25, 1, 1000, "digest", {"torch": "x"})
    with TemporaryDirectory() as folder:
        save_checkpoint(Path(folder) / "a", Checkpoint(config, tokenizer, progress, weights, moments))
        content = (Path(folder) / "a").read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    entries = json.loads(content[8 : 8 + length])
    metadata = entries.pop("__metadata__")
    for key in ("config", "tokenizer", "progress"):
        metadata[key] = json.loads(metadata[key])
    return Parts(metadata, entries, content[8 + length :])
