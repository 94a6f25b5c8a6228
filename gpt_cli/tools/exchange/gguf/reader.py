"""Read GGUF, the format of llama.cpp: metadata, and tensors in F32, F16, BF16 or Q8_0. Needs no torch and no gguf.

All lengths in a header are checked against the size of the file before memory is allocated for them.
"""

import contextlib
import itertools
import math
import os
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from gpt_cli.common.limits import GGUF_ELEMENTS, GGUF_ENTRIES, GGUF_HEADER_BYTES, GGUF_TEXT_BYTES
from gpt_cli.common.safetensors_numbers import READABLE
from gpt_cli.common.untrusted_files import reading
from gpt_cli.errors import CheckpointError, GptError, shown
from gpt_cli.tools.exchange.hf_directory import BLOCK, IN_BLOCK, HFTensor

_MAGIC = b"GGUF"
# types of values and of tensors by their numbers in a file; llama.cpp has removed the types in the gaps
_KINDS = ("u1", "i1", "<u2", "<i2", "<u4", "<i4", "<f4", "u1", "text", "list", "<u8", "<i8", "<f8")
_FLOAT, _BOOL, _TEXT, _LIST = 6, 7, 8, 9
_NUMBERS = {kind: np.dtype(name) for kind, name in enumerate(_KINDS) if kind not in (_TEXT, _LIST)}
_TYPES = (
    "F32 F16 Q4_0 Q4_1 - - Q5_0 Q5_1 Q8_0 Q8_1 Q2_K Q3_K Q4_K Q5_K Q6_K Q8_K IQ2_XXS IQ2_XS IQ3_XXS IQ1_S IQ4_NL IQ3_S "
    "IQ2_S IQ4_XS I8 I16 I32 I64 F64 IQ1_M BF16 - - - TQ1_0 TQ2_0 - - - MXFP4"
)
_TYPE_NAMES = {kind: name for kind, name in enumerate(_TYPES.split()) if name != "-"}
_TEXT_BYTES = 8  # of the shortest text
_READ = ("F32", "F16", "BF16", "Q8_0")


def is_gguf(path: Path) -> bool:
    """Return whether a readable file begins with GGUF's magic number or is named .gguf, without verifying the rest."""
    with contextlib.suppress(GptError), reading(path, CheckpointError) as file:
        return file.read(len(_MAGIC)) == _MAGIC or path.name.lower().endswith(".gguf")
    return False


def read_gguf_header(path: Path) -> tuple[dict[str, Any], dict[str, HFTensor]]:
    """Return metadata and tensor positions of a GGUF file, by name; tensors lie within the file and do not overlap.

    Raises CheckpointError for a file that is damaged, is one part of several, or has tensors of an unsupported type.
    """
    with reading(path, CheckpointError) as file:
        header = _Header(path, file)
        num_tensors, num_keys = header.begin()
        metadata: dict[str, Any] = {}
        for _ in range(num_keys):
            if (key := header.text()) in metadata:
                raise header.error(f"its metadata has {shown(key)} twice")
            metadata[key] = header.value(key)
        if metadata.get("split.count", 1) not in (0, 1):
            hint = "llama-gguf-split --merge FIRST NEW makes one file of the parts"
            raise header.error("it is one of several files of a model, but gpt reads models in one file", hint=hint)
        alignment = metadata.get("general.alignment", 32)
        if type(alignment) is not int or alignment not in [2**power for power in range(3, 17)]:
            raise header.error("general.alignment is not a power of two from 8 to 65,536")
        tensors: dict[str, HFTensor] = {}
        for _ in range(num_tensors):
            if (name := header.text()) in tensors:
                raise header.error(f"it has the tensor {shown(name)} twice")
            tensors[name] = header.tensor(name, alignment)
    begin = header.position + -header.position % alignment
    tensors = {name: HFTensor(path, one.dtype, one.shape, begin + one.start) for name, one in tensors.items()}
    end = max((one.start + _num_bytes(one) for one in tensors.values()), default=0)
    if end > header.size:
        raise header.error(f"the file is truncated or damaged: it has {header.size:,} of {end:,} bytes")
    for name, other in itertools.pairwise(sorted(tensors, key=lambda name: tensors[name].start)):
        if tensors[name].start + _num_bytes(tensors[name]) > tensors[other].start:
            raise header.error(f"the file is damaged: {shown(name)} and {shown(other)} overlap")
    return metadata, tensors


def _num_bytes(one: HFTensor) -> int:
    count = math.prod(one.shape)
    return count // IN_BLOCK * BLOCK.itemsize if one.dtype == "Q8_0" else count * READABLE[one.dtype].itemsize


class _Header:
    """Reader of an open GGUF file's header, from beginning to end; methods raise CheckpointError for a damaged file."""

    def __init__(self, path: Path, file: BinaryIO):
        self.where, self._file = shown(path), file
        self.size, self.position = os.fstat(file.fileno()).st_size, 0
        self._num_elements = 0  # of metadata so far

    def error(self, sentence: str, hint: str | None = None) -> CheckpointError:
        return CheckpointError(self.where, sentence, hint=hint)

    def begin(self) -> tuple[int, int]:
        """Read the magic number and the version; return the number of tensors and the number of metadata keys."""
        if self._file.read(len(_MAGIC)) != _MAGIC:
            raise self.error("this is not a GGUF file")
        self.position = len(_MAGIC)
        version = self._integer(4)
        if version and version % 2**16 == 0:  # version 3 with its bytes in the other order
            raise self.error("this GGUF file is big-endian, but gpt reads only little-endian files")
        if version not in (2, 3):
            raise self.error(f"this GGUF file is of version {version:,}, but gpt reads versions 2 and 3")
        num_tensors, num_keys = self._integer(8), self._integer(8)
        if num_tensors > GGUF_ENTRIES:
            raise self.error(f"it has {num_tensors:,} tensors, but gpt reads at most {GGUF_ENTRIES:,}")
        if num_keys > GGUF_ENTRIES:
            raise self.error(f"its metadata has {num_keys:,} keys, but gpt reads at most {GGUF_ENTRIES:,}")
        return num_tensors, num_keys

    def text(self) -> str:
        """Read a string: its length in bytes, then its UTF-8 bytes."""
        length = self._integer(8)
        self._require(length)
        if length > GGUF_TEXT_BYTES:
            raise self.error(f"a text in its header has {length:,} bytes, but gpt reads at most {GGUF_TEXT_BYTES:,}")
        try:
            return self._take(length).decode("utf-8")
        except UnicodeDecodeError:
            raise self.error(f"the file is damaged: the text before byte {self.position:,} is not UTF-8") from None

    def value(self, key: str) -> Any:
        """Read the metadata value of `key`: a number, bool or string, or a list of them."""
        if (kind := self._integer(4)) != _LIST:
            return self._values(key, kind, 1)[0]
        kind, count = self._integer(4), self._integer(8)
        if kind == _LIST:
            raise self.error(f"{shown(key)} is a list of lists, which gpt does not read")
        return self._values(key, kind, count)

    def _values(self, key: str, kind: int, count: int) -> list[Any]:
        if kind != _TEXT and kind not in _NUMBERS:
            raise self.error(f"the file is damaged: {shown(key)} is of type {kind:,}, which GGUF lacks")
        self._require(count * (_TEXT_BYTES if kind == _TEXT else _NUMBERS[kind].itemsize))
        self._num_elements += count
        if self._num_elements > GGUF_ELEMENTS:
            raise self.error(f"its metadata has more than {GGUF_ELEMENTS:,} values, the most that gpt reads")
        if kind == _TEXT:
            return [self.text() for _ in range(count)]
        numbers = np.frombuffer(self._take(count * _NUMBERS[kind].itemsize), _NUMBERS[kind])
        if kind == _FLOAT:  # 0.1 rather than 0.10000000149011612
            return [float(str(number)) for number in numbers]
        if kind == _BOOL and (numbers > 1).any():
            raise self.error(f"the file is damaged: {shown(key)} has a bool that is neither 0 nor 1")
        return (numbers.astype(bool) if kind == _BOOL else numbers).tolist()

    def tensor(self, name: str, alignment: int) -> HFTensor:
        """Read a tensor's dtype, shape and `start`: bytes after the padded header, a multiple of `alignment`."""
        if not 1 <= (num_dimensions := self._integer(4)) <= 4:
            raise self.error(f"the file is damaged: {shown(name)} has {num_dimensions:,} dimensions, not 1 to 4")
        shape = tuple(self._integer(8) for _ in range(num_dimensions))[::-1]
        number, start = self._integer(4), self._integer(8)
        if 0 in shape:
            raise self.error(f"the file is damaged: {shown(name)} has a dimension of size 0")
        if (dtype := _TYPE_NAMES.get(number, f"type {number}")) not in _READ:
            hint = "take the F16, BF16 or Q8_0 file of the model"
            raise self.error(f"{shown(name)} is {dtype}, but gpt reads {', '.join(_READ)}", hint=hint)
        if dtype == "Q8_0" and shape[-1] % IN_BLOCK:
            raise self.error(f"the file is damaged: rows of {shown(name)} are not whole blocks of {IN_BLOCK} numbers")
        if start % alignment:
            raise self.error(f"the file is damaged: {shown(name)} does not begin at a multiple of {alignment:,} bytes")
        return HFTensor(Path(), dtype, shape, start)

    def _integer(self, num_bytes: int) -> int:
        return int.from_bytes(self._take(num_bytes), "little")

    def _take(self, num_bytes: int) -> bytes:
        self._require(num_bytes)
        content = self._file.read(num_bytes)
        if len(content) != num_bytes:
            raise self.error("this file changed while gpt read it")
        self.position += num_bytes
        return content

    def _require(self, num_bytes: int) -> None:
        """Raise CheckpointError if the file, or the largest header that gpt reads, ends within the next `num_bytes`."""
        if self.position + num_bytes > self.size:
            raise self.error(f"the file is truncated: it ends inside its header, after {self.size:,} bytes")
        if self.position + num_bytes > GGUF_HEADER_BYTES:
            raise self.error(f"its header takes more than {GGUF_HEADER_BYTES:,} bytes, the most that gpt reads")
