"""`gpt attn-dump --over-training`."""

import json
from pathlib import Path

import pytest
from support.helpers import RunCommand
from support.light import WithoutTorch
from support.pages import content_of, keep, snapshots_of

from gpt_cli.checkpoints.run_paths import RunFiles


@pytest.fixture
def watched(copied: Path) -> Path:
    """A run with snapshots of 2 x 2 heads at the steps 1, 10 and 20."""
    keep(snapshots_of(3, 2, 2, ["The", " value"]), copied)
    return copied


def test_the_film_is_written_without_torch(watched: Path, without_torch: WithoutTorch) -> None:
    done = without_torch("attn-dump", "--run", watched, "--over-training", "--out", "film.html", "--json", exits=0)
    assert done.stderr == "wrote film.html: 3 steps, 2 layers, 2 heads, 2 tokens\n"
    assert json.loads(done.stdout) == {
        "run": str(watched),
        "out": "film.html",
        "layers": [0, 1],
        "heads": [0, 1],
        "tokens": ["The", " value"],
        "steps": [1, 10, 20],
    }
    content = content_of(Path("film.html").read_bytes())
    assert content["origin"] == {"checkpoint": str(watched), "step": 20, "prompt": "The  value"}
    assert content["frames"]["curves"]["loss"], "the losses come from metrics.jsonl of the run"


def test_frames_that_a_page_cannot_hold_are_left_out_with_a_notice(
    watched: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpt_cli.tools.interpret.over_training.MOST_BYTES", 300)
    outcome = run("attn-dump", "--over-training", "--out", "film.html")
    assert outcome.err.splitlines() == [
        "the film has one of every 2 snapshots, since a page has no room for more with 4 heads on 2 tokens; fewer --layers or "
        "--heads allow more",
        "wrote film.html: 2 steps, 2 layers, 2 heads, 2 tokens",
    ]


@pytest.mark.parametrize("command", ["attn-dump --out film.html", "heads"])
def test_a_run_without_snapshots_is_told_how_to_keep_them(command: str, smoke_run: Path, run: RunCommand) -> None:
    assert run(*command.split(), "--run", smoke_run, "--over-training", exits=4).err.splitlines() == [
        'error: "runs/smoke": this run has no attention snapshots from its training',
        "hint: --prompt 'The value of' computes it from 2 checkpoints",
    ]


FLAGS = "--format csv,--checkpoint best,--generate 3,--temperature 0,--seed 0,--stage scores,--file-dtype float16"


@pytest.mark.parametrize("words", [*FLAGS.split(","), "--truncate", "--device cpu"])
def test_flags_that_a_film_has_no_use_for_are_refused(run: RunCommand, here: Path, words: str) -> None:
    flag, *value = words.split()
    outcome = run("attn-dump", "--over-training", "--out", "film.html", flag, *value, exits=2)
    assert outcome.err == f"error: {flag} and --over-training cannot be combined; leave one of them out\n"


@pytest.mark.parametrize("out", [[], ["--out", "a.png"], ["--out", "-"]])
def test_a_film_is_a_page(run: RunCommand, here: Path, out: list[str]) -> None:
    wrong = "error: --over-training: a film is a page, so its name must end in .html\nhint: --out film.html\n"
    assert run("attn-dump", "--over-training", *out, exits=2).err == wrong


def test_wrong_runs_and_heads_are_refused(watched: Path, run: RunCommand) -> None:
    words = ["attn-dump", "--over-training", "--out", "film.html"]
    run(*words, "--run", "nowhere", exits=4)
    outcome = run(*words, "--heads", "2", exits=2)
    assert outcome.err == 'error: --heads: this model has heads 0 to 1, so "2" is out of range\n'
    next(iter(RunFiles(watched).snapshots().values())).write_bytes(b"x")
    run(*words, exits=4)
    assert not Path("film.html").exists()
