"""Read a model directory of transformers: config.json, and tensors of safetensors files. Needs no torch.

All lengths that a file declares are checked against its size before memory is allocated for them; nothing is ever
unpickled, and an index may name only files of its own directory.
"""

import contextlib
import math
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpt_cli.checkpoints.run_paths import RunFiles
from gpt_cli.common.file_signatures import is_checkpoint
from gpt_cli.common.limits import FOREIGN_CONFIG_BYTES, FOREIGN_FILES, FOREIGN_HEADER_BYTES
from gpt_cli.common.mistyped import nearest
from gpt_cli.common.safetensors_header import MALFORMED, parse_header, read_header_bytes, require_in_place
from gpt_cli.common.safetensors_numbers import READABLE, are_finite, widened
from gpt_cli.common.strict_json import plainly, strict_json
from gpt_cli.common.untrusted_files import read_bytes, reading, require_reachable
from gpt_cli.errors import CheckpointError, shown, visible

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
ALL = slice(None)  # rows
IN_BLOCK = 32  # numbers of Q8_0, a type of GGUF, that share a scale
BLOCK = np.dtype([("scale", READABLE["F16"]), ("numbers", "i1", IN_BLOCK)])


@dataclass(frozen=True)
class HFTensor:
    """Position of a tensor, `start` bytes into the file `path`, and its dtype and shape."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    start: int


@dataclass(frozen=True)
class Directory:
    """A transformers model directory: its config, and the position of each tensor by name; no tensor is read yet."""

    path: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, HFTensor]

    @property
    def where(self) -> str:
        """The directory's path, as error messages show it."""
        return shown(self.path)

    def read(self, name: str, rows: slice = ALL) -> np.ndarray:
        """Return `rows` of a tensor in float32; raise CheckpointError for NaN or inf."""
        return widened(self.read_stored(name, rows), self.tensors[name].dtype)

    def read_stored(self, name: str, rows: slice = ALL) -> np.ndarray:
        """Return `rows` of a tensor in its stored dtype (bfloat16 as uint16); raise CheckpointError for NaN or inf."""
        return read_numbers(self.tensors[name], name, rows)


def read_numbers(stored: HFTensor, name: str, rows: slice = ALL) -> np.ndarray:
    """Return `rows` of a tensor, bfloat16 as uint16 and Q8_0 as float32; raise CheckpointError for NaN or infinity."""
    first, last, _ = rows.indices(stored.shape[0])
    shape = (last - first, *stored.shape[1:])
    skipped, count = first * math.prod(shape[1:]), math.prod(shape)
    is_blocks = stored.dtype == "Q8_0"
    # `rows` of a vector may begin or end within a block
    per_item, dtype = (IN_BLOCK, BLOCK) if is_blocks else (1, READABLE[stored.dtype])
    before = skipped % per_item
    num_items = -(-(before + count) // per_item)
    with reading(stored.path, CheckpointError) as file:
        file.seek(stored.start + skipped // per_item * dtype.itemsize)
        items = np.fromfile(file, dtype, num_items)
    if items.size != num_items:
        raise CheckpointError(shown(stored.path), "this file changed while gpt read it")
    if not (are_finite(items["scale"].copy(), "F16") if is_blocks else are_finite(items, stored.dtype)):
        raise CheckpointError(shown(stored.path), f"{shown(name)} contains numbers that are not finite")
    if is_blocks:
        items = np.multiply(items["numbers"], items["scale"][:, None], dtype=np.float32).reshape(-1)
    return items[before : before + count].reshape(shape)


def read_directory(path: Path) -> Directory:
    """Return a model directory: its config, and the tensors that the index and the headers of its files list.

    Raises CheckpointError for a directory that is missing, damaged, or has its weights in another format.
    """
    require_model(path)
    config = read_json(path / "config.json", "the config of a model", FOREIGN_CONFIG_BYTES)
    if (path / WEIGHTS).exists():
        tensors = dict(_tensors(path / WEIGHTS))
    elif (path / INDEX).exists():
        tensors = dict(_of_shards(path))
    else:
        raise _no_weights(path)
    return Directory(path, config, tensors)


def require_model(path: Path) -> None:
    """Raise CheckpointError unless `path` is a model directory; the hint suggests the path that the user may mean."""
    if not os.path.isdir(path):  # false, not an error, for a name that is too long
        require_reachable(path)
        if os.path.isfile(path):
            hint = f"gpt sample --run {shlex.quote(str(path))}" if is_checkpoint(path) else None
            raise CheckpointError(shown(path), "this is a file, but a model of transformers is a directory", hint=hint)
        is_file = path.suffix == ".gguf"
        models = map(str, path.parent.glob("*.gguf")) if is_file else _models(path.parent)
        near = nearest(path.name, map(os.path.basename, models))
        hint = f"did you mean {shlex.quote(visible(path.with_name(near)))}?" if near else _download(path)
        raise CheckpointError(shown(path), f"there is no such {'file' if is_file else 'directory'}", hint=hint)
    if (path / "config.json").exists():
        return
    if RunFiles(path).exists():
        hint = f"gpt sample --run {shlex.quote(str(path))}"
        raise CheckpointError(shown(path), "this is a run already, so there is nothing to import", hint=hint)
    hint = None
    if below := _models(path):
        name = below[0].rstrip("0123456789")
        are_steps = len(below) > 1 and all(re.fullmatch(rf"{re.escape(name)}\d+", one) for one in below)
        hint = f"gpt import {shlex.quote(name)}* --steps" if are_steps else f"gpt import {shlex.quote(below[0])}"
    raise CheckpointError(shown(path), "it has no config.json, so it is not a model of transformers", hint=hint)


def _models(folder: Path) -> list[str]:
    """Return the paths of the model directories in a folder, sorted; an empty list if the folder cannot be read."""
    with contextlib.suppress(OSError):
        return sorted(visible(directory) for directory in folder.iterdir() if os.path.isfile(directory / "config.json"))
    return []


def _download(path: Path) -> str | None:
    """Return a hint to download `path` from the Hugging Face hub; None if it does not look like a name on the hub."""
    if path.suffix == ".gguf":
        file = shlex.quote(visible(path))
        return f"to fetch it: hf download OWNER/NAME {file} --local-dir ." if path.parent == Path(".") else None
    owner = "openai-community" if re.fullmatch(r"gpt2(-medium|-large|-xl)?", str(path)) else "OWNER"
    name = f"{owner}/{path}" if path.parent == Path(".") else str(path)
    if not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", name) or (path.parent != Path(".") and path.parent.exists()):
        return None
    folder = path.name
    return f"to fetch it: hf download {name} --local-dir {folder}; then gpt import {folder} --out runs/{folder}"


def read_json(path: Path, what: str, most: int) -> dict[str, Any]:
    """Return the object in a JSON file; raise CheckpointError for other content, or for over `most` bytes.

    The error about the size calls the file `what`, such as "the config of a model".
    """
    content = read_bytes(path, CheckpointError, most=(what, most))
    try:
        value = strict_json(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(shown(path), f"this is not valid JSON: {plainly(error)}") from error
    if not isinstance(value, dict):
        raise CheckpointError(shown(path), "this is not a JSON object")
    return value


def _no_weights(path: Path) -> CheckpointError:
    """Return the error for a directory without safetensors files."""
    pickles = sorted(file.name for pattern in ("*.bin", "*.pt", "*.pth", "*.ckpt") for file in path.glob(pattern))
    if not pickles:
        hint = f"gpt reads {WEIGHTS}, alone or in parts with {INDEX}"
        return CheckpointError(shown(path), "it has no weights in safetensors format", hint=hint)
    sentence = f"its weights are in {shown(pickles[0])}, a pickle, which gpt never loads because a pickle can run code"
    hint = (
        "where transformers and torch are installed, this reads only the numbers of the pickle and writes safetensors: "
        'python -c "from transformers import AutoModelForCausalLM as M; '
        "M.from_pretrained('DIR', weights_only=True).save_pretrained('NEW')\""
    )
    return CheckpointError(shown(path), sentence, hint=hint)


def _of_shards(path: Path) -> Iterator[tuple[str, HFTensor]]:
    """Yield (name, position) of each tensor in the files that the directory's index names."""
    where = shown(path / INDEX)
    names = read_json(path / INDEX, "an index of weights", FOREIGN_HEADER_BYTES).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(file, str) for file in names.values()):
        raise CheckpointError(where, "this is not an index of weights: weight_map does not name a file for each tensor")
    files = sorted(set(names.values()))
    for file in files:
        if file != Path(file).name or not file.endswith(".safetensors") or "\0" in file or "\\" in file:
            sentence = f"it names {shown(file)}, but weights are .safetensors files of the same directory"
            raise CheckpointError(where, sentence)
    if len(files) > FOREIGN_FILES:
        raise CheckpointError(where, f"it names {len(files):,} files, but gpt reads at most {FOREIGN_FILES:,}")
    of_files = {file: dict(_tensors(path / file)) for file in files}
    for tensor, file in names.items():
        if tensor not in of_files[file]:
            raise CheckpointError(where, f"it names {shown(tensor)} in {shown(file)}, which has no such tensor")
        yield tensor, of_files[file][tensor]


def _tensors(path: Path) -> Iterator[tuple[str, HFTensor]]:
    """Yield (name, position) of each tensor in a safetensors file; tensors lie within the file, without overlap."""
    where = shown(path)
    with reading(path, CheckpointError) as file:
        size = os.fstat(file.fileno()).st_size
        length, content = read_header_bytes(file, min(FOREIGN_HEADER_BYTES, size))
    if not 2 <= length <= min(FOREIGN_HEADER_BYTES, size - 8):
        sentence = f"this is not a safetensors file: its header would take {length:,} of its {size:,} bytes"
        if length <= size - 8:
            sentence = f"its header takes {length:,} bytes, but gpt reads at most {FOREIGN_HEADER_BYTES:,}"
        raise CheckpointError(where, sentence)
    try:
        _, tensors = parse_header(content)
    except MALFORMED as error:
        raise CheckpointError(where, f"this is not a safetensors file: {plainly(error)}") from error
    require_in_place(tensors, where)
    end = 8 + length + max((one.stop for one in tensors.values()), default=0)
    if end != size:
        raise CheckpointError(where, f"the file is truncated or damaged: it has {size:,} of {end:,} bytes")
    for name, (dtype, shape, start, _) in sorted(tensors.items(), key=lambda item: item[1][2:]):
        yield name, HFTensor(path, dtype, shape, 8 + length + start)
