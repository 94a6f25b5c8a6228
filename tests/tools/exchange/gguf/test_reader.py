"""GGUF files of strangers: what is read of them, and that each damage is refused by a sentence before harm."""

import math
import os
import random
import struct
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.llama_cpp import needs_llama_cpp

from gpt_cli.common.safetensors_numbers import widened
from gpt_cli.errors import CheckpointError
from gpt_cli.tools.exchange.gguf import reader
from gpt_cli.tools.exchange.gguf.reader import is_gguf, read_gguf_header
from gpt_cli.tools.exchange.hf_directory import HFTensor, read_numbers

_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
_TYPES = {"F32": 0, "F16": 1, "Q8_0": 8, "Q4_K": 12, "BF16": 30}


def text(value: str | bytes) -> bytes:
    content = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(content)) + content


def value(kind: int, content: Any) -> bytes:
    return struct.pack("<I", kind) + _bare(kind, content)


def _bare(kind: int, content: Any) -> bytes:
    return text(content) if kind == 8 else struct.pack(f"<{_CODES[kind]}", content)


def listed(kind: int, contents: Sequence[Any]) -> bytes:
    return struct.pack("<IIQ", 9, kind, len(contents)) + b"".join(_bare(kind, one) for one in contents)


def tensor(name: str | bytes, shape: Sequence[int], kind: str | int = "F32", start: int = 0) -> bytes:
    number = _TYPES[kind] if isinstance(kind, str) else kind
    sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
    return text(name) + sizes + struct.pack("<IQ", number, start)


def built(
    keys: Sequence[tuple[str | bytes, bytes]] = (),
    tensors: Sequence[bytes] = (),
    data: bytes = b"",
    *,
    version: int = 3,
    counts: tuple[int, int] | None = None,
    alignment: int = 32,
) -> bytes:
    """A file; `counts` are those of tensors and keys that it claims."""
    header = b"GGUF" + struct.pack("<IQQ", version, *(counts or (len(tensors), len(keys))))
    header += b"".join(text(key) + content for key, content in keys) + b"".join(tensors)
    return header + bytes(-len(header) % alignment if data else 0) + data


def blocks(scales: Sequence[float], numbers: np.ndarray) -> bytes:
    """Q8_0."""
    rows = numbers.astype(np.int8).reshape(-1, 32)
    return b"".join(np.float16(scale).tobytes() + row.tobytes() for scale, row in zip(scales, rows, strict=True))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.gguf"


def saved(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def small() -> bytes:
    """A file with something of everything."""
    keys = [
        ("general.architecture", value(8, "llama")),
        ("llama.block_count", value(4, 2)),
        ("eps", value(6, 1e-5)),
        ("tied", value(7, 1)),
        ("tokens", listed(8, ["a", "é", ""])),
        ("scores", listed(6, [0.1, -1.5])),
        ("flags", listed(7, [0, 1])),
        ("none", listed(5, [])),
    ]
    tensors = [tensor("w", (2, 4)), tensor("b", (3,), "BF16", 32), tensor("q", (2, 32), "Q8_0", 64)]
    data = np.arange(8, dtype="<f4").tobytes() + np.array([0x3F80, 0xC000, 0], "<u2").tobytes().ljust(32, b"\0")
    return built(keys, tensors, data + blocks([0.5, 2], np.arange(64) - 32))


@pytest.mark.parametrize("version", [2, 3])
def test_metadata_of_each_type_is_read_as_it_was_written(path: Path, version: int) -> None:
    extremes = {0: 255, 1: -128, 2: 65535, 3: -32768, 4: 2**32 - 1, 5: -(2**31), 10: 2**64 - 1, 11: -(2**63), 12: 0.1}
    keys = [(f"one.{kind}", value(kind, number)) for kind, number in extremes.items()]
    keys += [(f"list.{kind}", listed(kind, [number, 1])) for kind, number in extremes.items()]
    metadata, tensors = read_gguf_header(saved(path, built(keys, version=version)))
    expected = {f"one.{kind}": number for kind, number in extremes.items()}
    assert metadata == expected | {f"list.{kind}": [number, 1] for kind, number in extremes.items()}
    assert tensors == {}
    assert {type(one) for one in metadata.values()} == {int, float, list}


def test_a_small_file_has_texts_bools_and_the_shortest_decimals(path: Path) -> None:
    metadata, _ = read_gguf_header(saved(path, small()))
    assert metadata == {
        "general.architecture": "llama",
        "llama.block_count": 2,
        "eps": 1e-5,
        "tied": True,
        "tokens": ["a", "é", ""],
        "scores": [0.1, -1.5],
        "flags": [False, True],
        "none": [],
    }
    assert metadata["tied"] is True
    assert metadata["flags"][0] is False


def test_tensors_are_read_whole_and_by_rows(path: Path) -> None:
    _, tensors = read_gguf_header(saved(path, small()))
    assert {name: (one.dtype, one.shape) for name, one in tensors.items()} == {
        "w": ("F32", (2, 4)),
        "b": ("BF16", (3,)),
        "q": ("Q8_0", (2, 32)),
    }
    assert read_numbers(tensors["w"], "w").tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert read_numbers(tensors["w"], "w", slice(1, 2)).tolist() == [[4, 5, 6, 7]]
    assert widened(read_numbers(tensors["b"], "b", slice(2)), "BF16").tolist() == [1, -2]
    expected = (np.arange(64) - 32).reshape(2, 32) * np.array([[0.5], [2]])
    numbers = read_numbers(tensors["q"], "q")
    assert numbers.dtype == np.float32
    assert np.array_equal(numbers, expected)
    assert np.array_equal(read_numbers(tensors["q"], "q", slice(1, None)), expected[1:])


def test_rows_of_a_vector_in_q8_0_may_begin_within_a_block(path: Path) -> None:
    content = built([], [tensor("v", (96,), "Q8_0")], blocks([1, 2, 4], np.arange(96)))
    stored = read_gguf_header(saved(path, content))[1]["v"]
    whole = read_numbers(stored, "v")
    for first, last in ((0, 96), (5, 7), (30, 34), (31, 96), (64, 64), (40, 40)):
        assert np.array_equal(read_numbers(stored, "v", slice(first, last)), whole[first:last])


def test_an_alignment_of_the_file_moves_the_tensors(path: Path) -> None:
    key = ("general.alignment", value(4, 8))
    content = built([key], [tensor("a", (2,)), tensor("b", (1,), start=8)], struct.pack("<3f", 1, 2, 3), alignment=8)
    _, tensors = read_gguf_header(saved(path, content))
    assert [read_numbers(tensors[name], name).tolist() for name in "ab"] == [[1, 2], [3]]


@needs_llama_cpp
def test_a_file_of_the_package_gguf_is_read_as_it_reads_it(path: Path) -> None:
    from gguf import GGMLQuantizationType, GGUFWriter, quants

    draws, expected = np.random.default_rng(0), {}
    writer = GGUFWriter(path, "gpt2")
    writer.add_context_length(512)
    writer.add_layer_norm_eps(1e-5)
    writer.add_array("tokenizer.ggml.tokens", ["Ġthe", "好"])
    for kind in (getattr(GGMLQuantizationType, name) for name in ("F32", "F16", "BF16", "Q8_0")):
        stored = quants.quantize(draws.standard_normal((6, 64)).astype(np.float32), kind)
        expected[kind.name] = quants.dequantize(stored, kind)
        writer.add_tensor(kind.name, stored, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    metadata, tensors = read_gguf_header(path)
    assert metadata == {
        "general.architecture": "gpt2",
        "gpt2.context_length": 512,
        "gpt2.attention.layer_norm_epsilon": 1e-5,
        "tokenizer.ggml.tokens": ["Ġthe", "好"],
    }
    assert list(tensors) == list(expected)
    for name, stored in tensors.items():
        assert (stored.dtype, stored.shape) == (name, (6, 64))
        for first, last in ((0, None), (2, 5)):
            numbers = read_numbers(stored, name, slice(first, last))
            numbers = numbers if name == "Q8_0" else widened(numbers, name)
            assert np.array_equal(numbers, expected[name][first:last])


@needs_llama_cpp
def test_types_of_tensors_are_named_as_the_package_gguf_names_them() -> None:
    from gguf import GGMLQuantizationType

    names = reader._TYPE_NAMES
    assert {number: GGMLQuantizationType(number).name for number in names} == names


def one(*arguments: Any) -> bytes:
    """A file with one tensor and 64 bytes of data."""
    return built([], [tensor("t", *arguments)], bytes(64))


def with_alignment(content: bytes) -> bytes:
    return built([("general.alignment", content)])


REFUSED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "this is not a GGUF file"),
    "text": (b"hello, world", "this is not a GGUF file"),
    "version 1": (built(version=1), "this GGUF file is of version 1, but gpt reads versions 2 and 3"),
    "big endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "is big-endian, but gpt reads only little-endian files"),
    "cut": (small()[:100], "the file is truncated: it ends inside its header, after 100 bytes"),
    "cut data": (small()[:-1], "the file is truncated or damaged: it has"),
    "many keys": (built(counts=(0, 2**16 + 1)), "its metadata has 65,537 keys, but gpt reads at most 65,536"),
    "many tensors": (built(counts=(2**63, 0)), "tensors, but gpt reads at most 65,536"),
    "more keys than bytes": (built(counts=(0, 2**16)), "it ends inside its header"),
    "more tensors than bytes": (built(counts=(2**16, 0)), "it ends inside its header"),
    "a long key": (built(counts=(0, 1)) + struct.pack("<Q", 2**62) + bytes(64), "it ends inside its header"),
    "a list of lists": (built([("k", struct.pack("<IIQ", 9, 9, 1) + bytes(64))]), '"k" is a list of lists'),
    "a type of values": (built([("k", struct.pack("<IQ", 13, 0))]), '"k" is of type 13, which GGUF lacks'),
    "a key twice": (built([("k", value(4, 1))] * 2), 'its metadata has "k" twice'),
    "a tensor twice": (built([], [tensor("t", (1,))] * 2, bytes(64)), 'it has the tensor "t" twice'),
    "a text of bytes": (built([("k", value(8, b"a\xc3"))]), "is not UTF-8"),
    "a surrogate": (built([("k", listed(8, [b"\xed\xa0\x80"]))]), "is not UTF-8"),
    "a bool": (built([("k", value(7, 2))]), '"k" has a bool that is neither 0 nor 1'),
    "five dimensions": (one((1,) * 5), '"t" has 5 dimensions, not 1 to 4'),
    "many dimensions": (built([], [text("t") + struct.pack("<I", 2**32 - 1)], bytes(64)), '"t" has 4,294,967,295'),
    "no dimensions": (one(()), '"t" has 0 dimensions, not 1 to 4'),
    "no numbers": (one((3, 0)), '"t" has a dimension of size 0'),
    "an alignment of 24": (with_alignment(value(4, 24)), "general.alignment is not a power of two from 8 to 65,536"),
    "an alignment of 4": (with_alignment(value(4, 4)), "general.alignment is not"),
    "a large alignment": (with_alignment(value(4, 2**17)), "general.alignment is not"),
    "an alignment with a point": (with_alignment(value(6, 32)), "general.alignment is not"),
    "an odd place": (one((1,), "F32", 4), '"t" does not begin at a multiple of 32 bytes'),
    "beyond the end": (one((16,), "F32", 32), "the file is truncated or damaged: it has 128 of 160 bytes"),
    "an overflow": (one((2**32, 2**32, 2**32), "F32"), "the file is truncated or damaged: it has"),
    "an overflow to nothing": (one((2**63, 2), "Q8_0"), "are not whole blocks"),
    "an overlap": (
        built([], [tensor("a", (9,)), tensor("b", (1,), "F16", 32)], bytes(64)),
        'the file is damaged: "a" and "b" overlap',
    ),
    "parts of blocks": (one((32, 31), "Q8_0"), 'rows of "t" are not whole blocks of 32 numbers'),
    "another type": (one((256,), "Q4_K"), '"t" is Q4_K, but gpt reads F32, F16, BF16, Q8_0'),
    "an unknown type": (one((1,), 99), '"t" is type 99, but gpt reads'),
    "one of several": (built([("split.count", value(2, 3))]), "it is one of several files of a model"),
}


@pytest.mark.parametrize(("content", "sentence"), REFUSED.values(), ids=REFUSED.keys())
def test_a_damaged_file_is_refused_by_a_sentence(path: Path, content: bytes, sentence: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        read_gguf_header(saved(path, content))
    assert sentence in caught.value.sentence
    assert caught.value.where == f'"{path}"'


def test_a_file_of_other_types_names_the_first_and_hints_at_the_ones_that_gpt_reads(path: Path) -> None:
    content = built([], [tensor("a", (1,)), tensor("b", (256,), "Q4_K", 32), tensor("c", (1,), 2, 64)], bytes(512))
    with pytest.raises(CheckpointError, match='"b" is Q4_K') as caught:
        read_gguf_header(saved(path, content))
    assert caught.value.hint == "take the F16, BF16 or Q8_0 file of the model"


def test_a_file_that_says_it_is_the_only_part_is_read(path: Path) -> None:
    assert read_gguf_header(saved(path, built([("split.count", value(2, 1))])))[0] == {"split.count": 1}


@pytest.mark.parametrize(
    ("limit", "number", "sentence"),
    [
        ("GGUF_HEADER_BYTES", 100, "its header takes more than 100 bytes, the most that gpt reads"),
        ("GGUF_TEXT_BYTES", 4, "a text in its header has 20 bytes, but gpt reads at most 4"),
        ("GGUF_ELEMENTS", 5, "its metadata has more than 5 values, the most that gpt reads"),
    ],
)
def test_a_header_beyond_a_limit_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, number: int, sentence: str
) -> None:
    monkeypatch.setattr(reader, limit, number)
    with pytest.raises(CheckpointError) as caught:
        read_gguf_header(saved(path, small()))
    assert caught.value.sentence == sentence


@pytest.mark.parametrize("kind", [0, 8, 12])
@pytest.mark.parametrize("size", [2**12, 2**43])
def test_a_list_that_claims_to_be_endless_costs_neither_memory_nor_time(path: Path, kind: int, size: int) -> None:
    saved(path, built([("k", struct.pack("<IIQ", 9, kind, 2**40))]))
    os.truncate(path, size)  # sparse; the larger one is as long as it claims
    tracemalloc.start()
    before = time.perf_counter()
    try:
        with pytest.raises(CheckpointError, match=r"ends inside its header|takes more than 268,435,456 bytes"):
            read_gguf_header(path)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    assert time.perf_counter() - before < 1


@pytest.mark.parametrize(
    ("kind", "shape", "data"),
    [
        ("F32", (2,), struct.pack("<2f", 1, math.nan)),
        ("F32", (2,), struct.pack("<2f", -math.inf, 1)),
        ("F16", (1,), np.float16(np.inf).tobytes()),
        ("BF16", (1,), struct.pack("<H", 0x7FC0)),
        ("Q8_0", (64,), blocks([1, math.nan], np.ones(64))),
        ("Q8_0", (64,), blocks([-math.inf, 1], np.zeros(64))),
    ],
)
def test_numbers_that_are_not_finite_are_refused(path: Path, kind: str, shape: tuple[int, ...], data: bytes) -> None:
    stored = read_gguf_header(saved(path, built([], [tensor("t", shape, kind)], data)))[1]["t"]
    with pytest.raises(CheckpointError, match='"t" contains numbers that are not finite'):
        read_numbers(stored, "t")


@pytest.mark.parametrize("name", ["w", "b", "q"])
def test_a_file_that_became_shorter_is_refused(path: Path, name: str) -> None:
    _, tensors = read_gguf_header(saved(path, small()))
    os.truncate(path, tensors[name].start + 3)
    with pytest.raises(CheckpointError, match="this file changed while gpt read it"):
        read_numbers(tensors[name], name)


def outcome(path: Path) -> str | dict[str, HFTensor]:
    """What comes of reading a whole file: the tensors, or a sentence."""
    try:
        _, tensors = read_gguf_header(path)
        for name, stored in tensors.items():
            assert read_numbers(stored, name).shape == stored.shape
    except CheckpointError as error:
        return error.sentence
    return tensors


def test_every_truncation_ends_in_a_sentence(path: Path) -> None:
    content = small()
    assert not isinstance(outcome(saved(path, content)), str)
    for length in range(len(content)):
        found = outcome(saved(path, content[:length]))
        assert isinstance(found, str), length
        assert "truncated" in found or (length < 4 and found == "this is not a GGUF file")


def test_flipped_bytes_end_in_a_model_or_a_sentence(path: Path) -> None:
    draws, content, sentences = random.Random(0), small(), set()
    before = time.perf_counter()
    for _ in range(400):
        flipped = bytearray(content)
        for _ in range(draws.choice([1, 1, 2, 8])):
            flipped[draws.randrange(len(flipped))] ^= 1 << draws.randrange(8)
        found = outcome(saved(path, bytes(flipped)))
        sentences.add(found if isinstance(found, str) else "")
    assert len(sentences) > 20
    assert time.perf_counter() - before < 20


def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.gguf")
    (tmp_path / "folder.gguf").mkdir()
    for name, sentence in (("fifo", "not a regular file"), ("folder", "not a regular file"), ("none", "no such file")):
        with pytest.raises(CheckpointError, match=sentence):
            read_gguf_header(tmp_path / f"{name}.gguf")
        assert not is_gguf(tmp_path / f"{name}.gguf")


def test_a_gguf_is_known_by_its_name_or_its_beginning(tmp_path: Path) -> None:
    assert is_gguf(saved(tmp_path / "a.gguf", b""))
    assert is_gguf(saved(tmp_path / "A.GGUF", b"damaged"))
    assert is_gguf(saved(tmp_path / "blob", small()))
    assert not is_gguf(saved(tmp_path / "b", b"GGU"))
    assert not is_gguf(tmp_path)
    assert not is_gguf(tmp_path / "a\0b.gguf")
