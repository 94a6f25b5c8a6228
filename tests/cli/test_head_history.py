"""`gpt train --watch`, and `gpt heads --over-training` on what it leaves."""

import contextlib
import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.helpers import RunCommand, run_command
from support.light import WithoutTorch

import gpt_cli

PROMPT = "a b a b a b"
SETTINGS = ("train.max_steps=60", "inspect.every=2", "train.eval_every=30", "train.log_every=20")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of 60 steps and 31 snapshots in runs/smoke."""
    folder = tmp_path_factory.mktemp("watched")
    sets = [word for setting in SETTINGS for word in ("--set", setting)]
    with contextlib.chdir(folder):
        outcome = run_command("train", "--config", "smoke", "--watch", PROMPT, *sets, exits=0)
    assert "the heads over time: gpt heads --run runs/smoke --over-training\n" in outcome.err
    return folder


@pytest.fixture
def a_run(watched: Path, here: Path) -> Path:
    shutil.copytree(watched / "runs", here / "runs")
    return Path("runs/smoke")


def history(run: RunCommand, *words: str) -> dict[str, Any]:
    outcome = run("heads", "--over-training", "--json", *words, exits=0)
    return json.loads(outcome.out)


def test_json_has_every_step_with_its_loss_and_a_row_for_each_head(run: RunCommand, a_run: Path) -> None:
    found = history(run, "--run", str(a_run))
    assert list(found) == ["run", "prompt", "tokens", "steps"]
    assert (found["run"], found["prompt"], "".join(found["tokens"])) == (str(a_run), PROMPT, PROMPT)
    assert [at["step"] for at in found["steps"]] == [1, *range(2, 61, 2)]
    assert [at["step"] for at in found["steps"] if "validation_loss" in at] == [30, 60]
    lines = {line["step"]: line for line in map(json.loads, (a_run / "metrics.jsonl").read_text().splitlines())}
    for at in found["steps"]:
        if at["step"] in lines:
            assert at["loss"] == lines[at["step"]]["loss"]
    last = found["steps"][-1]
    assert last["validation_loss"] == lines[60]["validation_loss"]
    assert [(row["layer"], row["head"]) for row in last["heads"]] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    # the prompt repeats two words, so the scores of duplicates and of the first token are of some size
    assert all(0 <= row["duplicate_token"] <= 1 for row in last["heads"])


def test_the_last_step_scores_what_a_report_on_the_last_checkpoint_does(run: RunCommand, a_run: Path) -> None:
    outcome = run("heads", "--run", str(a_run), "--checkpoint", "last", "--prompt", PROMPT, "--json", exits=0)
    report = json.loads(outcome.out)["heads"]
    for row, other in zip(history(run)["steps"][-1]["heads"], report, strict=True):
        for name in ("entropy", "mean_distance", "first_token", "previous_token", "self", "duplicate_token"):
            assert row[name] == pytest.approx(other[name], abs=1e-6)
        assert row["induction"] == pytest.approx(other["induction"], abs=0.05)  # on fewer sequences


def test_the_table_has_at_most_twenty_steps_and_names_the_strongest_head(run: RunCommand, a_run: Path) -> None:
    outcome = run("heads", "--over-training", exits=0)
    heading, *rows = outcome.out.splitlines()
    assert heading.split() == ["step", "loss", "induction", "previous", "duplicate", "first", "token", "self"]
    assert len(rows) == 20
    assert [rows[0].split()[0], rows[-1].split()[0]] == ["1", "60"]
    assert max(map(len, (heading, *rows))) <= 80
    last = history(run)["steps"][-1]
    best = max(last["heads"], key=lambda row: row["induction"])
    assert rows[-1].startswith(f"60    {last['loss']:.3f}  L{best['layer']} H{best['head']} {best['induction']:.2f}")
    assert "20 of 31 snapshots are shown; --json and --out have all" in outcome.err


def test_sorting_shows_the_heads_that_end_highest_in_a_column(run: RunCommand, a_run: Path) -> None:
    outcome = run("heads", "--over-training", "--sort", "entropy", "--layers", "1")
    last = history(run, "--sort", "entropy", "--layers", "1")["steps"][-1]
    first, second = last["heads"]
    assert first["layer"] == second["layer"] == 1
    assert first["entropy"] >= second["entropy"]
    heading, *_, end = outcome.out.splitlines()
    assert heading.split() == ["step", "loss", "L1", f"H{first['head']}", "L1", f"H{second['head']}"]
    assert end.split() == ["60", f"{last['loss']:.3f}", f"{first['entropy']:.2f}", f"{second['entropy']:.2f}"]


def test_files_contain_all_steps(run: RunCommand, a_run: Path) -> None:
    for name in ("h.json", "h.csv", "h.png"):
        outcome = run("heads", "--over-training", "--heads", "1", "--out", name, exits=0)
        assert (outcome.out, outcome.err) == ("", f"wrote {name}: 31 snapshots, 2 layers, 1 head\n")
    content = json.loads(Path("h.json").read_text())
    assert content == history(run, "--heads", "1")
    with open("h.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    places = [(row["step"], row["layer"], row["head"]) for row in rows[:3]]
    assert places == [("1", "0", "1"), ("1", "1", "1"), ("2", "0", "1")]
    assert len(rows) == 62
    last = content["steps"][-1]
    assert [rows[at]["validation_loss"] for at in (0, -1)] == ["", str(last["validation_loss"])]
    assert float(rows[-1]["previous_token"]) == last["heads"][-1]["previous_token"]
    assert Path("h.png").read_bytes().startswith(b"\x89PNG")


def test_python_gets_the_history_and_the_film(run: RunCommand, a_run: Path) -> None:
    found: Any = gpt_cli.heads(over_training=True, layers="0")
    assert found.as_dict() == history(run, "--layers", "0")
    film: Any = gpt_cli.attention(over_training=True, layers="0", out=Path("f.html"))
    assert film.as_page() == Path("f.html").read_text()
    assert film.as_text() == "31 steps, 1 layer, 2 heads, 6 tokens"
    assert [at["loss"] for at in found.steps] == [*film.losses]
    printed = json.loads(run("attn-dump", "--over-training", "--layers", "0", "--out", "f.html", "--json").out)
    assert film.as_dict() == printed


def test_a_table_needs_no_torch(a_run: Path, without_torch: WithoutTorch) -> None:
    without_torch("heads", "--over-training", "--run", a_run, exits=0)


def test_a_run_that_watches_another_text_shows_the_newer_one(run: RunCommand, a_run: Path) -> None:
    continued = ("train", "--out", a_run, "--resume", "--watch", "x y x", "--max-steps", "64", "--quiet")
    run(*continued, exits=0)
    outcome = run("heads", "--over-training")
    assert "left out: 31 snapshots of an earlier text or model\n" in outcome.err
    assert [line.split()[0] for line in outcome.out.splitlines()] == ["step", "62", "64"]


def test_what_another_model_left_in_the_run_is_not_mixed_in(run: RunCommand, a_run: Path) -> None:
    small = ("model.num_blocks=1", "train.max_steps=2", "inspect.every=2")
    flags = [word for setting in small for word in ("--set", setting)]
    run("train", "--config", "smoke", "--watch", PROMPT, *flags, "--out", "runs/small", exits=0)
    shutil.copy("runs/small/attention/step-00000002.safetensors", a_run / "attention")
    outcome = run("heads", "--over-training", "--run", a_run, "--json")
    assert "left out: 1 snapshot of an earlier text or model\n" in outcome.err
    assert [at["step"] for at in json.loads(outcome.out)["steps"]] == [1, *range(4, 61, 2)]


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (["--watch", ""], 2, 'error: --watch: "" is empty'),
        (["--watch", "a " * 40], 3, "error: inspect.prompt (--watch): it has "),
        (["--watch", "a b", "--set", "inspect.every=0"], 2, "error: --set: inspect.every: 0 is not a whole number"),
    ],
)
def test_a_text_that_cannot_be_watched_is_refused_before_a_file_is_written(
    run: RunCommand, here: Path, words: list[str], code: int, line: str
) -> None:
    outcome = run("train", "--config", "smoke", *words, exits=code)
    errors = [found for found in outcome.err.splitlines() if found.startswith("error: ")]
    assert len(errors) == 1
    assert errors[0].startswith(line)
    assert not Path("runs").exists()
