"""Checkpoints of every format that was ever released can be used and continued."""

import json
import re
import shutil
from pathlib import Path

import pytest
from golden.make import FOLDER, greedy
from support.helpers import RunCommand

from gpt_cli.checkpoints.checkpoint import read_checkpoint
from gpt_cli.checkpoints.header import FORMAT_VERSION
from gpt_cli.checkpoints.run_directory import RunDirectory

EXPECTED = json.loads((FOLDER / "expected.json").read_text())
# far beyond what another processor or another torch changes in a logit
MARGIN = 1.0


def test_every_golden_file_is_expected_and_the_present_format_is_among_them() -> None:
    assert sorted(EXPECTED) == sorted(path.name for path in FOLDER.glob("*.safetensors"))
    assert any(name.startswith(f"format-{FORMAT_VERSION}-") for name in EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_golden_checkpoint_gives_its_tokens(name: str, run: RunCommand) -> None:
    tokens, margin = greedy(FOLDER / name, EXPECTED[name]["prompt"])
    assert tokens == EXPECTED[name]["tokens"]
    assert margin > MARGIN
    words = ["--prompt", EXPECTED[name]["prompt"], "--greedy", "--max-new-tokens", "12", "--quiet"]
    outcome = run("sample", "--run", FOLDER / name, *words)
    assert outcome.out.rstrip("\n") == read_checkpoint(FOLDER / name).tokenizer.decode(tokens).rstrip("\n")
    run("info", FOLDER / name, exits=0)


@pytest.mark.parametrize("name", [name for name in EXPECTED if read_checkpoint(FOLDER / name).optimizer_state])
def test_a_golden_checkpoint_is_continued(name: str, here: Path, run: RunCommand) -> None:
    (here / "corpus.txt").write_text(EXPECTED[name]["text"] * 60)
    stored = read_checkpoint(FOLDER / name)
    directory = RunDirectory(Path("runs/old"))
    directory.open_for(stored.config)
    shutil.copyfile(FOLDER / name, directory.step_file(stored.progress.step))
    more = str(stored.progress.step + 5)
    outcome = run("train", "--out", "runs/old", "--resume", "--max-steps", more, "--json", exits=0)
    assert re.search(rf"resuming runs/old at step {stored.progress.step}$", outcome.err, re.MULTILINE)
    assert json.loads(outcome.out)["validation_loss"] < 0.1
