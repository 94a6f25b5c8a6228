import json
import os
from pathlib import Path

import pytest
from support.helpers import RunCommand, damage

import gpt_cli
from gpt_cli.checkpoints import verify


def test_a_config_and_its_run_have_the_same_figures(smoke_run: Path, run: RunCommand) -> None:
    config, trained = (json.loads(run("info", path, "--json").out) for path in ("smoke", smoke_run))
    for key in ("vocab_size", "parameters", "parameters_by_part", "training_tokens", "tokens_per_parameter"):
        assert config[key] == trained[key]
    assert config["cache_bytes_per_token"] == trained["cache_bytes_per_token"]
    assert "ranks" not in config
    model = gpt_cli.load(smoke_run).model
    assert config["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    assert trained["verified"] is True
    assert trained["checkpoints"]["best.safetensors"].startswith("intact")
    assert trained["checkpoints"]["step-00000020.safetensors"].endswith("resumable")


def test_a_config_of_conversations_counts_the_tokens_of_its_run(here: Path, run: RunCommand) -> None:
    """Those that do not fit the context are in neither, and each answer ends."""
    turns = [{"role": role, "content": text} for role, text in (("user", "a b"), ("assistant", "c d")) * 2]
    lines = [{"prompt": "a" * 200, "response": "b"}] * 2 + [{"messages": turns}] * 5  # the last validates
    Path("qa.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    flags = ("--set", "data.source=qa.jsonl", "--set", "tokenizer.kind=char")
    config = json.loads(run("info", "smoke", *flags, "--json", exits=0).out)
    run("train", "--config", "smoke", *flags, "--max-steps", "1", "--out", "runs/qa", "--quiet", exits=0)
    trained = json.loads(run("info", "runs/qa", "--json", exits=0).out)
    assert config["training_tokens"] == trained["training_tokens"] == 4 * (4 + 4) * 2


def test_a_damaged_best_checkpoint_is_reported_and_no_other_is_taken_as_the_help_says(
    copied: Path, run: RunCommand
) -> None:
    path = copied / "checkpoints" / "best.safetensors"
    damage(path)
    wrong = "the file is damaged: its content does not match its digest"
    assert run("info", copied, exits=4).err.startswith(f'error: "{path}": {wrong}')
    help_of = {command: " ".join(run(command, "--help").out.split()) for command in ("info", "sample")}
    assert "a step of a run. Default: the best checkpoint." in help_of["info"]
    assert "a step of a run. Default: the best intact checkpoint." in help_of["sample"]


def test_people_get_a_table(smoke_run: Path, run: RunCommand) -> None:
    out = run("info", "smoke").out
    rows = [line.rsplit("  ", 1) for line in out.splitlines()]
    assert ["  feed-forward", "16,704"] in [
        [name.rstrip(), value] for name, value in filter(lambda row: len(row) == 2, rows)
    ]
    # two blocks in float32: keys and values of 2 x 16, of one head of 16, and a latent of 8
    cache = [line.split() for line in out.splitlines()[-5:]]
    assert cache == [
        ["cache", "memory", "per", "token", "512", "bytes"],
        ["cache", "memory", "by", "attention"],
        ["multi_head", "512", "bytes"],
        ["grouped_query", "256", "bytes"],
        ["latent", "64", "bytes"],
    ]


def test_without_a_path_it_is_about_the_newest_run(copied: Path, run: RunCommand) -> None:
    outcome = run("info", "--json")
    assert (outcome.code, outcome.err) == (0, "runs/smoke\n")
    assert json.loads(outcome.out)["checkpoint"] == "runs/smoke/checkpoints/best.safetensors"
    os.rename("runs", "elsewhere")
    run("info", exits=4)


def test_a_checkpoint_that_a_training_removes_meanwhile_is_left_out(
    copied: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    oldest, real = copied / "checkpoints" / "step-00000010.safetensors", verify.reading
    monkeypatch.setattr(verify, "reading", lambda path, kind: (oldest.unlink(missing_ok=True), real(path, kind))[1])
    checkpoints = json.loads(run("info", copied, "--json", exits=0).out)["checkpoints"]
    assert [*checkpoints] == ["step-00000020.safetensors", "best.safetensors"]


def test_processes_that_train_together_have_their_costs(smoke_run: Path, run: RunCommand) -> None:
    """Of 59,072 parameters in float32 each of four sends three quarters, twice."""
    flags = ["--ranks", "4", "--set", "train.micro_batch_size=1"]
    found = json.loads(run("info", "smoke", *flags, "--json").out)
    assert (found["ranks"], found["fitting_ranks"]) == (4, [1, 2, 4, 8])
    assert found["bytes_sent_by_rank_per_step"] == 2 * 3 * 59_072
    assert found["first_rank_saving_bytes"] == 8 * 59_072
    assert found["rank_training_bytes"] < found["training_bytes"]
    assert "fitting ranks                1, 2, 4, 8" in run("info", "smoke", *flags).out.splitlines()
    assert json.loads(run("info", smoke_run, "--ranks", "1", "--json").out)["fitting_ranks"] == [1]


def test_weights_that_are_not_trained_need_no_gradients(run: RunCommand) -> None:
    bytewise = ("info", "smoke", "--set", "tokenizer.kind=byte", "--json")
    whole, low_rank = (json.loads(run(*bytewise, *words).out) for words in ((), ("--set", "train.rank=2")))
    assert whole["training_bytes"] - low_rank["training_bytes"] > 2 * 4 * whole["parameters"]  # nor moments


def test_numbers_of_processes_that_do_not_fit_are_refused(smoke_run: Path, run: RunCommand) -> None:
    sentence = "error: --ranks: 2 processes cannot share a batch of 8 sequences evenly, 8 at once; 1 process can\n"
    for path, hint in (("smoke", "hint: --set train.micro_batch_size=4\n"), (smoke_run, "")):
        assert run("info", path, "--ranks", "2", exits=2).err == sentence + hint
    outcome = run("info", smoke_run, "--set", "train.batch_size=4", exits=2)
    assert outcome.err.endswith("is not a config, and the settings of a run cannot change\n")
