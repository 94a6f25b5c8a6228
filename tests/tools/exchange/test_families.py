"""Models of every family that the real transformers saved, as models of ours, and on their way back."""

import json
import shutil
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.exchange import close, imported, read_into_memory
from support.families import MODELS, TEXT, V, exact, save_tokenizer, sharp_model
from support.faults import SCALE
from support.helpers import RunCommand

from gpt_cli import load
from gpt_cli.checkpoints.checkpoint import Checkpoint
from gpt_cli.tools.exchange.export_hf import write_for_transformers
from gpt_cli.tools.exchange.import_hf import read_foreign

EMBEDDINGS = ("wte.weight", "embed_in.weight", "embed_tokens.weight", "lm_head.weight")
# what others beside them say too
_LONG = ("gpt2 with relu", "gpt_neo, all global", "gpt_neox, tied", "SimpleStories", "mistral without a window")
NAMES = [name for name in MODELS if SCALE >= 1 or name not in _LONG]


class Pair(NamedTuple):
    """A model of theirs, where it is saved, and the checkpoint that `gpt import` makes of it."""

    name: str
    theirs: Any
    directory: Path
    ours: Checkpoint


@pytest.fixture(scope="session")
def tokenizer_directory(_library: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(folder, _library)
    return folder


@pytest.fixture(scope="module")
def pairs() -> dict[str, Pair]:
    return {}


@pytest.fixture
def pair(
    request: pytest.FixtureRequest,
    pairs: dict[str, Pair],
    transformers: Any,
    tokenizer_directory: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Pair:
    """The pair of a name in MODELS, made once."""
    name = request.param
    if name not in pairs:
        folder = tmp_path_factory.mktemp("family")
        theirs = sharp_model(transformers, name)
        theirs.save_pretrained(folder / "hf")
        shutil.copytree(tokenizer_directory, folder / "hf", dirs_exist_ok=True)
        pairs[name] = Pair(name, theirs, folder / "hf", imported(folder / "hf", folder / "run"))
    return pairs[name]


@pytest.mark.parametrize("pair", NAMES, indirect=True)
def test_an_imported_model_computes_the_same_and_rounds_nothing_otherwise(pair: Pair) -> None:
    theirs, ours = pair.theirs, pair.ours.build_model()
    here = torch.randint(0, V, (2, 80), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        found = theirs(here, output_attentions=True)
        logits = ours(here)
        assert logits.abs().max() > 2  # a model that says something
        # some processors round these sums to 1.1e-5; in float64 they are equal
        close(logits, found.logits[..., :V], 2e-5)
        weights = ours.attention_weights(here)
        close(weights, torch.stack(found.attentions), 1e-5)
        assert weights.amax(-1).mean() > 0.1  # where equal weights would have 0.06
        theirs, ours = deepcopy(theirs), ours.double()
        exact(theirs, ours.rotary)
        # GPT-Neo computes its scores in float32 in any case
        close(ours(here), theirs(here).logits[..., :V], 1e-5 if theirs.config.model_type == "gpt_neo" else 1e-10)


# where scores are not scaled, q is
@pytest.mark.parametrize("pair", [name for name in NAMES if "not scaled" not in name], indirect=True)
def test_an_exported_import_has_the_same_class_and_tensors(pair: Pair, transformers: Any, tmp_path: Path) -> None:
    fitted = write_for_transformers(tmp_path / "hf", pair.ours)
    assert fitted.class_name == type(pair.theirs).__name__
    again, loading = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert not any(loading.values())
    before, after = pair.theirs.state_dict(), again.state_dict()
    added = after.keys() - before.keys()
    assert before.keys() <= after.keys()
    assert not any(after[name].any() for name in added), "biases that a config of theirs leaves out"
    assert bool(added) == ("half" in pair.name or "without biases" in pair.name or "one after" in pair.name)
    for name, tensor in before.items():
        of_tokens = name.endswith(EMBEDDINGS)
        assert torch.equal(after[name], tensor[:V] if of_tokens else tensor), name
    foreign = read_foreign(tmp_path / "hf")
    assert foreign.config.model == pair.ours.config.model
    ids = torch.arange(40).view(2, 20)
    with torch.no_grad():
        close(again(ids).logits, pair.ours.build_model()(ids), 1e-5)


@pytest.mark.parametrize("pair", ["gpt2", "TinyStories-1M", "Pythia-14M", "Llama-3.2"], indirect=True)
def test_shards_halves_other_names_and_constants_give_the_same_run(pair: Pair, tmp_path: Path) -> None:
    expected = pair.ours.weights
    shards, older, padded = (Path(shutil.copytree(pair.directory, tmp_path / name)) for name in ("a", "b", "c"))
    (shards / "model.safetensors").unlink()
    pair.theirs.save_pretrained(shards, max_shard_size="60KB")
    assert len(list(shards.glob("model-*.safetensors"))) > 3
    # as the class without an output layer, and older versions with their constants, stored it
    tensors = load_file(older / "model.safetensors")
    prefix = pair.theirs.base_model_prefix
    named = {name.removeprefix(f"{prefix}."): tensor.clone() for name, tensor in tensors.items()}
    constants = {
        "gpt2": {"h.0.attn.bias": torch.ones(1, 1, 9, 9).bool(), "h.0.attn.masked_bias": torch.tensor(-1e4)},
        "TinyStories-1M": {"h.0.attn.attention.bias": torch.ones(1, 1, 9, 9).bool()},
        "Pythia-14M": {
            "layers.0.attention.bias": torch.ones(1, 1, 9, 9).bool(),
            "layers.0.attention.masked_bias": torch.tensor(-1e9),
            "layers.0.attention.rotary_emb.inv_freq": torch.ones(4),
        },
        "Llama-3.2": {"layers.0.self_attn.rotary_emb.inv_freq": torch.ones(6), "rotary_emb.inv_freq": torch.ones(6)},
    }[pair.name]
    tied = pair.theirs.config.tie_word_embeddings
    copies = {"lm_head.weight": pair.theirs.get_input_embeddings().weight.detach().clone()} if tied else {}
    save_file({**named, **constants, **copies}, older / "model.safetensors")
    halves = {
        Path(shutil.copytree(pair.directory, tmp_path / str(dtype))): dtype for dtype in (torch.float16, torch.bfloat16)
    }
    for directory, dtype in halves.items():
        save_file({name: tensor.to(dtype) for name, tensor in tensors.items()}, directory / "model.safetensors")
    # rows of embeddings that no token has
    more = {
        name: torch.cat([t, t[:7]]) if name.endswith((*EMBEDDINGS, "embed_out.weight")) else t
        for name, t in tensors.items()
    }
    save_file(more, padded / "model.safetensors")
    for directory in (shards, older, padded, *halves):
        _, found = read_into_memory(directory)
        assert found.keys() == expected.keys()
        for name, tensor in expected.items():
            assert torch.equal(found[name], tensor.to(halves.get(directory)).float()), name
    assert "left out: 7 rows of embeddings without a token" in read_foreign(padded).notices


def test_a_context_is_as_long_as_the_model_allows_and_is_asked_for(
    transformers: Any, tokenizer_directory: Path, tmp_path: Path, run: RunCommand, here: Path
) -> None:
    for name, key in (("SimpleStories", "max_position_embeddings"), ("gpt2 with another epsilon", "n_positions")):
        theirs = sharp_model(transformers, name, **{key: 80 if "gpt2" in name else 131072})
        theirs.save_pretrained(tmp_path / name)
        shutil.copytree(tokenizer_directory, tmp_path / name, dirs_exist_ok=True)
    llama, gpt2 = tmp_path / "SimpleStories", tmp_path / "gpt2 with another epsilon"
    outcome = run("import", llama, "--out", "a", "--json")
    assert json.loads(outcome.out.splitlines()[-1])["context_length"] == 8192
    assert "context_length is 8,192 here, and 131,072 in the model itself" in outcome.err
    outcome = run("import", llama, "--out", "b", "--context-length", "32", "--json")
    assert json.loads(outcome.out.splitlines()[-1])["context_length"] == 32
    assert load("b").model.config.context_length == 32
    for directory, length, sentence in (
        (llama, "131073", "--context-length"),
        (gpt2, "81", "--context-length: the model has a context of 80 tokens, fewer than 81"),
        (gpt2, "79", "--context-length: the model has 80 learned positions"),
    ):
        outcome = run("import", directory, "--out", "c", "--context-length", length)
        assert (outcome.code, sentence in outcome.err) == (2, True), outcome.err
    # positions of rope have no weights, so a training may take fewer of them, and more
    Path("my.txt").write_text(TEXT * 40)
    for source, length in ((llama, 16), ("b", 48)):
        settings = [f"model.context_length={length}", "train.batch_size=1", "train.sample_every=null"]
        flags = [word for setting in settings for word in ("--set", setting)]
        words = ("--data", "my.txt", "--out", "t", "--max-steps", "1", "--overwrite", *flags)
        run("train", "--init-from", source, *words, exits=0)
