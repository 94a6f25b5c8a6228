"""Every fault seeded into the package is noticed by the tests that guard against it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.mutants import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
# enough cases to notice each of them
MUTANT_SCALE = "0.05"


def source(mutant: Mutant) -> str:
    return (ROOT / "gpt_cli" / mutant.file).read_text()


def passes(folder: Path, *tests: str) -> bool:
    """Whether tests pass on the package in `folder`."""
    environment = os.environ | {"PYTHONPATH": str(folder), "GPT_TEST_SCALE": MUTANT_SCALE}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert "no tests ran" not in done.stdout, done.stdout
    assert "ERROR" not in done.stdout, done.stdout
    return done.returncode == 0


def copy(folder: Path) -> Path:
    for name in ("gpt_cli", "configs", "tests", "benchmarks"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.wrong)
def test_the_code_to_mutate_stands_there_once(mutant: Mutant) -> None:
    assert source(mutant).count(mutant.code) == 1


@pytest.mark.long
def test_without_a_mutation_all_pass(tmp_path: Path) -> None:
    copy(tmp_path)
    for tests in dict.fromkeys(mutant.tests for mutant in MUTANTS):
        assert passes(tmp_path, *tests), tests


@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.wrong)
def test_a_mutant_is_noticed(mutant: Mutant, tmp_path: Path, tally) -> None:
    file = copy(tmp_path) / "gpt_cli" / mutant.file
    file.write_text(source(mutant).replace(mutant.code, mutant.instead))
    assert not passes(tmp_path, *mutant.tests)
    tally("seeded faults: each is noticed", 1)
