"""What gpt wrote is told by content: other trainers give their files the same names."""

from pathlib import Path

import pytest

from gpt_cli.common.file_signatures import _SECTIONS, holds_run, is_config, is_ours
from gpt_cli.config import Config
from gpt_cli.config.load import shipped_configs, write_config

HYDRA = "model: {dropout: 0.1}\ntrain: {batch_size: 4}\n"  # each key is one of ours
LIGHTNING = "model:\n  d_model: 8\n  num_heads: 1\n  num_blocks: 1\n  context_length: 8\ntrainer:\n  max_epochs: 3\n"


def test_every_file_of_a_run_is_ours_and_so_is_the_run(smoke_run: Path) -> None:
    assert holds_run(smoke_run)
    assert all(is_ours(path) for path in smoke_run.rglob("*.*"))
    assert {*Config.model_fields} == _SECTIONS
    assert all(map(is_config, shipped_configs().values()))


def test_a_config_that_names_thousands_of_texts_is_whole(here: Path) -> None:
    """As after `gpt train --data texts/*.txt`: train comes after the names."""
    config = Config().changed(data={"source": [f"texts/{number:06}-a-file-of-a-shell.txt" for number in range(5000)]})
    (here / "config.yaml").write_text(write_config(config))
    assert is_config(here / "config.yaml", whole=True)


@pytest.mark.parametrize("content", [HYDRA, LIGHTNING, "", "a: 1\n", "- model\n", "model:\n  context_length: 8\n"])
def test_a_config_of_another_program_makes_no_run(here: Path, content: str) -> None:
    (here / "checkpoints").mkdir()
    (here / "config.yaml").write_text(content)
    (here / "checkpoints" / "best.safetensors").write_text("theirs")
    assert not holds_run(here)


@pytest.mark.parametrize("config", ["", "\0" * 99, "a: 1\n", None])
def test_a_checkpoint_of_ours_makes_a_run_whatever_is_left_of_its_config(copied: Path, config: str | None) -> None:
    (copied / "config.yaml").unlink() if config is None else (copied / "config.yaml").write_text(config)
    assert holds_run(copied)


def test_a_config_makes_a_run_of_damaged_checkpoints_also_one_that_is_cut_off_or_of_another_version(
    copied: Path,
) -> None:
    for path in (copied / "checkpoints").iterdir():
        path.write_bytes(b"damaged")
    written = (copied / "config.yaml").read_text()
    for config, whole in {written[:100]: False, written.replace("dropout", "removed_key"): True}.items():
        (copied / "config.yaml").write_text(config)
        assert (holds_run(copied), is_config(copied / "config.yaml", whole=True)) == (True, whole)


@pytest.mark.parametrize("name", ["config.yaml", "metrics.jsonl", "samples.txt", "outcome.json", "loss.png"])
def test_a_file_of_a_run_with_another_content_is_someone_elses_and_zeros_are_not(copied: Path, name: str) -> None:
    for content, ours in {"epoch,loss\n1,2\n": False, "": True, "\0" * 99: True}.items():
        (copied / name).write_text(content)
        assert is_ours(copied / name) == ours
    (copied / name).unlink()
    assert not is_ours(copied / name)
    (copied / name).mkdir()
    assert not is_ours(copied / name)
