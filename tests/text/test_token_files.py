import errno
import fcntl
import itertools
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from support.faults import KilledError, Operations

import gpt_cli.common.files
from gpt_cli.common.safetensors_header import header_bytes
from gpt_cli.errors import DataError, EnvironmentFailure
from gpt_cli.text import token_files as module
from gpt_cli.text.encode import sole_writer
from gpt_cli.text.token_files import (
    HEADER_BYTES,
    TokensOnDisk,
    TokenWriter,
    chunks,
    open_tokens,
    token_windows,
    validation_windows,
)

GROUPS = [np.arange(i, i + 3, dtype=np.uint16) * 1000 for i in range(0, 24, 3)]
IDS = np.concatenate(GROUPS)  # 0, 1000, ..., 23000
PART = Path("part-00001.safetensors")


@pytest.fixture(autouse=True)
def _short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART_TOKENS", 7)  # two groups
    monkeypatch.setattr(module, "CHUNK_TOKENS", 5)


def write(directory: Path, groups: list[np.ndarray] = GROUPS) -> TokensOnDisk:
    """Write what is missing, as a preparation does that starts or continues."""
    writer = TokenWriter(directory, groups[0].dtype)
    for group in groups[writer.num_groups :]:
        writer.add(group)
    return writer.finish({"documents": 3})


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.fixture(name="tokens")
def _tokens(tmp_path: Path) -> TokensOnDisk:
    return write(tmp_path)


def put(path: Path, content: bytes) -> None:
    path.unlink()  # some file systems wait for the disk when a file is overwritten
    path.write_bytes(content)


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    put(path, bytes(content))


# --- reading


def test_ids_are_in_parts_that_safetensors_reads(tokens: TokensOnDisk) -> None:
    assert (len(tokens), tokens.dtype, tokens.about) == (24, np.uint16, {"documents": 3})
    assert sorted(contents(tokens.directory)) == ["index.json", *(f"part-0000{i}.safetensors" for i in range(4))]
    loaded = safetensors.numpy.load_file(tokens.directory / PART)["ids"]
    assert (loaded.dtype, loaded.tolist()) == (np.uint16, IDS[6:12].tolist())


def test_a_slice_is_that_of_an_array(tokens: TokensOnDisk) -> None:
    for start, stop in itertools.product(range(-26, 27), repeat=2):
        assert tokens[start:stop].tolist() == IDS[start:stop].tolist()


@pytest.mark.parametrize("length", [1, 2, 6, 7, 13, 24])
def test_windows_cross_parts_in_any_order(tokens: TokensOnDisk, length: int) -> None:
    starts = np.random.default_rng(0).permutation(np.arange(25 - length).repeat(2))
    found = token_windows(tokens, starts, length)
    assert (found.dtype, found.shape) == (np.uint16, (len(starts), length))
    assert (found == token_windows(IDS, starts, length)).all()
    tokens.announce(starts, length)


def test_chunks_are_all_ids_in_order(tokens: TokensOnDisk) -> None:
    for ids in (tokens, IDS):
        found = [chunk.tolist() for chunk in chunks(ids)]
        assert list(map(len, found)) == [5, 5, 5, 5, 4]
        assert sum(found, []) == IDS.tolist()  # noqa: RUF017 - five short lists


def test_a_system_that_reads_little_at_a_time_gives_all(tokens: TokensOnDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda file, buffers, offset: preadv(file, [buffers[0][:3]], offset))
    assert tokens[:].tolist() == IDS.tolist()


def test_a_text_without_tokens(tmp_path: Path) -> None:
    tokens = TokenWriter(tmp_path, np.uint32).finish({})
    assert (len(tokens), tokens[:].tolist(), list(chunks(tokens)), tokens.dtype) == (0, [], [], np.uint32)


def test_a_group_longer_than_a_part_is_a_part(tmp_path: Path) -> None:
    groups = [np.arange(n, dtype=np.uint32) + 70_000 for n in (2, 9, 2)]
    tokens = write(tmp_path, groups)
    assert [part.tokens for part in tokens.parts] == [2, 9, 2]
    assert tokens[:].tolist() == np.concatenate(groups).tolist()


def test_files_that_are_removed_while_they_are_used_can_still_be_read(tokens: TokensOnDisk) -> None:
    for path in tokens.directory.iterdir():
        path.unlink()
    assert tokens[:].tolist() == IDS.tolist()
    assert open_tokens(tokens.directory) is None


def test_a_file_that_is_cut_while_it_is_used_is_an_error(tokens: TokensOnDisk) -> None:
    os.truncate(tokens.directory / PART, HEADER_BYTES + 5)
    assert token_windows(tokens, np.array([6]), 2).tolist() == [[6000, 7000]]
    for read in (lambda: tokens[5:9], lambda: token_windows(tokens, np.array([6]), 3), lambda: list(chunks(tokens))):
        with pytest.raises(
            DataError, match=r'part-00001.safetensors": this file of prepared text was truncated'
        ) as raised:
            read()
        assert "gpt data verify" in str(raised.value.hint)


def test_a_disk_that_refuses_is_an_error(tokens: TokensOnDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "preadv", refuse)
    with pytest.raises(EnvironmentFailure, match=r'reading ".*part-00000.safetensors": input/output error'):
        tokens[:1]


def test_more_parts_than_open_files_are_an_error(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    write(tmp_path, GROUPS * 20)
    used = os.open(os.devnull, os.O_RDONLY)
    os.close(used)
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 30, limits[1]))
    try:
        with pytest.raises(EnvironmentFailure, match="too many open files") as raised:
            open_tokens(tmp_path)
        assert raised.value.hint == "allow more open files with ulimit -n"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


# --- damage


def test_damaged_parts_are_named_by_verify_and_written_again(tmp_path: Path) -> None:
    whole = write(tmp_path)
    counted: list[int] = []
    whole.verify(counted.append)
    assert sum(counted) == 24
    expected = contents(tmp_path)
    for number in (1, 3):
        flip(tmp_path / f"part-0000{number}.safetensors", 8 * HEADER_BYTES + 9)
    damaged = open_tokens(tmp_path)
    assert damaged is not None
    with pytest.raises(DataError, match=r'part-00001.safetensors", ".*part-00003.safetensors": the content') as raised:
        damaged.verify()
    assert raised.value.hint == "remove the file; the next start writes it again"
    assert TokenWriter(tmp_path, np.uint16).num_groups == 2  # of the part before
    write(tmp_path).verify()
    assert contents(tmp_path) == expected


def test_no_flipped_bit_of_a_part_is_continued_with(tmp_path: Path) -> None:
    write(tmp_path)
    path = tmp_path / "part-00000.safetensors"
    whole = path.read_bytes()
    used = whole.rindex(b"}") + 1  # of the header; behind it are spaces
    for bit in [*range(0, 8 * used, 3), 8 * HEADER_BYTES - 1, *range(8 * HEADER_BYTES, 8 * len(whole))]:
        flip(path, bit)
        assert TokenWriter(tmp_path, np.uint16).num_groups == 0
        put(path, whole)
    assert TokenWriter(tmp_path, np.uint32).num_groups == 0
    assert TokenWriter(tmp_path, np.uint16).num_groups == 8


def test_a_foreign_header_that_says_more_than_fits_in_ours_is_not_continued_with(tmp_path: Path) -> None:
    write(tmp_path)
    header = header_bytes({"ids": ("U16", [1])}, {"groups": "1", "sha256": "a" * 120}, num_bytes=256)
    put(tmp_path / "part-00000.safetensors", header + bytes(2))
    assert TokenWriter(tmp_path, np.uint16).num_groups == 0


def test_no_flipped_bit_of_an_index_gives_ids(tmp_path: Path) -> None:
    write(tmp_path)
    path = tmp_path / "index.json"
    whole = path.read_bytes()
    for bit in range(0, 8 * len(whole), 7):
        flip(path, bit)
        found = open_tokens(tmp_path)
        # white space and the case of an escape mean nothing
        assert found is None or (found[:].tolist(), found.about) == (IDS.tolist(), {"documents": 3})
        put(path, whole)
    for length in range(0, len(whole), 7):
        put(path, whole[:length])
        assert open_tokens(tmp_path) is None


@pytest.mark.parametrize(
    "change", [lambda path: os.truncate(path, 100), Path.unlink, lambda path: os.truncate(path, 999)]
)
def test_a_missing_part_or_one_of_another_size_gives_no_ids(
    tokens: TokensOnDisk, change: Callable[[Path], None]
) -> None:
    change(tokens.directory / PART)
    assert open_tokens(tokens.directory) is None
    assert write(tokens.directory)[:].tolist() == IDS.tolist()


# --- kills, full disks, company


def disturbed(directory: Path, number: int, what: BaseException, *, torn: bool) -> bool:
    """Write with a fault at that file operation and ever after; returns whether it came so far."""

    def fail(at: int, name: str, arguments: tuple[Any, ...]) -> None:
        if at >= number and (isinstance(what, KilledError) or name != "unlink"):
            if at == number and torn and name == "write":
                os.write(arguments[0], arguments[1][: len(arguments[1]) // 2])
            raise what

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpt_cli.common.files, "os", Operations(fail))
        try:
            write(directory)
        except (KilledError, EnvironmentFailure):
            return True
        return False


@pytest.mark.parametrize(
    ("what", "torn"),
    [(KilledError(), False), (KilledError(), True), (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), False)],
    ids=["killed", "killed in a write", "a full disk"],
)
def test_disturbed_at_any_file_operation_a_preparation_continues(
    tmp_path: Path, what: BaseException, torn: bool
) -> None:
    write(tmp_path / "whole")
    expected = contents(tmp_path / "whole")
    kept, number = [], 1
    while disturbed(directory := tmp_path / str(number), number, what, torn=torn):
        assert open_tokens(directory) is None or contents(directory) == expected
        if directory.exists():
            kept.append(TokenWriter(directory, np.uint16).num_groups)
        write(directory).verify()
        assert contents(directory) == expected  # and nothing of the killed writer
        number += 1
    assert number > 20
    assert kept == sorted(kept)
    assert set(kept) == {0, 2, 4, 6, 8}  # a durable part is not written again


def test_a_filesystem_without_locks_is_written_to_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    code = errno.ENOLCK
    with sole_writer(tmp_path, pytest.fail):
        write(tmp_path)
    code = errno.EIO
    with pytest.raises(EnvironmentFailure, match="input/output error"), sole_writer(tmp_path, pytest.fail):
        pass


def test_ids_that_the_tokenizer_does_not_have_never_reach_a_model(tmp_path: Path) -> None:
    writer = TokenWriter(tmp_path, np.uint16)
    writer.add(np.array([0, 5, 2], np.uint16))
    tokens = writer.finish({"vocab_size": 5})
    with pytest.raises(DataError, match="it contains tokens that its tokenizer does not have"):
        tokens.windows(np.array([0]), 2)
    assert tokens.windows(np.array([2]), 1).tolist() == [[2]]


# --- windows of a validation text


def test_validation_predicts_each_token_but_the_first_once() -> None:
    assert validation_windows(25, 8) == [(0, 8), (8, 16), (16, 24)]
    assert validation_windows(22, 8)[-1] == (16, 21)
    assert sum(end - start for start, end in validation_windows(22, 8)) == 21


def test_fewer_validation_tokens_are_evenly_spaced() -> None:
    assert validation_windows(81, 8, eval_tokens=24) == [(0, 8), (24, 32), (48, 56)]
    assert validation_windows(81, 8, eval_tokens=1) == [(0, 8)]
    assert validation_windows(81, 8, eval_tokens=80) == validation_windows(81, 8)
