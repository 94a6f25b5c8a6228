"""Models as GGUF: the logits of the real llama.cpp, the way back, and what is refused."""

import contextlib
import importlib.util
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
import torch
from support.exchange import imported, read_into_memory, sharp_checkpoint
from support.faults import SCALE, scaled
from support.helpers import RunCommand
from support.llama_cpp import Served, needs_llama_cpp, serving
from support.tokenizers import LEARNED

from gpt_cli.checkpoints.checkpoint import Checkpoint, save_checkpoint
from gpt_cli.errors import CheckpointError, UsageError
from gpt_cli.text.split_patterns import WORD_PATTERN
from gpt_cli.text.tokenizers import BytePairTokenizer
from gpt_cli.tools.exchange.families import FAMILIES
from gpt_cli.tools.exchange.gguf.architectures import ARCHITECTURES, architecture_of
from gpt_cli.tools.exchange.gguf.export_gguf import write_gguf
from gpt_cli.tools.exchange.gguf.reader import read_gguf_header
from gpt_cli.tools.exchange.import_hf import read_foreign

pytestmark = needs_llama_cpp

_LAYER, _RMS = "model.norm=layernorm", "model.norm=rmsnorm"
_ROPE, _NO_BIAS = "model.positions=rope", "model.bias=false"
_GELU, _ERF, _GATE, _RELU2 = (f"model.activation={name}" for name in ("gelu_tanh", "gelu", "swiglu", "relu2"))
_GROUPS = ("model.attention=grouped_query", "model.num_key_value_heads=2")
_LLAMA3 = ("model.rope_base=500000", "model.rope_scaling=8", "model.rope_original_length=8192")
_LLAMA3 += ("model.rope_low_frequency=1", "model.rope_high_frequency=4")
CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "gpt2": ("gpt2", (_LAYER, _GELU)),
    "gpt2 with latents": ("gpt2", (_LAYER, _ERF, "model.attention=latent", "model.latent_size=16")),
    "starcoder2": ("starcoder2", (_LAYER, _ROPE, _GELU, *_GROUPS)),
    "starcoder2 without biases": ("starcoder2", (_LAYER, _ROPE, _GELU, _NO_BIAS, "model.tie_embeddings=false")),
    "nemotron": ("nemotron", (_LAYER, _ROPE, _RELU2, *_GROUPS)),
    "gptneox": ("gptneox", (_LAYER, _ROPE, _ERF, "model.parallel_branches=true", "model.rotary_size=4",
                            "model.qkv_bias=true", "model.tie_embeddings=false")),
    "gptneox, one branch after the other": ("gptneox", (_LAYER, _ROPE, _ERF, "model.rotary_size=6", _NO_BIAS)),
    "arcee": ("arcee", (_RMS, _ROPE, _RELU2, _NO_BIAS, *_GROUPS)),
    "llama": ("llama", (_RMS, _ROPE, _GATE, _NO_BIAS, *_GROUPS)),
    "llama with its scaled rope": ("llama", (_RMS, _ROPE, _GATE, _NO_BIAS, *_LLAMA3)),
    "llama with biases": ("llama", (_RMS, _ROPE, _GATE, "model.bias=true", "model.qkv_bias=true")),
    "mistral": ("llama", (_RMS, _ROPE, _GATE, _NO_BIAS, "model.attention_window=80", "model.head_size=16")),
    "qwen2": ("qwen2", (_RMS, _ROPE, _GATE, _NO_BIAS, "model.qkv_bias=true", *_GROUPS)),
    "qwen3": ("qwen3", (_RMS, _ROPE, _GATE, _NO_BIAS, "model.qk_norm=true", "model.head_size=16", *_GROUPS,
                        "model.scale=none")),
}  # fmt: skip
_LONG = ("starcoder2 without biases", "llama with biases")
NAMES = [name for name in CASES if SCALE >= 1 or name not in _LONG]
# the widths of q8_0: rows of 32 numbers
_KINDS = ("q8_0", "bf16", "f16")
_WIDE = (_RMS, _ROPE, _GATE, _NO_BIAS, "model.d_model=64", "model.head_size=16")
TOKENIZER = BytePairTokenizer("bpe", WORD_PATTERN, LEARNED.token_bytes[:300])  # merges of longer tokens take time
IDS = TOKENIZER.encode("The value of the function is the value of its argument. 今天天气很好。")


def without_our_key(path: Path, to: Path) -> Path:
    """The same file as a stranger would have made it: our key has another name."""
    content, name = path.read_bytes(), b"gpt_cli"
    key = len(name).to_bytes(8, "little") + name
    assert content.count(key) == 1
    to.write_bytes(content.replace(key, key[:-1] + b"x"))
    return to


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gguf")


@pytest.fixture(scope="module")
def checkpoints(folder: Path) -> dict[str, Checkpoint]:
    """Each case, written as a file of its name."""
    found = dict[str, Checkpoint]()
    for name in NAMES:
        architecture, settings = CASES[name]
        found[name] = sharp_checkpoint(*settings, tokenizer=TOKENIZER)
        assert write_gguf(folder / f"{name}.gguf", found[name], name, None)[0] == architecture
    wide = sharp_checkpoint(*_WIDE, tokenizer=TOKENIZER)
    for kind in _KINDS:
        write_gguf(folder / f"{kind}.gguf", wide, kind, kind)
        found[kind] = imported(folder / f"{kind}.gguf", folder / kind)
    return found


@pytest.fixture(scope="module")
def served(folder: Path, checkpoints: dict[str, Checkpoint]) -> Iterator[dict[str, Served]]:
    with serving(*(folder / f"{name}.gguf" for name in checkpoints)) as models:
        yield dict(zip(checkpoints, models, strict=True))


@pytest.mark.parametrize("name", [*NAMES, *_KINDS])
def test_llama_cpp_computes_the_same_log_probabilities(
    name: str, served: dict[str, Served], checkpoints: dict[str, Checkpoint]
) -> None:
    model, differences = checkpoints[name].build_model().eval(), list[float]()
    with torch.no_grad():
        expected = model(torch.tensor([IDS]))[0].double().log_softmax(-1)
    for length in range(len(IDS), 0, -1):
        if len(differences) >= 500:
            break
        body = {"prompt": IDS[:length], "n_predict": 1, "temperature": 0, "n_probs": 100, "cache_prompt": False}
        # llama.cpp keeps those of a token that is half a character to itself
        for step in served[name].asked("/completion", body).get("completion_probabilities", []):
            top = step["top_logprobs"]
            assert len(top) == 100
            differences += [abs(one["logprob"] - expected[length - 1, one["id"]].item()) for one in top]
    assert len(differences) >= 300
    # its GELU is a table of half floats; with q8_0 it rounds what it multiplies, with 16 bits its table of activations
    gelu = model.config.activation in ("gelu", "gelu_tanh")
    bound = {"q8_0": 0.2, "bf16": 0.05, "f16": 1e-2}.get(name, 3e-3 if gelu else 1e-5)
    assert max(differences) < bound


@pytest.mark.parametrize("name", NAMES)
def test_a_file_comes_back_as_the_model_that_it_was(
    name: str, folder: Path, checkpoints: dict[str, Checkpoint], tmp_path: Path
) -> None:
    before, path = checkpoints[name], folder / f"{name}.gguf"
    foreign = read_foreign(path)
    assert foreign.tokenizer.digest == before.tokenizer.digest
    after = imported(path, tmp_path / "run")
    if "latents" not in name and "scale=none" not in " ".join(CASES[name][1]):
        assert after.config.model == before.config.model
        assert foreign.notices == []
        assert all(torch.equal(after.weights[key], tensor) for key, tensor in before.weights.items())
    ids = torch.tensor([IDS])
    with torch.no_grad():
        logits = before.build_model()(ids)
        torch.testing.assert_close(after.build_model()(ids), logits, rtol=0, atol=1e-4)
        # others have no key of ours: what no key of theirs tells has its usual value
        config, weights = read_into_memory(without_our_key(path, tmp_path / "other.gguf"))
        others = replace(after, config=config, weights=weights).build_model()
        torch.testing.assert_close(others(ids), logits, rtol=0, atol=2e-3 if "latents" in name else 1e-4)


@pytest.mark.parametrize("kind", _KINDS)
def test_a_file_has_the_numbers_asked_for(kind: str, folder: Path, checkpoints: dict[str, Checkpoint]) -> None:
    exact = sharp_checkpoint(*_WIDE, tokenizer=TOKENIZER).weights
    found = checkpoints[kind].weights
    _, tensors = read_gguf_header(folder / f"{kind}.gguf")
    types = {name: tensor.dtype for name, tensor in tensors.items()}
    assert types["blk.0.attn_q.weight"] == types["token_embd.weight"] == kind.upper()
    assert types["blk.0.attn_norm.weight"] == "F32"
    for name, tensor in exact.items():
        if tensor.ndim == 1:
            assert torch.equal(found[name].float(), tensor)
        elif kind == "q8_0":  # half a step of each block of 32
            blocks = tensor.reshape(-1, 32)
            step = blocks.abs().amax(1, keepdim=True) / 127
            assert ((found[name].reshape(-1, 32) - blocks).abs() <= 0.502 * step + 1e-3 * step * 127).all()
        else:
            assert torch.equal(found[name], tensor.to({"bf16": torch.bfloat16, "f16": torch.float16}[kind]))


def test_rows_of_other_widths_are_float16(folder: Path, checkpoints: dict[str, Checkpoint], tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", checkpoints["llama"], "m", "q8_0")
    _, tensors = read_gguf_header(tmp_path / "m.gguf")
    assert {tensors[f"blk.1.{name}.weight"].dtype for name in ("attn_q", "ffn_up")} == {"F16"}, "48 wide"
    assert tensors["blk.1.ffn_down.weight"].dtype == "Q8_0", "192 wide"


@pytest.mark.parametrize(
    ("settings", "key", "value"),
    [
        ((_LAYER, "model.activation=relu"), "model.activation", "computes only gelu, gelu_tanh"),
        ((_LAYER, _ROPE, "model.activation=relu"), "model.activation", "computes only gelu, gelu_tanh, relu2"),
        ((_RMS, _ROPE, _GELU, _NO_BIAS), "model.activation", "computes only relu2"),
        ((_RMS, _ROPE, _RELU2, "model.bias=true"), "model.bias", "false can be exported"),
        ((_RMS, _ROPE, "model.activation=geglu", _NO_BIAS), "model.activation", "computes only swiglu"),
        ((_RMS, _ROPE, _GATE, _NO_BIAS, "model.attention_window=16"), "model.attention_window", "null can be exported"),
        ((_LAYER, _GELU, "model.attention_window=16"), "model.attention_window", "this kind of model"),
        ((_LAYER, _ROPE, _GELU, *_LLAMA3), "model.rope_scaling", "null can be exported"),
        (
            (_RMS, _ROPE, _GATE, _NO_BIAS, "model.qkv_bias=true", "model.head_size=16"),
            "model.head_size",
            "null can be exported",
        ),
        ((_LAYER, _GELU, "model.norm_position=post"), "model.norm_position", "norm_position=pre can be exported"),
    ],
)
def test_what_has_no_architecture_is_refused_with_one_that_has(settings: tuple[str, ...], key: str, value: str) -> None:
    model = sharp_checkpoint(*settings).config.model
    with pytest.raises(UsageError) as refused:
        architecture_of(model, 300)
    assert refused.value.where == key
    assert refused.value.sentence.endswith(value)


def test_only_an_architecture_with_learned_positions_has_their_table() -> None:
    names = {one.name: one.names(FAMILIES[one.types[0]], "0") for one in ARCHITECTURES.values()}
    assert {name for name, tensors in names.items() if "position_embd.weight" in tensors} == {"gpt2"}
    assert not [each for tensors in names.values() for each in tensors.values() if "None" in each]


def changed(path: Path, to: Path, key: str, value: int) -> Path:
    """The same file with another value of a whole number, by the last word of its key."""
    content = path.read_bytes()
    at = content.index(f".{key}".encode()) + len(key) + 1
    assert content[at : at + 4] == (4).to_bytes(4, "little"), "no uint32"
    to.write_bytes(content[: at + 4] + value.to_bytes(4, "little") + content[at + 8 :])
    return to


UNFIT = {"head_count_kv": [3], "key_length": [10, 7], "block_count": [2, 2**31], "head_count": [0, 2**31]}
UNFIT |= {"embedding_length": [0, 47], "context_length": [0], "dimension_count": [6]}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in UNFIT.items() for value in values])
def test_a_header_that_does_not_fit_its_tensors_is_refused(
    key: str, value: int, folder: Path, checkpoints: dict[str, Checkpoint], tmp_path: Path
) -> None:
    sentence = "llama.rope.dimension_count is 6, but gpt supports 12" if key == "dimension_count" else ""
    with pytest.raises(CheckpointError) as refused:
        read_foreign(changed(folder / "llama.gguf", tmp_path / "m.gguf", key, value))
    assert sentence in refused.value.sentence


def test_a_changed_header_gives_a_model_or_a_sentence(tally: Callable[[str, int], None], tmp_path: Path) -> None:
    draws = random.Random(0)
    for name in ("llama", "gptneox", "starcoder2 without biases"):
        path = tmp_path / "whole.gguf"
        write_gguf(path, sharp_checkpoint(*CASES[name][1]), name, None)  # of bytes, so that most of it is no vocabulary
        content = path.read_bytes()
        _, tensors = read_gguf_header(path)
        end = min(stored.start for stored in tensors.values())
        for case in range(count := scaled(1000, cost=3)):
            mutant = bytearray(content)
            for _ in range(1 + case % 2):
                at = draws.randrange(end)
                mutant[at] = draws.choice([mutant[at] ^ (1 << draws.randrange(8)), 0, 255, draws.randrange(256)])
            (tmp_path / "m.gguf").write_bytes(mutant)
            with contextlib.suppress(CheckpointError):
                imported(tmp_path / "m.gguf", tmp_path / f"{name}{case}")
        tally("headers of GGUF files of strangers: a model or a sentence", count)


def test_unknown_architectures_are_named(folder: Path, checkpoints: dict[str, Checkpoint], tmp_path: Path) -> None:
    content = (folder / "llama.gguf").read_bytes()
    (tmp_path / "m.gguf").write_bytes(content.replace(b"llama", b"phi99", 1))
    with pytest.raises(CheckpointError, match='it is a model of architecture "phi99", but gpt reads gpt2, starcoder2'):
        read_foreign(tmp_path / "m.gguf")
    at = b"llama.rope.freq_base"
    (tmp_path / "m.gguf").write_bytes(content.replace(at, b"llama.rope.freq_bass"))
    with pytest.raises(CheckpointError, match=r'"llama\.rope\.freq_bass" is 10000\.0, which gpt does not support'):
        read_foreign(tmp_path / "m.gguf")


def test_a_template_ends_no_text_of_the_modelfile(run: RunCommand, tmp_path: Path) -> None:
    settings = ("data.loss=answers", 'data.template=x"""\nADAPTER /etc/hostname\n{prompt}{{ .System }}')
    save_checkpoint(tmp_path / "here.safetensors", sharp_checkpoint(*CASES["qwen2"][1], *settings, tokenizer=TOKENIZER))
    run("export", "--run", tmp_path / "here.safetensors", "--out", tmp_path / "a.gguf", "--format", "gguf", exits=0)
    written = (tmp_path / "Modelfile").read_text().splitlines()
    expected = r'TEMPLATE """{{ "x\"\"\"\nADAPTER /etc/hostname\n" }}{{ .Prompt }}{{ "{{ .System }}" }}"""'
    assert written[2] == expected


def test_a_run_becomes_a_file_and_the_file_a_run(run: RunCommand, here: Path, tmp_path: Path) -> None:
    checkpoint = sharp_checkpoint(*CASES["qwen2"][1], tokenizer=TOKENIZER)
    save_checkpoint(tmp_path / "here.safetensors", checkpoint)
    out = tmp_path / "My Model.gguf"
    outcome = run("export", "--run", tmp_path / "here.safetensors", "--format", "gguf", "--out", out, "--json", exits=0)
    figures = json.loads(outcome.out)
    assert (figures["format"], figures["class"], figures["bytes"]) == ("gguf", "qwen2", out.stat().st_size)
    assert "llama.cpp may cut numbers of more than three digits" in outcome.err
    modelfile = (tmp_path / "Modelfile").read_text()
    assert "\nFROM ./My Model.gguf\n" in modelfile
    assert "\nPARAMETER num_ctx 80\n" in modelfile
    assert "\nPARAMETER temperature 0.8\n" in modelfile, "as gpt sample draws by default"
    assert modelfile.startswith("# written by gpt export: ollama create my-model -f Modelfile\n")
    assert '\nTEMPLATE """{{ .Prompt }}"""\n' in modelfile
    keys, _ = read_gguf_header(out)
    assert keys["general.architecture"] == "qwen2"
    assert keys["qwen2.context_length"] == 80
    assert keys["tokenizer.ggml.eos_token_id"] == TOKENIZER.end_of_text
    again = run("export", "--run", tmp_path / "here.safetensors", "--format", "gguf", "--out", out)
    assert again.out.startswith(f"{out}: qwen2 of llama.cpp, "), again.err
    back = run("import", out, "--out", tmp_path / "run", "--json", exits=0)
    assert back.err == ""
    sampled = ["--prompt", "The", "--greedy", "--max-new-tokens", "8", "--quiet"]
    expected = run("sample", "--run", tmp_path / "here.safetensors", *sampled)
    assert run("sample", "--run", tmp_path / "run", *sampled).out == expected.out
    for name, named in (("Tiny.GGUF", "runs/Tiny"), (".gguf", "runs/.gguf")):
        out = out.rename(here / name)
        assert run("import", out, exits=0).out.startswith(f"{named}: ")


@pytest.mark.parametrize("spec", [None, ModuleSpec("gguf", None)], ids=["nothing", "a folder of that name"])
def test_without_the_library_an_export_says_how_to_install_it(
    spec: ModuleSpec | None, smoke_run: Path, run: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec if name == "gguf" else real(name))
    outcome = run("export", "--run", smoke_run, "--format", "gguf", "--out", tmp_path / "m.gguf", exits=5)
    assert "pip install -e '.[gguf]'" in outcome.err
    assert not (tmp_path / "m.gguf").exists()


def test_a_file_has_no_steps(run: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF" + bytes(100))
    assert "this is a GGUF file" in run("import", tmp_path / "m.gguf", "--steps", exits=2).err
