"""`gpt import`, and what all commands do with its run."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.exchange import sharp_checkpoint, with_config
from support.helpers import CORPUS_TEXT, RunCommand
from support.light import WithoutTorch

from gpt_cli import load
from gpt_cli.checkpoints.checkpoint import read_checkpoint
from gpt_cli.common.host import NOBODY
from gpt_cli.config.load import read_config
from gpt_cli.errors import UsageError
from gpt_cli.tools.exchange.export_hf import write_for_transformers
from gpt_cli.tools.exchange.export_model import write_file
from gpt_cli.tools.exchange.import_model import Imported, adopt
from gpt_cli.tools.exchange.request import ImportRequest


@pytest.fixture
def directory(written: Path, here: Path) -> Path:
    """A GPT-2 in hf/, and a text in my.txt."""
    Path("my.txt").write_text(CORPUS_TEXT)
    return Path(shutil.copytree(written, "hf"))


def test_every_command_works_with_an_imported_run(directory: Path, run: RunCommand) -> None:
    outcome = run("import", directory, "--json", "--quiet", exits=0)
    sizes = {"context_length": 80, "d_model": 48, "num_heads": 4, "num_blocks": 3}
    facts = json.loads(outcome.out)
    model = load("runs/hf").model
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    assert facts == {"run": "runs/hf", "parameters": num_parameters, "vocab_size": 257, **sizes}
    for command in (
        ["sample", "--prompt", "the", "--max-new-tokens", "5", "--seed", "1"],
        ["sample", "--prompt", "the", "--max-new-tokens", "5", "--seed", "1", "--quantize", "int8"],
        ["attn-dump", "--prompt", "the", "--out", "a.json"],
        ["explain", "--prompt", "the", "--layer", "1", "--head", "2", "--query", "2", "--json"],
        ["eval", "--data", "my.txt", "--json"],
        ["info", "--json"],
    ):
        outcome = run(*command, exits=0)
        if command[0] == "explain":
            formulas = [step["formula"] for step in json.loads(outcome.out)["steps"]]
            assert {"q = Wq a + bq", "k = Wk a + bk", "v = Wv a + bv"} <= set(formulas)


def test_of_two_imports_at_once_the_second_finds_the_run_of_the_first(directory: Path) -> None:
    first, second, third = (
        ImportRequest(directory=[directory], overwrite=overwrite) for overwrite in (False, False, True)
    )
    found = [request.find(NOBODY) for request in (first, second, third)]
    adopt(first, found[0], NOBODY)
    with pytest.raises(UsageError, match="there is a run already; replace it with overwrite=True"):
        adopt(second, found[1], NOBODY)
    adopt(third, found[2], NOBODY)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_weights_of_16_bits_stay_as_they_are_until_float32_is_asked_for(
    dtype: torch.dtype, directory: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    # compiled code rounds otherwise than torch where the processor multiplies bfloat16
    monkeypatch.setattr("gpt_cli.sampling.sample._pays", lambda model, request: False)
    theirs = {name: tensor.to(dtype) for name, tensor in load_file("hf/model.safetensors").items()}
    save_file(theirs, "hf/model.safetensors", {"format": "pt"})
    run("import", directory, "--quiet", exits=0)
    file = Path("runs/hf/checkpoints/best.safetensors")
    stored = load_file(file)
    assert {tensor.dtype for tensor in stored.values()} == {dtype}
    assert torch.equal(stored["token_embedding.weight"], theirs["transformer.wte.weight"])
    head = theirs["transformer.h.1.attn.c_attn.weight"].T[12:24]
    assert torch.equal(stored["blocks.1.attention.heads.1.Wq.weight"], head)
    read = read_checkpoint(file, everything=True).weights
    assert {tensor.dtype for tensor in read.values()} == {torch.float32}
    assert all(torch.equal(read[name], tensor.float()) for name, tensor in stored.items())
    assert json.loads(run("info", "runs/hf", "--json").out)["weights"] == str(dtype).removeprefix("torch.")

    # what is sampled is what the same numbers in float32 give, in each number format
    words = ["--prompt", "the", "--max-new-tokens", "8", "--seed", "1", "--quiet"]
    write_file(Path("wide.safetensors"), read_checkpoint(file))
    for numbers in (["--dtype", "bfloat16"], ["--quantize", "int8"]):
        found = [run("sample", "--run", name, *words, *numbers).out for name in ("runs/hf", "wide.safetensors")]
        assert found[0] == found[1] != ""

    run("export", "--run", "runs/hf", "--format", "hf", "--out", "again", "--quiet", exits=0)
    again = load_file("again/model.safetensors")
    assert {name: tensor.dtype for name, tensor in again.items()} == dict.fromkeys(theirs, dtype)
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in again.items())
    assert json.loads(Path("again/config.json").read_text())["dtype"] == str(dtype).removeprefix("torch.")


def test_what_is_no_model_gets_the_command_that_helps(directory: Path, run: RunCommand) -> None:
    run("import", directory, "--out", "runs/mine", exits=0)
    for name in ("steps/step2", "steps/step10", "two/small", "two/large"):
        shutil.copytree(directory, name)
    Path("two/closed").symlink_to("x" * 300)  # stat fails, as for a link into a closed home
    again = "it has no config.json, so it is not a model of transformers"
    file = "runs/mine/checkpoints/best.safetensors"
    for name, sentence, hint in (
        ("runs/mine", "this is a run already, so there is nothing to import", "gpt sample --run runs/mine"),
        (file, "this is a file, but a model of transformers is a directory", f"gpt sample --run {file}"),
        ("steps", again, "gpt import steps/step* --steps"),
        ("two", again, "gpt import two/large"),
        ("two/smal", "there is no such directory", "did you mean two/small?"),
        ("steps/new", "there is no such directory", None),
        ("tiny.gguf", "there is no such file", "to fetch it: hf download OWNER/NAME tiny.gguf --local-dir ."),
        ("my model.gguf", "there is no such file", "to fetch it: hf download OWNER/NAME 'my model.gguf' --local-dir ."),
        ("mpt", "there is no such directory", "to fetch it: hf download OWNER/mpt --local-dir mpt; then gpt import"),
    ):
        outcome = run("import", name)
        said = outcome.err.splitlines()
        assert (outcome.code, said[0]) == (4, f'error: "{name}": {sentence}')
        assert said[1].startswith(f"hint: {hint}") if hint else not said[1:]
    outcome = run("import", "two/small", "two/large")
    assert (outcome.code, outcome.err.splitlines()[1]) == (2, "hint: --steps, or import one at a time")


def test_an_imported_run_has_no_text_and_no_logger(directory: Path, run: RunCommand) -> None:
    """Whoever made the directory may have named any."""
    settings = ["model.qkv_bias=true", "data.source=/etc/passwd", "data.text_field=body", "train.batch_size=5"]
    settings += ["train.log_to=[tensorboard]", "train.compile=on", "inspect.prompt=ab", "tokenizer.kind=byte"]
    write_for_transformers(Path("hf"), sharp_checkpoint(*settings))
    config = json.loads(Path("hf/config.json").read_text())
    config["gpt_cli"]["config"]["tokenizer"] |= {"kind": "tiktoken", "name": "o200k_base"}
    Path("hf/config.json").write_text(json.dumps(config))
    run("import", directory, "--out", "a", exits=0)
    found = read_config("a/config.yaml")
    assert (found.data.source, found.data.text_field, found.train.batch_size) == ("python-docs", "body", 5)
    assert (found.train.log_to, found.train.compile, found.inspect.prompt) == ([], "auto", None)
    assert (found.tokenizer.kind, found.tokenizer.name) == ("byte", "gpt2")
    for command in (["eval", "--run", "a"], ["heads", "--run", "a"], ["train", "--init-from", "a", "--out", "b"]):
        outcome = run(*command)
        sentence = '"a": this run was imported, so it has no text of its own'
        assert (outcome.code, outcome.err) == (2, f"error: {sentence}\nhint: --data FILE\n")
    assert "python-docs" not in run("report", "a", "--json").out


def test_a_run_that_is_there_is_replaced_only_when_that_is_asked_for(directory: Path, run: RunCommand) -> None:
    assert run("import", directory, "--out", "a").out.startswith("a: ")
    before = Path("a/checkpoints/best.safetensors").read_bytes()
    outcome = run("import", directory, "--out", "a")
    assert (outcome.code, "there is a run already" in outcome.err) == (2, True)
    run("import", directory, "--out", "a", "--overwrite", exits=0)
    assert Path("a/checkpoints/best.safetensors").read_bytes() == before
    run("import", directory, "--out", "my.txt", exits=2)
    (Path("hf") / "metrics.jsonl").write_text("")
    outcome = run("import", directory, "--out", directory)
    assert (outcome.code, "it contains metrics.jsonl" in outcome.err) == (2, True)


def test_there_is_nothing_to_continue_in_an_imported_run(directory: Path, run: RunCommand) -> None:
    run("import", directory, "--out", "a", exits=0)
    refused = run("train", "--config", "smoke", "--out", "a", exits=2).err.splitlines()
    assert refused == ['error: "a": there is a run already; replace it with --overwrite, or name another --out']
    outcome = run("train", "--out", "a", "--resume", "--data", "my.txt", exits=4)
    assert "it was" not in outcome.out
    assert "imported and never trained" in outcome.err
    assert "hint: gpt train --init-from a --out a-tuned --data my.txt" in outcome.err
    assert load("a").step == 0, "its weights are still there"
    outcome = run("heads", "--run", "a", "--over-training")
    assert "hint: gpt train --init-from a --data my.txt --out runs/watched --watch 'one two one two'" in outcome.err


def test_a_directory_of_transformers_or_a_gguf_file_as_a_run_leads_to_import(directory: Path, run: RunCommand) -> None:
    for command in (["sample", "--prompt", "a", "--run", directory], ["info", directory]):
        outcome = run(*command)
        assert (outcome.code, "this is not a run but a model of transformers" in outcome.err) == (4, True)
        assert "hint: gpt import hf --out runs/hf" in outcome.err
    Path("m.gguf").write_bytes(b"GGUF" + bytes(99))
    for command in (["sample", "--prompt", "a", "--run"], ["info"]):
        assert run(*command, "m.gguf", exits=4).err.splitlines()[-1] == "hint: gpt import m.gguf"


def test_a_refusal_needs_no_torch(directory: Path, without_torch: WithoutTorch) -> None:
    with_config(model_type="mamba")(directory)
    outcome = without_torch("import", directory, "--out", "a")
    assert outcome.returncode == 4
    assert outcome.stderr.splitlines() == [
        'error: "hf": it is a model of type "mamba", which gpt does not support',
        "hint: gpt imports models of type gpt2, gpt_neo, gpt_neox, llama, mistral, qwen2, qwen3, starcoder2, arcee",
    ]
    with_config(model_type="gpt2", quantization_config={"bits": 4})(directory)
    outcome = without_torch("import", directory, "--out", "a")
    assert outcome.stderr.splitlines() == [
        'error: "hf": config.json: quantization_config is {"bits": 4}, which gpt does not support',
        "hint: look for another version of the model: gpt never imports a model only approximately",
    ]
    for name in ("openai-community/gpt2", "gpt2"):
        outcome = without_torch("import", name, "--out", "a")
        fetch = "to fetch it: hf download openai-community/gpt2 --local-dir gpt2; then gpt import gpt2 --out runs/gpt2"
        assert outcome.stderr.splitlines()[1:] == [f"hint: {fetch}"]
    assert "hf download OWNER/nowhere --local-dir" in without_torch("import", "nowhere/", "--out", "a").stderr


def test_one_block_of_one_head_is_said_in_the_singular() -> None:
    said = "runs/a: 10 parameters, 1 block of 1 head, 257 tokens, context of 8"
    assert Imported("runs/a", 10, 257, context_length=8, d_model=4, num_heads=1, num_blocks=1).as_text() == said
