import json
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import pytest
import safetensors.torch
import torch
from support.helpers import small_config
from support.strangers import intact

from gpt_cli.checkpoints import checkpoint as module
from gpt_cli.checkpoints import verify
from gpt_cli.checkpoints.checkpoint import Checkpoint, read_checkpoint, save_checkpoint
from gpt_cli.checkpoints.header import Progress, read_header
from gpt_cli.common.strict_json import strict_json
from gpt_cli.errors import CheckpointError
from gpt_cli.model import GPT
from gpt_cli.text.tokenizers import CharTokenizer

WHOLE = partial(read_checkpoint, everything=True)
PASSING = partial(read_checkpoint, everything=True, keep=False)  # as gpt info verifies
PROGRESS = json.dumps(asdict(Progress(7, 7, 2.5, 0.5, 1.5, 2.25, 1, 1000, "digest", {})))


def make(**changes: object) -> Checkpoint:
    config, tokenizer = small_config("model.d_model=4", "model.num_blocks=1"), CharTokenizer("ab今\0")
    model = GPT(config.model, tokenizer.vocab_size, torch.Generator().manual_seed(0))
    moments = {f"{name}.exp_avg": torch.full_like(p, 0.5) for name, p in model.state_dict().items()}
    progress = Progress(7, 6, 2.5, 0.5, 1.5, 2.25, 1, 1000, "digest", {"torch": "x"})
    return replace(Checkpoint(config, tokenizer, progress, model.state_dict(), moments), **changes)  # type: ignore[arg-type]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_checkpoint(tmp_path / "c.safetensors", make())
    return tmp_path / "c.safetensors"


def refused(path: Path, sentence: str, *readers: Callable[[Path], object]) -> CheckpointError:
    """Return the last error of a file that these readers refuse, or `read_checkpoint`."""
    errors = list[CheckpointError]()
    for read in readers or (read_checkpoint,):
        with pytest.raises(CheckpointError, match=sentence) as raised:
            read(path)
        errors.append(raised.value)
    return errors[-1]


def header_of(path: Path) -> tuple[bytes, bytes]:
    """The JSON of a file's header, and all that comes behind it."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    return content[8 : 8 + length], content[8 + length :]


def edit_header(path: Path, **metadata: str) -> None:
    """Write other metadata into a file, leaving the rest as it is."""
    text, rest = header_of(path)
    header = json.loads(text)
    header["__metadata__"] |= metadata
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + rest)


def test_everything_survives(saved: Path) -> None:
    read, written = read_checkpoint(saved, everything=True), make()
    assert (read.config, read.progress) == (written.config, written.progress)
    assert read.tokenizer.digest == written.tokenizer.digest
    for ours, theirs in ((read.weights, written.weights), (read.optimizer_state, written.optimizer_state)):
        assert set(ours) == set(theirs)
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    model = read.build_model()
    assert not model.training
    assert all(torch.equal(tensor, written.weights[name]) for name, tensor in model.state_dict().items())
    assert read_header(saved).shapes == {name: tensor.shape for name, tensor in written.weights.items()}


def test_the_safetensors_library_reads_the_file_by_itself(saved: Path) -> None:
    tensors = safetensors.torch.load_file(saved)
    assert torch.equal(tensors["token_embedding.weight"], make().weights["token_embedding.weight"])
    assert sum(name.startswith("optimizer.") for name in tensors) == len(make().optimizer_state)


def damage_the_last_moment(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_a_reader_of_weights_notices_damage_in_all_it_uses_and_only_there(saved: Path) -> None:
    damage_the_last_moment(saved)
    read_checkpoint(saved)
    refused(saved, "damaged", WHOLE)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "this is not a checkpoint of gpt"),
        (b"model: {}", "this is not a checkpoint of gpt"),
        (b"PK\x03\x04" + b"x" * 50, "this is a PyTorch pickle, which gpt never loads because a pickle can run code"),
        (b"\x80\x02}q\x00.", "this is a PyTorch pickle, which gpt never loads because a pickle can run code"),
        (struct.pack("<Q", 2**60) + b"x" * 50, "this is not a checkpoint of gpt"),
        (struct.pack("<Q", 20) + b"{" * 20, "this is not a checkpoint of gpt"),
        (struct.pack("<Q", 2) + b"{}", "this is not a checkpoint of gpt"),
        (struct.pack("<Q", 2) + b"[]", "this is not a checkpoint of gpt"),
        (struct.pack("<Q", 100_000) + b"[" * 100_000, "this is not a checkpoint of gpt"),
        (safetensors.torch.save({"a": torch.zeros(1)}), "this is not a checkpoint of gpt"),
    ],
)
def test_foreign_files_are_named_for_what_they_are(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "c.safetensors").write_bytes(content)
    refused(tmp_path / "c.safetensors", message)


@pytest.mark.parametrize("length", [0x4B50, 0x10280, 0x10580])
def test_a_header_whose_length_begins_like_a_pickle_is_read(tmp_path: Path, length: int) -> None:
    writer = str(intact().metadata["written_by"])
    (shorter,) = struct.unpack("<Q", intact().joined()[:8])
    content = intact().changed(written_by=writer.ljust(len(writer) + length - shorter)).joined()
    assert (content[:8], content[:2] in (b"PK", b"\x80\x02", b"\x80\x05")) == (struct.pack("<Q", length), True)
    (tmp_path / "c.safetensors").write_bytes(content)
    assert read_checkpoint(tmp_path / "c.safetensors", everything=True).progress.step == 7


def test_many_tensors_are_refused_before_each_becomes_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A hundred thousand of them took three seconds."""
    entries = {f"blocks.{i}.x": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(500)}
    (tmp_path / "c").write_bytes(replace(intact(), entries={**intact().entries, **entries}).joined())
    monkeypatch.setattr(module, "_taken", lambda *_, **__: pytest.fail("they are loaded"))
    refused(tmp_path / "c", r"it has [0-9]+ tensors, far more than its config asks for")


def test_missing_and_special_files_are_errors_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "nothere", "no such file")
    refused(tmp_path / "pipe", "not a regular file")


@pytest.mark.parametrize("number", ["1e400", "NaN", "-Infinity"])
def test_numbers_that_are_not_finite_are_no_json_of_ours(saved: Path, number: str) -> None:
    header, rest = header_of(saved)
    header = header.replace(b'"data_offsets":[0,', f'"data_offsets":[{number},'.encode(), 1)
    saved.write_bytes(struct.pack("<Q", len(header)) + header + rest)
    refused(saved, "this is not a checkpoint")


def test_a_newer_format_is_refused_with_its_writer_and_the_command_that_updates(saved: Path) -> None:
    edit_header(saved, format_version="3", written_by="gpt-cli 9.0")
    wrong = r'"gpt-cli 9.0" wrote this file in format 3, but gpt [0-9.dev]+ reads formats 1 to 2$'
    assert refused(saved, wrong).hint == "in the clone of gpt: git pull, then pip install -e ."


def test_an_imported_tokenizer_of_the_first_versions_equals_todays(saved: Path) -> None:
    edit_header(saved, tokenizer='{"kind":"kept"}')
    assert read_header(saved).metadata["tokenizer"] == '{"kind":"imported"}'


@pytest.mark.parametrize("metadata", [{"format_version": "0"}, {"format_version": "-1"}, {"step": "-7"}])
def test_formats_and_steps_that_never_were_are_refused(saved: Path, metadata: dict[str, str]) -> None:
    edit_header(saved, **metadata)
    refused(saved, "this is not a checkpoint of gpt", read_checkpoint, read_header)


def test_a_file_is_truncated_only_where_bytes_are_missing(saved: Path) -> None:
    content = saved.read_bytes()
    for size, wrong in (
        (-1, f"the file is truncated: it has {len(content) - 1:,} of {len(content):,} bytes"),
        (1, f"the file is damaged: it has {len(content) + 1:,} bytes, but its header describes {len(content):,}"),
    ):
        saved.write_bytes(content[:size] if size < 0 else content + b"x")
        refused(saved, f"{wrong}$", read_checkpoint, read_header)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_not_finite_are_counted_and_the_first_is_named(tmp_path: Path, number: float) -> None:
    checkpoint = make()
    checkpoint.weights["token_embedding.weight"][2, :3] = number
    checkpoint.weights["final_norm.weight"][0] = number
    save_checkpoint(tmp_path / "c.safetensors", checkpoint)
    said = r'c\.safetensors": there is NaN or infinity in its weights: 4 numbers in 2 tensors, for example in "token_embedding.weight"$'
    refused(tmp_path / "c.safetensors", said, read_checkpoint, PASSING)


def test_moments_that_are_not_finite_are_refused_by_those_who_continue_with_them(tmp_path: Path) -> None:
    checkpoint = make()
    checkpoint.optimizer_state["final_norm.weight.exp_avg"][1] = float("nan")
    save_checkpoint(tmp_path / "c.safetensors", checkpoint)
    assert read_checkpoint(tmp_path / "c.safetensors").build_model()
    said = 'there is NaN or infinity in its state of the optimizer: 1 number in 1 tensor, for example in "final_norm.weight.exp_avg"$'
    refused(tmp_path / "c.safetensors", said, WHOLE, PASSING)


def test_a_checkpoint_is_verified_in_pieces_and_no_number_stays(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "PIECE", 64)
    found, read = PASSING(saved), read_checkpoint(saved, everything=True)
    assert found.progress == read.progress
    for ours, theirs in ((found.weights, read.weights), (found.optimizer_state, read.optimizer_state)):
        kinds = [{name: (one.shape, one.dtype) for name, one in tensors.items()} for tensors in (ours, theirs)]
        assert kinds[0] == kinds[1]
        assert all(one.is_meta for one in ours.values())
    assert found.build_model()
    damage_the_last_moment(saved)
    refused(saved, "does not match its digest", PASSING)


def test_the_sentence_of_a_wrong_config_names_the_file_once(tmp_path: Path) -> None:
    resealed(tmp_path / "c.safetensors", make(), config='{"model": {"d_model": "x"}}')
    for read in (read_checkpoint, lambda path: read_header(path).config):
        error = refused(tmp_path / "c.safetensors", ', "model.d_model: ', read)
        assert error.where == f'"{tmp_path / "c.safetensors"}"'
        assert str(tmp_path) not in error.sentence
        assert '""' not in str(error)


def resealed(path: Path, checkpoint: Checkpoint, **metadata: str) -> None:
    """A hostile file: other metadata, with digests that match."""
    original = module.header_bytes

    def header(tensors: Mapping[str, tuple[str, Sequence[int]]], given: Mapping[str, str]) -> bytes:
        return original(tensors, {**given, **metadata})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "header_bytes", header)
        save_checkpoint(path, checkpoint)


@pytest.mark.parametrize(
    "metadata",
    [
        {"config": '{"model": {"_target_": "os.system"}}'},
        {"config": '{"out": "../../x"}'},
        {"config": '{"model": {"d_model": NaN}}'},
        {"config": '{"model": {}, "model": {}}'},
        {"config": "[" * 50_000},
        {"tokenizer": '{"kind": "pickle"}'},
        {"tokenizer": "{}"},
        {"progress": '{"step": 3}'},
        {"progress": '{"__class__": "x"}'},
        {"progress": PROGRESS.replace('"step": 7', '"step": -7')},
        {"progress": PROGRESS.replace('"step": 7', '"step": 8')},
        {"progress": PROGRESS.replace("1000", '"x"')},
        {"progress": PROGRESS.replace("}", ', "more": 1}', 1)},
    ],
)
def test_hostile_metadata_with_right_digests_is_refused(tmp_path: Path, metadata: dict[str, str]) -> None:
    resealed(tmp_path / "c.safetensors", make(), **metadata)
    with pytest.raises(CheckpointError):
        read_checkpoint(tmp_path / "c.safetensors")


@pytest.mark.parametrize(
    ("key", "number"), [("seconds", "1e300"), ("best_loss", "1" + "0" * 400), ("num_training_tokens", "1" + "0" * 400)]
)
def test_a_number_that_no_training_reaches_is_named_by_its_key(tmp_path: Path, key: str, number: str) -> None:
    progress = json.dumps({**json.loads(PROGRESS), key: "HERE"}).replace('"HERE"', number)
    resealed(tmp_path / "c.safetensors", make(), progress=progress)
    refused(tmp_path / "c.safetensors", f'its progress is not valid: the wrong key is "{key}"$')


def test_a_long_number_in_an_error_is_cut() -> None:
    with pytest.raises(ValueError, match=r"^10{19}… is more than a float can hold$"):
        strict_json(f'{{"loss": 1{"0" * 400}}}')


@pytest.mark.parametrize(
    "setting", ["model.num_blocks=1024", "model.d_model=65536", "model.d_model=8", "model.num_blocks=2"]
)
def test_a_config_that_does_not_fit_the_weights_is_refused_before_allocating(tmp_path: Path, setting: str) -> None:
    config = small_config("model.d_model=4", "model.num_blocks=1", setting)
    save_checkpoint(tmp_path / "c.safetensors", make(config=config))
    with pytest.raises(CheckpointError, match=r'c\.safetensors": its weights do not fit its config'):
        read_checkpoint(tmp_path / "c.safetensors").build_model()
