"""Checkpoints of strangers end with a result or with one sentence, whatever they contain."""

import base64
import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.fuzzing import inputs
from support.helpers import RunCommand
from support.strangers import ODD, TEXTS, Parts, behind_length, intact, places

from gpt_cli.checkpoints.checkpoint import read_checkpoint
from gpt_cli.checkpoints.header import read_header
from gpt_cli.errors import CheckpointError
from gpt_cli.model.gpt import require_finite

NUMBERS = [float("nan"), float("inf"), 3e38, -3e38, 1e-45]


@st.composite
def _changed(draw: Callable[..., Any]) -> bytes:
    """A checkpoint with one to four changes, most of them where a reader would use what it finds."""
    parts = copy.deepcopy(intact())
    metadata: dict[str, Any] = dict(parts.metadata)
    entries, data, raw = dict(parts.entries), bytearray(parts.data), dict[str, str]()
    for _ in range(draw(st.integers(1, 4))):
        what = draw(st.sampled_from(["value", "value", "text", "remove", "entry", "entry", "name", "number", "bytes"]))
        if what in ("value", "remove"):
            inside = draw(st.sampled_from(["config", "tokenizer", "progress"]))
            found = list(places(metadata[inside])) or [(metadata, inside)]
            holder, key = draw(st.sampled_from(found))
            if what == "value":
                holder[key] = copy.deepcopy(draw(st.sampled_from(ODD)))
            else:
                holder.pop(key)
                metadata.setdefault(inside, {})
        elif what == "text":
            raw[draw(st.sampled_from(sorted(metadata)))] = draw(st.sampled_from(TEXTS))
        elif what == "entry":
            holder, key = draw(st.sampled_from(list(places(entries))))
            holder[key] = copy.deepcopy(draw(st.sampled_from([*ODD, "F16", "I64", "BOOL"])))
        elif what == "name" and entries:
            name = draw(st.sampled_from(sorted(entries)))
            entries[draw(st.sampled_from(["x", "optimizer.x", "__metadata__x", "\x1b[2J", name]))] = entries.pop(name)
        elif what == "number":
            at = 4 * draw(st.integers(0, len(data) // 4 - 1))
            data[at : at + 4] = torch.tensor([draw(st.sampled_from(NUMBERS))]).numpy().tobytes()
        elif what == "bytes":
            del data[draw(st.integers(0, len(data))) :]
            data += bytes(max(0, 400 - len(data)))
    return Parts(metadata, entries, bytes(data), raw).joined()


@inputs(10_000)
@given(content=_changed())
def test_any_change_ends_with_a_model_or_a_sentence(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "stranger.safetensors"
    path.write_bytes(content)
    began = time.monotonic()
    try:
        header = read_header(path)
        assert header.step >= 0
        assert header.config
        checkpoint = read_checkpoint(path, everything=True)
        with torch.no_grad():
            logits = checkpoint.build_model()(torch.zeros(1, 2, dtype=torch.long))
        require_finite(logits, "logits", "checkpoint")
        said = ""
    except CheckpointError as error:
        said = "".join(error.lines())
    assert len(said) < 2000
    assert said.isprintable() or not said
    assert time.monotonic() - began < 30  # of a hang; a refusal takes milliseconds


WIDE = {f"blocks.{i}.x": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(20_000)}


def with_model(entries: Mapping[str, Any] | None = None, **sizes: Any) -> bytes:
    """The intact checkpoint with other sizes in its config, and perhaps other tensors."""
    parts = copy.deepcopy(intact())
    parts.metadata["config"]["model"] |= sizes
    return replace(parts, entries=entries or parts.entries).joined()


FOUND: dict[str, Callable[[], bytes]] = {
    "a model that no memory holds": lambda: with_model(d_model=65536, num_blocks=1024, num_heads=1024),
    "many heads in as many empty tensors": lambda: with_model(WIDE, d_model=1024, num_heads=1024, num_blocks=8),
    "a step of 5,000 digits": lambda: intact().changed(step="9" * 5000).joined(),
    "a step of 4,000 digits": lambda: intact().changed(step="9" * 4000).joined(),
    "a header of empty lists": lambda: behind_length(b'{"__metadata__":{},"a":[' + b"[]," * 15_000_000 + b"[]]}"),
    "overlapping tensors": lambda: _with_shape(4, names=[*intact().entries]),
    "a negative shape": lambda: _with_shape(-1, -4),
    "a shape beyond all numbers": lambda: _with_shape(2**40, 2**40),
    "a lookahead": lambda: _with_pattern(r"(?=a)"),
    "no pattern": lambda: _with_pattern(""),
}


def _with_shape(*shape: int, names: Sequence[str] = ("a",)) -> bytes:
    entry = {"dtype": "F32", "shape": [*shape], "data_offsets": [0, 16]}
    return replace(intact(), entries=dict.fromkeys(names, entry)).joined()


def _with_pattern(pattern: str) -> bytes:
    tokens = " ".join(base64.b64encode(bytes([byte])).decode() for byte in range(256))
    parts = copy.deepcopy(intact())
    stored = {"kind": "bpe", "pattern": pattern, "tokens": tokens}
    return replace(parts, metadata={**parts.metadata, "tokenizer": stored}).joined()


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_ends_with_exit_code_4(name: str, here: Path, run: RunCommand) -> None:
    path = here / "stranger.safetensors"
    path.write_bytes(FOUND[name]())
    for command in (["sample", "--prompt", "a", "--max-new-tokens", "1", "--run"], ["export", "--out", "x", "--run"]):
        outcome = run(*command, str(path), exits=4)
        assert outcome.err.count("error: ") == 1
        assert outcome.err.isprintable() or outcome.err.replace("\n", "").isprintable()
