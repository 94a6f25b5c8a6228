"""Compiled code computes what torch computes, for all settings of a model."""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from support.helpers import sharp_model
from torch import Tensor

from gpt_cli.model import GPT
from gpt_cli.sampling.decoder import Decoder
from gpt_cli.sampling.fast import c_library
from gpt_cli.sampling.fast.c_library import Weight, library
from gpt_cli.sampling.fast.int8 import round_weights, to_int8

QUICKLY = ["-march=native", "-fopenmp", "-fPIC", "-c"]  # without optimising, where speed does not matter
pytestmark = pytest.mark.skipif(not (shutil.which("cc") or os.environ.get("CI")), reason="needs a C compiler")
V, C = 37, 24
TOKENS = [(5 * i + i * i) % V for i in range(40)]
GROUPED = ["model.attention=grouped_query", "model.num_heads=4", "model.num_key_value_heads=2"]
SETTINGS = [
    [],
    ["model.positions=rope", "model.bias=false", "model.activation=gelu_tanh", "model.tie_embeddings=false"],
    ["model.positions=rope", "model.rotary_size=2", "model.parallel_branches=true", "model.qkv_bias=true"],
    ["model.positions=sinusoidal", "model.norm_position=post", "model.activation=relu", "model.head_size=6"],
    ["model.positions=none", "model.norm=rmsnorm", "model.activation=relu2", "model.scale=none"],
    [*GROUPED, "model.positions=rope", "model.norm=rmsnorm", "model.activation=swiglu", "model.qk_norm=true"],
    [*GROUPED, "model.positions=rope", "model.attention_window=[null,5]", "model.activation=geglu"],
    ["model.positions=rope", "model.d_model=18", "model.num_heads=1", "model.feed_forward_size=75"],
]


@pytest.fixture(autouse=True)
def _fresh_library() -> Iterator[None]:
    library.cache_clear()
    yield
    library.cache_clear()


def make_model(*settings: str) -> GPT:
    return sharp_model(V, f"model.context_length={C}", *settings).float()


def logits(model: GPT, prompt: list[int], following: Sequence[int] = TOKENS, **options: object) -> Tensor:
    """Those after a prompt, and after each of the following tokens, which go beyond the context."""
    decoder = Decoder(model, **options)  # type: ignore[arg-type]
    return torch.cat([decoder.prefill([prompt]), *(decoder.decode([token]) for token in following)])


def rounded(model: GPT) -> GPT:
    """The same with weights that bfloat16 has."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.bfloat16())
    return model


@pytest.mark.parametrize("settings", SETTINGS)
def test_logits_equal_those_of_torch(settings: list[str]) -> None:
    model = make_model(*settings)
    plain = logits(model, [3, 1, 4])
    found = logits(model, [3, 1, 4], compiled=True)
    assert plain.abs().max() > 1
    torch.testing.assert_close(found, plain, rtol=1e-4, atol=1e-4)
    assert found.argmax(dim=1).tolist() == plain.argmax(dim=1).tolist()
    long = TOKENS[:C], TOKENS[C : C + 2]  # more rows than one
    torch.testing.assert_close(logits(model, *long, compiled=True), logits(model, *long), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("settings", [SETTINGS[0], SETTINGS[5]])
def test_stored_numbers_of_fewer_bits_give_the_logits_of_the_same_numbers_in_float32(settings: list[str]) -> None:
    model = rounded(make_model(*settings))
    plain = logits(model, [3, 1, 4])
    half = logits(model, [3, 1, 4], compiled=True, dtype=torch.bfloat16)
    torch.testing.assert_close(half, plain, rtol=1e-4, atol=1e-4)
    whole = logits(model, [3, 1, 4], compiled=True, int8=True)
    torch.testing.assert_close(whole, logits(round_weights(model), [3, 1, 4]), rtol=1e-4, atol=1e-4)
    assert (whole - plain).abs().max() > 1e-3


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (4, 64), (7, 131), (130, 96)])
@pytest.mark.parametrize("num_rows", [1, 3, 17])
def test_products_of_any_shape_equal_those_of_torch(shape: tuple[int, int], num_rows: int) -> None:
    generator = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(shape, generator=generator), torch.randn(shape[0], generator=generator)
    x = torch.randn(num_rows, shape[1], generator=generator)
    torch.testing.assert_close(Weight(weight, bias)(x), F.linear(x, weight, bias), rtol=1e-5, atol=1e-4)
    half = weight.bfloat16()
    torch.testing.assert_close(Weight(half, None)(x), F.linear(x, half.float()), rtol=1e-5, atol=1e-4)
    numbers, scales = to_int8(weight)
    wide = numbers * scales.float()[:, None]
    torch.testing.assert_close(Weight(numbers, bias, scales)(x), F.linear(x, wide, bias), rtol=1e-5, atol=1e-4)


def test_a_library_is_compiled_once_and_again_if_it_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_library, "_COMPILE", QUICKLY)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "first"))
    assert library() is not None
    (kept,) = (tmp_path / "first").rglob("*.so")
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("it is compiled already"))
        library.cache_clear()
        assert library() is not None
    damaged = tmp_path / "second" / kept.relative_to(tmp_path / "first")  # as the process has loaded the first
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"damaged")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "second"))
    library.cache_clear()
    assert library() is not None
    assert damaged.read_bytes().startswith(b"\x7fELF")


@pytest.mark.parametrize("compiler", ["", "false", "no-such-compiler", '"cc'])
def test_without_a_compiler_torch_computes_all(compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", compiler)
    assert library() is None
    model = make_model()
    assert torch.equal(logits(model, [3], [1], compiled=True), logits(model, [3], [1]))


def test_a_cache_that_cannot_be_written_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gpt-cli").write_text("a file where the folder would be")
    monkeypatch.setattr(c_library, "_COMPILE", QUICKLY)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert library() is not None


def test_a_library_is_loaded_where_nothing_may_run_from_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> ctypes.CDLL:
        if name.endswith("/token.so"):
            raise OSError("failed to map segment from shared object")
        return loaded(name)

    loaded = ctypes.CDLL
    monkeypatch.setattr(ctypes, "CDLL", refuse)
    monkeypatch.setattr(c_library, "_COMPILE", QUICKLY)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert library() is not None


def test_latents_stay_with_torch_and_n_grams_come_in_embeddings() -> None:
    assert not Decoder(make_model("model.attention=latent"), compiled=True).compiled
    model = make_model("model.ngram_embedding=2")
    torch.testing.assert_close(logits(model, [3], compiled=True), logits(model, [3]), rtol=1e-4, atol=1e-4)


def test_several_rows_stay_with_torch() -> None:
    assert Decoder(make_model(), compiled=True).compiled
    assert not Decoder(make_model(), compiled=True, num_rows=2).compiled
    assert not Decoder(make_model().double(), compiled=True).compiled
