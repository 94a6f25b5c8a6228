"""Models of every family that the real transformers saved, as models of ours, and on their way back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.families import MODELS, TEXT, V, exact, save_tokenizer, sharp_model

from gpt_cli.callbacks import uncounted
from gpt_cli.checkpoints.checkpoint import Checkpoint, read_checkpoint
from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.exchange.export_model import write_for_transformers
from gpt_cli.exchange.foreign import read_foreign
from gpt_cli.exchange.import_model import write_run
from gpt_cli.sampling.decoder import Decoder
from gpt_cli.sampling.generate import generate
from gpt_cli.sampling.next_token import SamplingParameters

# of each family the shape that is best known
BEST_KNOWN = ["TinyStories-1M", "Pythia-14M", "Llama-3.2", "mistral", "Qwen2.5-0.5B", "Qwen3-0.6B"]


class Pair(NamedTuple):
    """A model of theirs, where it is saved, and the checkpoint that `gpt import` makes of it."""

    theirs: Any
    directory: Path
    ours: Checkpoint
    rows: list[int]  # the id there of each id here


def imported(directory: Path, out: Path) -> Checkpoint:
    """The run that `gpt import` writes."""
    write_run(RunDirectory(out), read_foreign(directory), uncounted)
    return read_checkpoint(out / "checkpoints" / "best.safetensors", everything=True)


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
        foreign = read_foreign(folder / "hf")
        pairs[name] = Pair(
            theirs, folder / "hf", imported(folder / "hf", folder / "run"), foreign.weights._rows.tolist()
        )
    return pairs[name]


def close(found: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("pair", MODELS, indirect=True)
def test_an_imported_model_computes_the_same(pair: Pair) -> None:
    theirs, ours = pair.theirs, pair.ours.build_model()
    here = torch.randint(0, V, (2, 80), generator=torch.Generator().manual_seed(3))
    there = torch.tensor(pair.rows)[here]
    with torch.no_grad():
        found = theirs(there, output_attentions=True)
        logits = ours(here)
        assert logits.abs().max() > 2  # a model that says something
        close(logits, found.logits[..., pair.rows], 1e-5)
        weights = ours.attention_weights(here)
        close(weights, torch.stack(found.attentions), 1e-5)
        assert weights.amax(-1).mean() > 0.1  # where equal weights would have 0.06


@pytest.mark.parametrize("pair", MODELS, indirect=True)
def test_it_writes_the_same_64_tokens(pair: Pair) -> None:
    prompt = pair.ours.tokenizer.encode(TEXT[:20])[:8]
    there = torch.tensor([[pair.rows[i] for i in prompt]])
    pair.theirs.generation_config.eos_token_id = None
    expected = pair.theirs.generate(there, attention_mask=torch.ones_like(there), max_new_tokens=64, do_sample=False)
    steps = generate(Decoder(pair.ours.build_model()), [prompt], SamplingParameters(temperature=0), max_new_tokens=64)
    assert [pair.rows[draw.token] for (draw,) in steps if draw] == expected[0, len(prompt) :].tolist()


@pytest.mark.parametrize("pair", MODELS, indirect=True)
def test_an_import_that_is_exported_is_the_same_class_with_the_same_tensors(
    pair: Pair, transformers: Any, tmp_path: Path
) -> None:
    fitted = write_for_transformers(tmp_path / "hf", pair.ours)
    assert fitted.class_name == type(pair.theirs).__name__
    again, loading = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert not any(loading.values())
    before, zeros = pair.theirs.state_dict(), 0
    for name, tensor in again.state_dict().items():
        if name not in before:  # a bias that this config of theirs leaves out
            assert not tensor.any()
            zeros += 1
        elif (
            tensor.shape[0] == V
            and tensor.ndim == 2
            and "embed" in name
            or name.endswith(("wte.weight", "lm_head.weight"))
        ):
            assert torch.equal(tensor, before[name][pair.rows])
        else:
            assert torch.equal(tensor, before[name]), name
    assert zeros == len(again.state_dict()) - len(before)
    foreign = read_foreign(tmp_path / "hf")
    assert foreign.config.model == pair.ours.config.model
    ids = torch.arange(40).view(2, 20)
    with torch.no_grad():
        close(again(ids).logits, pair.ours.build_model()(ids), 1e-5)


@pytest.mark.parametrize("pair", MODELS, indirect=True)
def test_in_float64_nothing_is_rounded_otherwise(pair: Pair, transformers: Any) -> None:
    kind = type(pair.theirs)
    theirs, ours = kind.from_pretrained(pair.directory), pair.ours.build_model().double()
    exact(theirs, ours.rotary)
    here = torch.randint(0, V, (2, 80), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        logits = theirs(torch.tensor(pair.rows)[here]).logits[..., pair.rows]
        # GPT-Neo computes its scores in float32 in any case
        close(ours(here), logits, 1e-5 if "Neo" in kind.__name__ and "NeoX" not in kind.__name__ else 1e-10)
