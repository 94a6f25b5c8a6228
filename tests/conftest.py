"""What many tests share: an own cache, an empty folder, a small trained run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import torch
from support.helpers import RunCommand, run_command

from gpt_cli.machine.sharing import sharing

torch.set_num_threads(2)
# a slow machine is no failure
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")


@pytest.fixture(autouse=True, scope="session")
def _own_surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests depend neither on the caches of the user who runs them nor on what else the machine does."""
    with sharing(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("NO_COLOR", raising=False)
        patch.setenv("OMP_WAIT_POLICY", "passive")  # commands leave that alone, and print nothing about a busy machine
        yield


@pytest.fixture(name="run")
def _run() -> RunCommand:
    return run_command


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the smoke config trained in runs/smoke."""
    folder = tmp_path_factory.mktemp("trained")
    before = Path.cwd()
    os.chdir(folder)
    try:
        outcome = run_command("train", "--config", "smoke", "--quiet")
    finally:
        os.chdir(before)
    assert outcome.code == 0, outcome.err
    return folder


@pytest.fixture
def smoke_run(trained: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The trained smoke run, to be read; the working folder is the one that holds runs/."""
    monkeypatch.chdir(trained)
    return Path("runs/smoke")


@pytest.fixture
def copied(smoke_run: Path, here: Path, trained: Path) -> Path:
    """A copy of the trained run that may be damaged, in runs/ of the working folder."""
    shutil.copytree(trained / "runs", here / "runs")
    return Path("runs/smoke")
