"""Directories that are damaged or hostile: each is refused before its weights are read."""

import json
import os
import resource
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.exchange import sharp_checkpoint, with_config, write_as_others
from support.helpers import RunCommand

from gpt_cli.errors import CheckpointError
from gpt_cli.tools.exchange.hf_directory import read_directory
from gpt_cli.tools.exchange.import_hf import read_foreign


@pytest.fixture(scope="session")
def of_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of others."""
    settings = ["positions=rope", "norm=rmsnorm", "activation=swiglu", "bias=false", "feed_forward_size=96"]
    checkpoint = sharp_checkpoint(*(f"model.{setting}" for setting in settings))
    return write_as_others(tmp_path_factory.mktemp("llama") / "hf", checkpoint)


@pytest.fixture
def model(written: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(written, tmp_path / "model"))


def header_of(path: Path) -> tuple[dict[str, Any], bytes]:
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def write(path: Path, header: dict[str, Any], data: bytes) -> None:
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def with_header(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def changed(folder: Path) -> None:
        header, data = header_of(folder / "model.safetensors")
        change(header)
        write(folder / "model.safetensors", header, data)

    return changed


def with_index(weight_map: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / "model.safetensors").rename(folder / "a.safetensors")
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))

    return change


def with_content(name: str, content: bytes) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return change


def without(name: str, then: Callable[[Path], object] = lambda _: None) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        then(folder)

    return change


def huge(header: dict[str, Any]) -> None:
    header["transformer.wte.weight"]["shape"] = [2**40, 48]


def swapped(header: dict[str, Any]) -> None:
    header["transformer.wpe.weight"]["shape"].reverse()


def renamed(header: dict[str, Any]) -> None:
    header["transformer.h.9.ln_1.bias"] = header.pop("transformer.h.0.ln_1.bias")


def named_twice(header: dict[str, Any]) -> None:
    """As GPT2Model and as GPT2LMHeadModel; the two tensors are equally long."""
    header["h.0.ln_1.bias"] = header.pop("transformer.h.0.ln_2.bias")


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    os.truncate(path, path.stat().st_size - 100)


def not_finite(folder: Path) -> None:
    header, data = header_of(folder / "model.safetensors")
    write(folder / "model.safetensors", header, data[:-4] + np.float32(np.nan).tobytes())


def deep(levels: int) -> list[Any]:
    return [deep(levels - 1)] if levels else []


def of_ours(config: Any, **changes: Any) -> Callable[[Path], None]:
    """Claim to be an export of ours with a config."""
    return with_config(gpt_cli={"format": 1, "tokenizer": {}, "config": config}, **changes)


def with_entry(**changes: Any) -> Callable[[Path], None]:
    """A change of what the header says about one tensor."""
    return with_header(lambda header: header["transformer.wpe.weight"].update(changes))


NOT_WHOLE = "a shape or an offset that is not of whole numbers"
BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (without("config.json"), "it has no config.json"),
    "no JSON": (with_content("config.json", b'{"n_embd": 48'), "this is not valid JSON"),
    "deep JSON": (with_content("config.json", b"[" * 100_000), "this is not valid JSON: its lists and"),
    "no object": (with_content("config.json", b"[1]"), "this is not a JSON object"),
    "long config": (with_content("config.json", b" " * 2**21), "the config of a model has at most"),
    "other architecture": (
        with_config(model_type="mamba"),
        'it is a model of type "mamba", which gpt does not support',
    ),
    "no architecture": (with_config(model_type=None), "its config.json has no model_type"),
    "the keys of others": (with_config(model_type="llama"), "n_embd is 48, which gpt does not support"),
    "a missing size": (with_config(n_embd=None), "it has no n_embd"),
    "too many blocks": (with_config(n_layer=1000), "its config does not fit its tensors"),
    "other heads": (with_config(n_head=5), "n_embd: n_embd 48 is not a multiple of n_head 5"),
    "too much dropout": (with_config(resid_pdrop=1.5), "config.json: resid_pdrop: 1.5"),
    "a deep architecture": (with_config(model_type=deep(400)), "it is a model of type [[[["),
    "a large epsilon": (with_config(layer_norm_epsilon=2), "config.json: layer_norm_epsilon: 2"),
    "cross-attention": (with_config(add_cross_attention=True), "add_cross_attention is true"),
    "hostile own config": (of_ours([1]), "must contain a config"),
    "many heads": (of_ours({"model": {"d_model": 1024, "num_heads": 1024}}, n_embd=1024), "but its config requires"),
    "an own config of the wrong kind": (of_ours({"model": [1]}), "no valid config"),
    "no weights": (without("model.safetensors"), "it has no weights in safetensors"),
    "a pickle": (without("model.safetensors", with_content("pytorch_model.bin", b"PK")), "a pickle, which gpt never"),
    "cut": (cut, "truncated or damaged"),
    "empty": (with_content("model.safetensors", b""), "this is not a safetensors file"),
    "a huge header": (with_content("model.safetensors", struct.pack("<Q", 2**60) + b"{}"), "its header would take"),
    "a long header": (with_content("model.safetensors", struct.pack("<Q", 2**23) + b" " * 2**23), "at most 4,194,304"),
    "not a header": (with_content("model.safetensors", struct.pack("<Q", 8) + b"[1,2,34]"), "this is not a safet"),
    "an empty tensor": (with_header(lambda h: h["transformer.wpe.weight"].clear()), 'file: it has no key "dtype"'),
    "a shape of text": (with_entry(shape=["a"]), NOT_WHOLE),
    "other numbers": (with_entry(dtype="F8_E4M3"), 'numbers of type "F8_E4M3", which gpt does not support'),
    "a huge tensor": (with_header(huge), "does not match its shape"),
    "a hole": (with_header(lambda h: h.pop("transformer.wpe.weight")), "does not match its shape"),
    "another shape": (with_header(swapped), 'wpe.weight" has shape [48, 80], but'),
    "another name": (with_header(renamed), "it lacks 1 tensor: "),
    "a name twice": (with_header(named_twice), 'it has "transformer.h.0.ln_1.bias" twice'),
    "not finite": (not_finite, "numbers that are not finite"),
    "an index out of here": (with_index({"a": "../secret.safetensors"}), "but weights are .safetensors files"),
    "an index of no names": (with_index(["a"]), "this is not an index of weights"),
    "an index of nothing": (with_index({"a": "b.safetensors"}), "there is no such file"),
    "an index of others": (with_index({"wrong": "a.safetensors"}), "which has no such tensor"),
    "no tokenizer": (without("tokenizer.json"), "it has no tokenizer"),
}


BAD_LLAMAS: dict[str, tuple[Callable[[Path], object], str]] = {
    "NaN": (with_content("config.json", b'{"rms_norm_eps": NaN}'), "this is not valid JSON: NaN is not JSON"),
    "a negative base": (with_config(rope_theta=-1, rope_parameters=None), "config.json: rope_theta: -1"),
    "no width": (with_config(head_dim=0), "config.json: head_dim: 0"),
    "an odd width": (with_config(head_dim=13), "head_dim: rope rotates pairs, so 13 must be even"),
    "a million heads": (with_config(num_attention_heads=10**6), "config.json: num_attention_heads: 1000000"),
    "many wide heads": (with_config(num_attention_heads=1024, num_key_value_heads=1024, head_dim=2), "but its config"),
    "no divisor": (with_config(num_key_value_heads=3), "num_key_value_heads 3 does not divide num_attention_heads 4"),
    "other groups": (
        with_config(num_key_value_heads=2),
        'k_proj.weight" has shape [48, 48], but its config requires [24,',
    ),
    "biases": (with_config(attention_bias=True), "it lacks 12 tensors: "),
    "another family": (with_config(model_type="qwen3"), "it lacks 6 tensors: "),
    "tied": (with_config(tie_word_embeddings=True), "its output layer differs from its token embedding"),
    "no embedding": (
        with_header(lambda h: h.update(x=h.pop("model.embed_tokens.weight"))),
        "it has no token embedding",
    ),
    "a number there": (with_content("config.json", b'{"model_type": 7}'), "it is a model of type 7"),
    "no length": (with_config(max_position_embeddings=0), "config.json: max_position_embeddings: 0"),
}


@pytest.mark.parametrize(
    ("kind", "change", "sentence"),
    [
        *(pytest.param("written", *case, id=name) for name, case in BAD.items()),
        *(pytest.param("of_llama", *case, id=f"llama: {name}") for name, case in BAD_LLAMAS.items()),
    ],
)
def test_what_is_bad_is_refused_at_once_with_one_sentence(
    kind: str,
    change: Callable[[Path], object],
    sentence: str,
    request: pytest.FixtureRequest,
    run: RunCommand,
    here: Path,
) -> None:
    """And nothing is written."""
    change(Path(shutil.copytree(request.getfixturevalue(kind), "model")))
    started = time.process_time()
    outcome = run("import", "model", "--out", "run")
    assert time.process_time() - started < 2
    assert (outcome.code, outcome.out) == (4, ""), outcome.err
    lines = outcome.err.splitlines()
    assert sentence in outcome.err
    assert all(line.startswith(("error: ", "hint: ")) for line in lines)
    assert len([line for line in lines if line.startswith("hint: ")]) <= 1
    assert not Path("run").exists()


def test_all_that_does_not_fit_is_told_at_once(model: Path) -> None:
    with_config(layer_norm_epsilon=[1], activation_function="silu", add_cross_attention=True)(model)
    with pytest.raises(CheckpointError) as caught:
        read_foreign(model)
    assert len([line for line in caught.value.lines() if line.startswith("error")]) == 3


def test_a_header_takes_no_memory_for_what_it_promises(model: Path) -> None:
    with_header(huge)(model)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CheckpointError):
        read_directory(model)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


def test_a_link_to_a_file_elsewhere_is_read_as_caches_of_downloads_have_them(model: Path, tmp_path: Path) -> None:
    (model / "model.safetensors").rename(tmp_path / "blob")
    (model / "model.safetensors").symlink_to(tmp_path / "blob")
    assert read_foreign(model).config.model.d_model == 48
