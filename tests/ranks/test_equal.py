"""The result of a training does not depend on how many processes share it, to the last bit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.faults import RESUME, START, fingerprint, new_folder, some_of, strays
from support.forks import Servers

# eight lanes of one sequence, or six
EIGHT = ("train.batch_size=8", "train.micro_batch_size=1", "train.eval_tokens=640")
CASES = {
    "adamw": EIGHT,
    "latent, muon": (*EIGHT, "model.attention=latent", "model.positions=rope", "train.optimizer=muon"),
    "grouped-query, rmsnorm, post": (
        *EIGHT,
        "model.attention=grouped_query",
        "model.norm=rmsnorm",
        "model.norm_position=post",
    ),
    "bfloat16": (*EIGHT, "train.dtype=bfloat16"),
    "six lanes": ("train.batch_size=12", "train.micro_batch_size=2"),
    "one block, muon": (*EIGHT, "train.optimizer=muon", "model.num_blocks=1", "model.num_heads=1"),
    "muon in bfloat16, rope, n-grams, tied": (
        *EIGHT,
        "train.dtype=bfloat16",
        "train.optimizer=muon",
        "model.positions=rope",
        "model.ngram_embedding=3",
        "model.tie_embeddings=true",
    ),
}


def trained(servers: Servers, folder: Path, processes: int, *settings: str) -> str:
    """What a run of twelve steps leaves, when so many processes train it."""
    new_folder(folder, *settings)
    ended = servers.gpt(folder, *START, "--json", processes=processes)
    assert (ended.code, ended.err.count("error")) == (0, 0), ended.err
    assert strays(folder / "run") == []
    closing = json.loads((folder / "stdout").read_text().splitlines()[-1])
    return f"{fingerprint(folder / 'run')}, closing loss {closing['validation_loss']}"


@pytest.mark.parametrize("case", some_of(list(CASES)))
def test_any_number_of_processes_gives_the_same_run(servers: Servers, tmp_path: Path, case: str) -> None:
    alone = trained(servers, tmp_path / "1", 1, *CASES[case])
    for processes in (2,) if case == "six lanes" else some_of([2, 8, 4]):
        assert trained(servers, tmp_path / str(processes), processes, *CASES[case]) == alone, processes


def test_a_run_continues_on_another_number_of_processes(servers: Servers, tmp_path: Path) -> None:
    settings = (*EIGHT, "train.optimizer=muon", "train.keep_checkpoints=10")
    alone = trained(servers, tmp_path / "run", 1, *settings)
    for processes, stopped_at in ((4, 4), (2, 8)):
        for path in (tmp_path / "run/run/checkpoints").glob("step-*"):
            if int(path.stem.removeprefix("step-")) > stopped_at:
                path.unlink()
        ended = servers.gpt(tmp_path / "run", *RESUME, processes=processes)
        assert ended.code == 0, ended.err
        assert alone.startswith(fingerprint(tmp_path / "run/run")), processes


def test_processes_that_end_by_the_clock_end_together(servers: Servers, tmp_path: Path) -> None:
    """Each has a clock of its own, and that of the first decides."""
    folder = new_folder(tmp_path / "run", *EIGHT, "train.max_time=2")
    ended = servers.gpt(folder, *START, processes=4)
    assert ended.code == 0, ended.err
    assert strays(folder / "run") == []


def test_processes_read_their_windows_from_the_disk(servers: Servers, tmp_path: Path) -> None:
    """The first one prepares the text; all find it, in a cache of this folder."""
    on_disk = {"gpt_cli.text.encoding.CACHE_FROM": 1, "gpt_cli.text.encoding.IN_MEMORY": 0}
    folder = new_folder(tmp_path / "on disk", *EIGHT)
    ended = servers.gpt(folder, *START, processes=4, constants=on_disk)
    assert ended.code == 0, ended.err
    assert len(list((folder / "cache").rglob("part-*.safetensors"))) == 2  # training and validation
    alone = trained(servers, tmp_path / "in memory", 1, *EIGHT)
    assert alone.startswith(fingerprint(folder / "run"))
