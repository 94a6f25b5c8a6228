"""A logger whose package is missing is refused before anything begins."""

import sys
from pathlib import Path

import pytest
from support.helpers import RunCommand

from gpt_cli import train
from gpt_cli.common.extras import require_installed
from gpt_cli.errors import EnvironmentFailure


@pytest.fixture
def _none_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tensorboard", "wandb", "trackio", "swanlab"):
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not there


@pytest.mark.usefixtures("_none_installed")
def test_all_that_are_missing_are_named_with_how_to_install_them(here: Path, run: RunCommand) -> None:
    asked = run("train", "--config", "smoke", "--set", "train.log_to=[wandb, trackio]", exits=5)
    assert asked.err.splitlines() == [
        "error: train.log_to: the package of wandb is not installed",
        "error: train.log_to: the package of trackio is not installed",
        "hint: in the clone of gpt: pip install -e '.[wandb,trackio]'",
    ]
    assert list(here.iterdir()) == []
    with pytest.raises(EnvironmentFailure, match="wandb is not installed"):
        next(train("smoke", settings=["train.log_to=wandb"]))


def test_a_folder_of_that_name_is_no_package(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """wandb makes such a folder where it runs."""
    (here / "some_logger").mkdir()
    monkeypatch.syspath_prepend(here)
    with pytest.raises(EnvironmentFailure, match="the package of some_logger is not installed"):
        require_installed(["some_logger"])
    (here / "some_logger/__init__.py").touch()
    require_installed(["some_logger"])
