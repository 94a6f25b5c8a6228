"""Trainings that begin with the weights of another model."""

import json
import os
import re
from pathlib import Path

import pytest
import torch
from support.exchange import sharp_checkpoint
from support.helpers import CORPUS_TEXT, RunCommand, damage
from support.light import WithoutTorch

from gpt_cli import load, train
from gpt_cli.checkpoints.checkpoint import read_checkpoint, save_checkpoint
from gpt_cli.checkpoints.run_paths import RunFiles
from gpt_cli.common.host import NOBODY
from gpt_cli.errors import CheckpointError, EnvironmentFailure
from gpt_cli.text.split_patterns import GPT2_PATTERN
from gpt_cli.text.tokenizers import CharTokenizer
from gpt_cli.text.train_tokenizer import train_byte_pairs
from gpt_cli.tools.exchange.export_hf import write_for_transformers
from gpt_cli.training.init_from import load_initial_weights, read_initial

pytestmark = pytest.mark.slow

NO_TEXT = "gpt does not read a text only because a model names it: a stranger may have chosen it"
SHORT = "train:\n  max_steps: 6\n  batch_size: 2\n  save_every: 3\n  sample_every: null\n"
ON_MINE = ["--config", "short.yaml", "--data", "my.txt"]
STILL = ["--set", "train.learning_rate=1e-12", "--max-steps", "1", "--quiet"]


@pytest.fixture
def source(here: Path) -> Path:
    """A checkpoint of a model with byte pairs, a config that leaves out sizes, and a text."""
    Path("short.yaml").write_text(SHORT)
    Path("my.txt").write_text(CORPUS_TEXT)
    tokenizer = train_byte_pairs([CORPUS_TEXT], 290)
    settings = ["model.num_blocks=1", "model.qkv_bias=true", "tokenizer.kind=bpe", "tokenizer.vocab_size=290"]
    save_checkpoint(Path("source.safetensors"), sharp_checkpoint(*settings, tokenizer=tokenizer))
    return Path("source.safetensors")


def begin(run: RunCommand, *flags: str | Path, out: str = "new") -> None:
    run("train", *ON_MINE, "--out", out, "--quiet", *flags, exits=0)


def test_a_run_and_a_directory_of_transformers_begin_alike(source: Path, run: RunCommand) -> None:
    write_for_transformers(Path("hf"), read_checkpoint(source))
    begin(run, "--init-from", source, out="one")
    begin(run, "--init-from", "one", *STILL, out="again")
    begin(run, "--init-from", "hf", out="two")
    there, here = read_checkpoint(source), load("one")
    assert (here.config.model, here.config.tokenizer) == (there.config.model, there.config.tokenizer)
    assert here.tokenizer.digest == there.tokenizer.digest
    one, two, again = (load(name).model.state_dict() for name in ("one", "two", "again"))
    assert all(torch.equal(tensor, two[name]) for name, tensor in one.items())
    for name, tensor in again.items():
        torch.testing.assert_close(tensor, one[name], rtol=0, atol=1e-9)


def test_a_stopped_run_continues_to_the_same_end_without_the_flag_and_the_source(source: Path, run: RunCommand) -> None:
    """From step 0 too: what a kill before the first checkpoint leaves is the weights that it began with."""
    begin(run, "--init-from", source)
    whole = {path.name: read_checkpoint(path).weights for path in Path("new/checkpoints").iterdir()}
    *_, last = sorted(whole)
    reports = train("short.yaml", data="my.txt", out="killed", init_from=source)
    next(reports)
    next(reports)  # the first step
    reports.close()
    assert [path.name for path in Path("killed/checkpoints").iterdir()] == ["step-00000000.safetensors"]
    zero, first = read_checkpoint(Path("killed/checkpoints/step-00000000.safetensors")), read_checkpoint(source)
    assert all(torch.equal(tensor, first.weights[name]) for name, tensor in zero.weights.items())
    source.unlink()
    run("train", "--out", "killed", "--resume", "--quiet", exits=0)
    found = read_checkpoint(Path("killed/checkpoints") / last).weights
    assert all(torch.equal(tensor, found[name]) for name, tensor in whole[last].items())


def test_a_run_whose_first_weights_could_not_be_saved_is_no_run(
    source: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise EnvironmentFailure("disk", "permission is denied")

    words = ("train", *ON_MINE, "--init-from", source, "--out", "new")
    with monkeypatch.context() as patched:
        patched.setattr("gpt_cli.training.run.Run.save", full)
        run(*words, exits=5)
    assert "no run" in run("train", "--out", "new", "--resume", exits=2).err
    run(*words, exits=0)


def test_a_model_whose_name_is_not_utf8_is_recorded(source: Path, run: RunCommand) -> None:
    other = os.fsdecode(b"\xe9.safetensors")
    os.rename(source, other)
    begin(run, "--init-from", other)
    assert read_checkpoint(RunFiles(Path("new")).best).progress.began_from == "\ufffd.safetensors"


def test_a_model_that_another_training_replaces_meanwhile_is_refused(source: Path) -> None:
    initial = read_initial(source, NOBODY)
    save_checkpoint(source, sharp_checkpoint("model.num_blocks=2"))
    with pytest.raises(CheckpointError, match="another training replaced this model while gpt read it"):
        load_initial_weights(initial)


def test_resume_and_init_from_together_begin_or_continue(source: Path, run: RunCommand) -> None:
    """A command that a scheduler repeats; once there is a checkpoint the source is not needed."""
    begin(run, "--init-from", source, "--resume", "--max-steps", "3")
    source.unlink()
    begin(run, "--init-from", source, "--resume", "--max-steps", "6")
    assert load("new", "last").step == 6


def test_a_run_its_facts_and_its_card_name_what_it_began_with(source: Path, run: RunCommand) -> None:
    Path("private").mkdir()
    source.rename("private/mine.safetensors")
    begin(run, "--init-from", "private/mine.safetensors", "--max-steps", "3")
    run("train", "--out", "new", "--resume", "--max-steps", "6", "--quiet", exits=0)
    last = read_checkpoint(Path("new/checkpoints/step-00000006.safetensors"))
    assert last.progress.began_from == "mine.safetensors"
    assert json.loads(run("info", "new", "--json").out)["began_from"] == "mine.safetensors"
    assert re.search(r"^began from +mine\.safetensors$", run("info", "new").out, re.MULTILINE)
    write_for_transformers(Path("hf"), last)
    assert "for 6 steps. It began with the weights of `mine.safetensors`." in Path("hf/README.md").read_text()
    begin(run, "--init-from", "new/checkpoints/step-00000006.safetensors", *STILL, out="again")
    assert read_checkpoint(RunFiles(Path("again")).best).progress.began_from == "new/step-00000006.safetensors"


def test_every_difference_that_cannot_be_reconciled_is_listed(
    source: Path, run: RunCommand, without_torch: WithoutTorch
) -> None:
    Path("short.yaml").write_text(f"model:\n  d_model: 96\n  norm: rmsnorm\n  dropout: 0.3\n{SHORT}")
    given = [*ON_MINE, "--out", "new", "--init-from", source]
    differing = ("--set", "model.context_length=81", "--set", "model.activation=relu")
    outcome = without_torch("train", *given, *differing, exits=4)
    errors = [line for line in outcome.stderr.splitlines() if line.startswith("error: --init-from: ")]
    assert [line.split()[2].removeprefix("model.") for line in errors] == [
        "d_model",
        "norm",
        "activation",
        "context_length",
    ]
    assert "48 in source.safetensors and 96 here" in errors[0]
    without = "hint: --config short.yaml asks for this; without it, gpt train takes all settings of source.safetensors"
    assert outcome.stderr.splitlines()[-1] == without
    Path("short.yaml").write_text(f"tokenizer:\n  kind: byte\n{SHORT}")
    outcome = without_torch("train", *given, exits=4)
    assert "only --set tokenizer.kind=byte asks for new embeddings" in outcome.stderr
    assert outcome.stderr.splitlines()[-1] == f"{without}; or --set tokenizer.kind=byte for new embeddings"
    outcome = without_torch("train", *given, *differing, exits=4)
    assert outcome.stderr.splitlines()[-1] == without, "new embeddings alone would not do"
    Path("short.yaml").write_text(SHORT)
    outcome = without_torch("train", *given, "--set", "model.norm=rmsnorm")
    assert outcome.stderr.splitlines()[-1] == (
        "hint: leave these settings out, so that gpt takes them from there, or train without --init-from"
    )
    assert not Path("new").exists()


def test_another_pattern_means_new_embeddings_and_no_run_continues_with_it(source: Path, run: RunCommand) -> None:
    other = ["--set", "tokenizer.pattern=gpt2"]
    begin(run, "--init-from", source, *STILL, *other)
    found = load("new")
    assert (found.config.tokenizer.pattern, found.tokenizer.to_dict()["pattern"]) == ("gpt2", GPT2_PATTERN)
    assert "tokenizer.pattern is gpt2 in new and llama3 here" in refused(run, "llama3", "--init-from", "new")
    said = refused(run, "qwen2", "--out", "new", "--resume")
    assert 'tokenizer.pattern was "gpt2" in this run and is "qwen2" now' in said


def refused(run: RunCommand, pattern: str, *flags: str) -> str:
    """What is said of a config with a pattern."""
    Path("short.yaml").write_text(f"tokenizer:\n  kind: bpe\n  vocab_size: 290\n  pattern: {pattern}\n{SHORT}")
    return run("train", *ON_MINE, "--out", "other", *flags, exits=4).err


def test_a_tokenizer_of_its_own_means_new_embeddings_and_the_rest_stays(source: Path, run: RunCommand) -> None:
    notices: list[str] = []
    settings = ["tokenizer.kind=byte", "train.learning_rate=1e-12", "train.max_steps=1"]
    for _ in train("short.yaml", data="my.txt", out="new", init_from=source, settings=settings, notice=notices.append):
        pass
    assert "the new embeddings, of 257 tokens of kind byte, begin at random" in notices
    found, there = load("new"), read_checkpoint(source).weights
    assert found.tokenizer.kind == "byte"
    for name, tensor in found.model.state_dict().items():
        if name in ("token_embedding.weight", "output_layer.weight"):
            assert tensor.shape == (257, 48)
            assert abs(tensor.std().item() - 0.02) < 0.001
        else:
            torch.testing.assert_close(tensor, there[name], rtol=0, atol=1e-9)


def test_a_shorter_context_takes_the_first_positions(source: Path, run: RunCommand) -> None:
    shorter = ["--set", "model.context_length=32", *STILL[:-1]]
    outcome = run("train", "--init-from", source, *ON_MINE, "--out", "new", *shorter, exits=0)
    assert "gpt uses the first 32 of 80 positions" in outcome.err
    name = "position_embedding.weight"
    found = load("new").model.state_dict()[name]
    torch.testing.assert_close(found, read_checkpoint(source).weights[name][:32], rtol=0, atol=1e-9)


def test_without_a_config_the_source_which_must_be_there_says_how_to_learn(source: Path, run: RunCommand) -> None:
    outcome = run("train", "--init-from", source, "--data", "my.txt", "--out", "new", "--json", "--quiet", exits=0)
    assert json.loads(outcome.out)["steps"] == 8
    outcome = run("train", "--init-from", source, "--data", "my.txt")
    assert (outcome.code, "--init-from without --config needs the run directory" in outcome.err) == (2, True)
    assert "there is no such run or checkpoint" in run("train", "--init-from", "nowhere", *ON_MINE, exits=4).err


def test_texts_and_loggers_come_from_the_config_of_a_run_alone(
    here: Path, run: RunCommand, without_torch: WithoutTorch
) -> None:
    """A stranger may have made a checkpoint or a directory, and named whatever the user can read."""
    Path("my.txt").write_text(CORPUS_TEXT)
    Path("secret.txt").write_text("secret " * 99)
    names = [f"data.{key}=secret.txt" for key in ("source", "validation_source")]
    names += ["train.log_to=[tensorboard]", "train.compile=on"]  # the compiler would start another program
    source = sharp_checkpoint(*names, "tokenizer.kind=byte", "train.batch_size=2", "model.num_blocks=1")
    save_checkpoint(Path("source.safetensors"), source)
    Path("hf").mkdir()
    write_for_transformers(Path("hf"), source)
    for path, flags in (("source.safetensors", ["--data", "my.txt"]), ("hf", ["--set", "data.source=my.txt"])):
        done = without_torch("train", "--init-from", path, "--out", "new")
        sentence = f'"{path}": {NO_TEXT}'
        assert (done.returncode, done.stderr) == (2, f"error: {sentence}\nhint: --data FILE\n")
        out = f"of-{Path(path).stem}"
        run("train", "--init-from", path, *flags, *STILL, "--out", out, exits=0)
        found = load(out).config
        assert (found.data.source, found.data.validation_source) == ("my.txt", None)
        assert (found.train.log_to, found.train.compile, found.train.batch_size) == ([], "off", 2)
    # what the user has named once, a run names
    given = ["train", "--init-from", "source.safetensors", "--data", "my.txt", *STILL]
    run(*given, "--set", "data.validation_source=secret.txt", "--out", "own", exits=0)
    run("train", "--init-from", "own", *STILL, "--out", "again", exits=0)
    found = load("again").config
    assert (found.data.source, found.data.validation_source) == ("my.txt", "secret.txt")


def test_a_training_from_a_run_of_stdin_reads_stdin_again(source: Path, run: RunCommand) -> None:
    flags = ["--data", "-", "--set", "tokenizer.kind=byte", "--max-steps", "1", "--quiet"]
    run("train", "--config", "smoke", *flags, "--out", "piped", stdin=b"from a pipe, " * 100, exits=0)
    run("train", "--init-from", "piped", "--out", "again", "--quiet", stdin=b"from another, " * 100, exits=0)


def test_a_model_alone_asks_for_no_vocabulary_from_elsewhere(source: Path, without_torch: WithoutTorch) -> None:
    save_checkpoint(source, sharp_checkpoint("tokenizer.kind=tiktoken", "tokenizer.name=o200k_base"))
    given = ["train", "--init-from", source, "--data", "my.txt", "--out", "new"]
    for flags in ([], ["--config", "short.yaml"]):
        done = without_torch(*given, *flags, "--set", "tokenizer.vocab_size=300")
        sentence = f"{source} has tiktoken, whose vocabulary may need a download, so gpt uses it only if you ask for it"
        hint = "--set tokenizer.kind=tiktoken"
        assert (done.returncode, done.stderr) == (2, f"error: tokenizer.kind: {sentence}\nhint: {hint}\n")


def test_a_config_of_an_earlier_version_begins_too(source: Path, run: RunCommand) -> None:
    Path("old.yaml").write_text("train:\n  max_steps: 2\n  stop_at: null\n  parallel: heads\n")
    words = ("--init-from", source, "--config", "old.yaml", "--data", "my.txt", "--out", "runs/old", "--dry-run")
    assert "stop_at" not in run("train", *words, exits=0).err


def test_a_key_that_came_from_the_source_is_not_told_as_unused(source: Path, run: RunCommand) -> None:
    tokenizer = CharTokenizer(sorted(set(CORPUS_TEXT)))
    settings = ["tokenizer.kind=char", "tokenizer.vocab_size=290"]
    save_checkpoint(source, sharp_checkpoint(*settings, tokenizer=tokenizer))
    given = ["train", "--init-from", source, *ON_MINE, "--max-steps", "1"]
    assert "not used" not in run(*given, "--out", "new", exits=0).err
    outcome = run(*given, "--out", "other", "--set", "tokenizer.vocab_size=300")
    assert "tokenizer.vocab_size is not used by tokenizer.kind char" in outcome.err, "the user set it"


def test_beside_a_damaged_best_checkpoint_another_can_be_named(source: Path, run: RunCommand) -> None:
    begin(run, "--init-from", source)
    best, *steps = sorted(Path("new/checkpoints").iterdir())
    damage(best)
    for named in ("new", best):
        outcome = run("train", "--init-from", named, "--out", "again", *ON_MINE, "--quiet", exits=4)
        assert 'best.safetensors": the file is damaged' in outcome.err
        assert "hint: use another checkpoint of the run\n" in outcome.err
    begin(run, "--init-from", steps[-1], *STILL, out="again")
