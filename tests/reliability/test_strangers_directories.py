"""Model directories of strangers end with a model or with one sentence, whatever their files contain."""

import copy
import json
import struct
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.exchange import sharp_checkpoint
from support.fuzzing import inputs, require_sentence
from support.helpers import RunCommand
from support.strangers import ODD, TEXTS, behind_length, places

from gpt_cli.errors import CheckpointError, DataError
from gpt_cli.tools.exchange.export_hf import write_for_transformers
from gpt_cli.tools.exchange.import_hf import read_foreign

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
HEADER = "header"  # of WEIGHTS, taken apart
NUMBERS = [float("nan"), float("inf"), 3e38, 1e-45]
SMALL = ["model.context_length=4", "model.d_model=4", "model.num_heads=2", "model.num_blocks=1"]


@cache
def intact(kind: str) -> tuple[dict[str, Any], bytes]:
    """The files of a small model, parsed, and the bytes of its tensors: ours, GPT-2, in parts, or with merges."""
    settings = ["model.qkv_bias=true", "model.activation=gelu_tanh"]
    with TemporaryDirectory() as folder:
        write_for_transformers(Path(folder) / "a", sharp_checkpoint(*SMALL, *settings))
        files = {path.name: path.read_bytes() for path in (Path(folder) / "a").iterdir()}
    content = files.pop(WEIGHTS)
    (length,) = struct.unpack("<Q", content[:8])
    parsed: dict[str, Any] = {name: json.loads(text) for name, text in files.items() if name.endswith(".json")}
    parsed[HEADER] = json.loads(content[8 : 8 + length])
    if kind != "ours":
        del parsed["config.json"]["gpt_cli"]
    if kind == "parts":
        parsed[INDEX] = {"weight_map": {name: "a.safetensors" for name in parsed[HEADER] if name != "__metadata__"}}
    if kind == "merges":
        tokenizer = parsed.pop("tokenizer.json")
        parsed["vocab.json"] = tokenizer["model"]["vocab"]
        parsed["added_tokens.json"] = {"<|endoftext|>": 256}
        parsed["merges.txt"] = "#version: 0.2\n"
    return parsed, content[8 + length :]


@st.composite
def _changed(draw: Callable[..., Any]) -> dict[str, bytes]:
    """The files of a directory with one to four changes."""
    files, numbers = copy.deepcopy(intact(draw(st.sampled_from(["ours", "gpt2", "parts", "merges"]))))
    data, raw = bytearray(numbers), dict[str, bytes]()
    for _ in range(draw(st.integers(1, 4))):
        name = draw(st.sampled_from(sorted(files)))
        what = draw(st.sampled_from(["value", "value", "value", "remove", "name", "text", "file", "number", "bytes"]))
        found = list(places(files[name])) or [(files, name)]
        holder, key = draw(st.sampled_from(found))
        if what == "value":
            holder[key] = copy.deepcopy(draw(st.sampled_from([*ODD, "F16", "BF16", "BOOL", "char", "byte"])))
        elif what == "remove":
            holder.pop(key)
        elif what == "name" and isinstance(holder, dict) and holder is not files:
            holder[draw(st.sampled_from(["x", "__metadata__", "transformer.x", "\x1b[2J"]))] = holder.pop(key)
        elif what == "text":
            raw[name] = draw(st.sampled_from(TEXTS)).encode("utf-8", "surrogatepass")
        elif what == "file":
            raw[name] = draw(st.binary(max_size=20))
        elif what == "number":
            at = 4 * draw(st.integers(0, len(data) // 4 - 1))
            data[at : at + 4] = np.float32(draw(st.sampled_from(NUMBERS))).tobytes()
        elif what == "bytes":
            del data[draw(st.integers(0, len(data))) :]
            data += bytes(max(0, 40 - len(data)))
        if not files:
            break
    return joined(files, bytes(data), raw)


def _bytes(content: Any) -> bytes:
    text = content if isinstance(content, str) else json.dumps(content)
    return text.encode("utf-8", "surrogatepass")


def joined(files: dict[str, Any], data: bytes, raw: dict[str, bytes]) -> dict[str, bytes]:
    """The contents of files; `raw` are in the place of others."""
    written = {name: _bytes(content) for name, content in files.items()}
    written |= raw
    header = written.pop(HEADER, b"{}")
    weights = "a.safetensors" if INDEX in written else WEIGHTS
    return written | {weights: behind_length(header) + data}


def write(folder: Path, files: dict[str, bytes]) -> None:
    """Put these files in the place of those that are there."""
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)


def use(folder: Path) -> None:
    """Read all of a directory, as `gpt import` does."""
    foreign = read_foreign(folder)
    for name in foreign.weights.places:
        assert np.isfinite(foreign.weights[name]).all()
    ids = foreign.tokenizer.encode("ab")
    assert foreign.tokenizer.decode(ids) == "ab"
    assert max(ids) < foreign.tokenizer.vocab_size


@pytest.mark.parametrize("kind", ["ours", "gpt2", "parts", "merges"])
def test_the_intact_directory_is_read(kind: str, tmp_path: Path) -> None:
    files, data = copy.deepcopy(intact(kind))
    write(tmp_path / "a", joined(files, data, {}))
    use(tmp_path / "a")


@inputs(3000)
@given(files=_changed())
def test_any_change_ends_with_a_model_or_a_sentence(files: dict[str, bytes], tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.getbasetemp() / "foreign"
    write(folder, files)
    began = time.monotonic()
    try:
        use(folder)
    except (CheckpointError, DataError) as error:  # of the text that its vocabulary lacks
        require_sentence(error, 3 if isinstance(error, DataError) else 4)
    assert time.monotonic() - began < 30  # of a hang; a refusal takes milliseconds


@pytest.mark.parametrize("sizes", [{"n_layer": 10**30}, {"n_embd": 2**62}, {"n_layer": 10**30, "n_embd": 2**62}])
def test_sizes_beyond_all_numbers_end_with_exit_code_4(sizes: dict[str, int], here: Path, run: RunCommand) -> None:
    files, data = copy.deepcopy(intact("parts"))
    files["config.json"].update(sizes)
    write(here / "a", joined(files, data, {}))
    assert run("import", "a", "--out", "b", exits=4).err.count("error: ") >= 1
    assert not Path("b").exists()
