"""`gpt heads --passages` and `--circuits`: in the terminal, in files and over training."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from support.heads import reported
from support.helpers import RunCommand

import gpt_cli
from gpt_cli.attention_maps.activations import head_results, walk
from gpt_cli.checkpoints.run_paths import RunFiles

pytestmark = pytest.mark.slow


def sizes(path: Path, ids: list[int], layer: int, head: int) -> list[float]:
    """The norm of what a head writes at each token of a prompt."""
    model = gpt_cli.load(path).model
    with torch.no_grad():
        made = list(walk(model, *model.embed(torch.tensor([ids]))))[layer]
        return head_results(made.block, made.heads, [head])[0, 0].norm(dim=-1).tolist()


def test_a_head_has_its_passages_whose_tokens_are_those_of_the_text(
    smoke_run: Path, run: RunCommand, tmp_path: Path
) -> None:
    text = "The value of 今天 is fine, and a list has items. " * 12
    (tmp_path / "a.txt").write_text(text, "utf-8")
    found = reported(run, "--data", tmp_path / "a.txt", "--passages", "3", "--heads", "1")
    plain = reported(run, "--data", tmp_path / "a.txt", "--heads", "1")
    assert [{key: row[key] for key in plain["heads"][0]} for row in found["heads"]] == plain["heads"]
    ids = gpt_cli.load(smoke_run).tokenizer.encode(text)
    for row in found["heads"]:
        assert len(row["passages"]) == 3
        assert row["mean_size"] < row["passages"][0]["value"]
        for passage in row["passages"]:
            assert "".join(passage["tokens"]) in text
            start = passage["place"] // 32 * 32  # of its window
            of_window = sizes(smoke_run, ids[start : start + 32], row["layer"], 1)
            place = passage["place"] + passage["peak"] - start
            assert passage["value"] == pytest.approx(of_window[place], rel=1e-4)


def test_circuits_have_every_pair_the_strongest_first(smoke_run: Path, run: RunCommand) -> None:
    found = reported(run, "--prompt", "The value of", "--circuits")
    pairs = found["circuits"]["composition"]
    assert len(pairs) == 3 * 2 * 2
    assert {(pair["from_layer"], pair["to_layer"]) for pair in pairs} == {(0, 1)}
    scores = [pair["score"] for pair in pairs]
    assert scores == sorted(scores, reverse=True)
    assert found["circuits"]["baseline"] == gpt_cli.load(smoke_run).config.model.d_model ** -0.5
    for pair in pairs:
        assert pair["excess"] == pytest.approx(pair["score"] - found["circuits"]["baseline"])
    for row in found["heads"]:
        for name, keys in (("ov", {"reads", "writes"}), ("qk", {"queries", "keys"})):
            assert len(row[name]) == 3
            assert {*row[name][0]} == {"singular_value", *keys}
            assert all(len(part[key]) == 5 for part in row[name] for key in keys)


def test_files_and_python_have_what_json_prints(smoke_run: Path, run: RunCommand, tmp_path: Path) -> None:
    flags = ["--max-tokens", "400", "--passages", "2", "--circuits"]
    found = reported(run, *flags)
    result = gpt_cli.heads(max_tokens=400, passages=2, circuits=True)
    assert result.as_dict() == found
    assert reported(run, *flags, "--out", tmp_path / "a.csv") == found
    with open(tmp_path / "a.csv", encoding="utf-8", newline="") as file:
        lines = [*csv.DictReader(file)]
    for line, row in zip(lines, found["heads"], strict=True):
        for number, passage in enumerate(row["passages"], 1):
            assert float(line[f"passages_{number}_value"]) == passage["value"]
            assert int(line[f"passages_{number}_place"]) == passage["place"] + passage["peak"]
            assert line[f"passages_{number}_text"].removeprefix("'") == "".join(passage["tokens"])
        assert line["ov_1_writes_1"].removeprefix("'") == row["ov"][0]["writes"][0]
    scores = {
        (pair["kind"], pair["from_head"], pair["to_head"]): pair["score"] for pair in found["circuits"]["composition"]
    }
    assert float(lines[3]["k_L0_H1"]) == scores["K", 1, 1]
    assert lines[0]["k_L0_H1"] == "", "nothing is below it"


def test_the_terminal_marks_each_peak_and_names_pairs_and_directions(smoke_run: Path, run: RunCommand) -> None:
    outcome = run("heads", "--max-tokens", "400", "--passages", "2", "--circuits")
    scores, passages, pairs, ov, qk = outcome.out.strip().split("\n\n")
    assert len(scores.splitlines()) == len(ov.splitlines()) == len(qk.splitlines()) == 5
    assert all("[[" in line and "]]" in line for line in passages.splitlines()[1:])
    assert len(passages.splitlines()) == 9
    assert pairs.splitlines()[0].split() == ["from", "to", "score", "above", "random"]
    assert max(map(len, outcome.out.splitlines())) <= 80
    assert "size: the norm of what a head adds" in outcome.err


def test_over_training_each_checkpoint_has_the_sizes_at_the_last_passages(smoke_run: Path, run: RunCommand) -> None:
    prompt = "The value of the expression is the value"
    found = reported(run, "--passages", "2", "--over-training", "--prompt", prompt, "--heads", "0")
    steps = RunFiles(smoke_run).steps()
    assert [at["step"] for at in found["steps"]] == [*steps]
    assert len(steps) >= 2
    last = reported(run, "--passages", "2", "--checkpoint", "last", "--prompt", prompt, "--heads", "0")
    keys = ("layer", "head", "mean_size", "passages")
    assert found["heads"] == [{key: row[key] for key in keys} for row in last["heads"]]
    first = reported(run, "--passages", "2", "--checkpoint", str(min(steps)), "--prompt", prompt, "--heads", "0")
    for at, alone in zip((found["steps"][0], found["steps"][-1]), (first, last), strict=True):
        assert [row["passages"] for row in at["heads"]] == [row["passages"] for row in alone["heads"]]
    ids = gpt_cli.load(smoke_run).tokenizer.encode(prompt)
    for at, path in zip(found["steps"], steps.values(), strict=True):
        for row, final in zip(at["heads"], found["heads"], strict=True):
            at_step = sizes(path, ids, row["layer"], 0)
            at_peaks = [at_step[passage["place"] + passage["peak"]] for passage in final["passages"]]
            assert row["values"] == pytest.approx(at_peaks, rel=1e-4)
            assert row["mean_size"] == pytest.approx(np.mean(at_step[1:]), rel=1e-4)


def test_over_training_of_a_text_has_a_table_and_csv(smoke_run: Path, run: RunCommand, tmp_path: Path) -> None:
    flags = ["--passages", "2", "--over-training", "--max-tokens", "200"]
    outcome = run("heads", *flags, exits=0)
    table, passages = outcome.out.strip().split("\n\n")
    assert [line.split()[0] for line in table.splitlines()] == ["step", *map(str, RunFiles(smoke_run).steps())]
    assert passages.count("[[") >= 4
    outcome = run("heads", *flags, "--out", tmp_path / "a.csv")
    assert f"a.csv: {len(RunFiles(smoke_run).steps())} checkpoints, 4 heads" in outcome.err
    with open(tmp_path / "a.csv", encoding="utf-8", newline="") as file:
        lines = [*csv.DictReader(file)]
    assert len(lines) == 4 * len(RunFiles(smoke_run).steps())
    assert [*lines[0]][:6] == ["step", "layer", "head", "mean_size", "passages_1_place", "passages_1_value"]
    run("heads", *flags, "--out", tmp_path / "a.html", exits=0)
    assert "Where it writes most" in (tmp_path / "a.html").read_text("utf-8")
    found = reported(run, *flags)
    assert float(lines[-1]["passages_2_value"]) == found["steps"][-1]["heads"][-1]["values"][1]
