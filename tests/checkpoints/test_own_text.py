"""Which text a model may read again: what its run's config.yaml names, and of a checkpoint by itself the catalogue's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.exchange import sharp_checkpoint
from support.helpers import small_config

from gpt_cli.checkpoints.checkpoint import save_checkpoint
from gpt_cli.checkpoints.header import Header, read_header
from gpt_cli.checkpoints.own_text import config_of_run, own_data
from gpt_cli.config.reading import write_config
from gpt_cli.errors import DataError, UsageError
from gpt_cli.text.catalogue import ENTRIES

ALONE = '"alone.safetensors": gpt reads no text that only a checkpoint or a model directory names'


def header_naming(source: str, path: str = "alone.safetensors", *, step: int = 7) -> Header:
    """The header of a checkpoint there that was trained on a source."""
    checkpoint = sharp_checkpoint(f"data.source={source}", "model.num_blocks=1")
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    save_checkpoint(Path(path), replace(checkpoint, progress=replace(checkpoint.progress, step=step)))
    return read_header(Path(path))


def run_naming(source: str) -> None:
    """The config.yaml of the run in `mine`."""
    Path("mine").mkdir(exist_ok=True)
    Path("mine/config.yaml").write_text(write_config(small_config(f"data.source={source}")))


def test_the_config_of_its_run_names_the_text_and_the_checkpoint_does_not(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = header_naming("theirs.txt", "mine/checkpoints/best.safetensors")
    run_naming("my.txt")
    assert own_data(header).source == "my.txt"
    monkeypatch.chdir("mine/checkpoints")
    assert own_data(read_header(Path("best.safetensors"))).source == "my.txt"
    monkeypatch.chdir(here)
    Path("mine/config.yaml").unlink()
    with pytest.raises(UsageError, match="gpt reads no text that only a checkpoint"):
        own_data(header)


@pytest.mark.parametrize("source", ["/etc/passwd", "~/.ssh/id_rsa", "..", "*", "-", "[python-docs, my.txt]"])
def test_a_checkpoint_by_itself_names_no_text(here: Path, source: str) -> None:
    with pytest.raises(UsageError) as refused:
        own_data(header_naming(source))
    assert refused.value.lines() == [f"error: {ALONE}", "hint: --data FILE"]


def test_a_text_of_the_catalogue_may_be_named_where_it_needs_no_network(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(here / "cache"))
    assert own_data(header_naming("python-docs")).source == "python-docs"
    header = header_naming("tinyshakespeare")
    with pytest.raises(UsageError) as refused:
        own_data(header)
    assert refused.value.lines() == [f"error: {ALONE}", "hint: gpt data fetch tinyshakespeare"]
    cached = ENTRIES["tinyshakespeare"].cached
    cached.parent.mkdir(parents=True)
    cached.touch()
    assert own_data(header).source == "tinyshakespeare"


def test_weights_that_were_never_trained_here_have_no_text(here: Path) -> None:
    header = header_naming("python-docs", step=0)
    with pytest.raises(UsageError, match="gpt reads no text"):
        own_data(header)
    header = header_naming("python-docs", "mine/checkpoints/best.safetensors", step=0)
    run_naming("my.txt")
    assert config_of_run(header) is None
    with pytest.raises(UsageError, match="gpt reads no text"):
        own_data(header)


def test_a_text_from_stdin_is_gone(here: Path) -> None:
    header = header_naming("my.txt", "mine/checkpoints/best.safetensors")
    run_naming("-")
    with pytest.raises(DataError, match='"mine": this run was trained on text from stdin, which it does not keep'):
        own_data(header)
