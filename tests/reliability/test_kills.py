"""kill -9 at every file operation, half way through a write, and at any time: the run continues as if nothing had been."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from faults import RESUME, START, Fault, Servers, fingerprint, in_parallel, new_folder, scaled, some_of, strays

from gpt_cli.checkpoints.run_directory import RunDirectory

FRESH = ()
CONTINUED = ("train.keep_checkpoints=1", "train.dtype=bfloat16", "model.positions=rope")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kills")


def prepare(servers: Servers, folder: Path, kind: str) -> tuple[Path, str, int]:
    """A folder as the command finds it, the digest of what the whole run leaves, and the command's file operations."""
    template, whole = folder / kind, folder / f"{kind}-whole"
    new_folder(template, *(FRESH if kind == "fresh" else CONTINUED))
    if kind == "continued":
        assert servers.gpt(template, *START, fault=Fault(150, "kill")).code == 137
    shutil.copytree(template, whole)
    ended = servers.gpt(whole, *RESUME)
    assert ended.code == 0, ended.err
    return template, fingerprint(whole / "run"), int((whole / "operations").read_text())


@pytest.mark.parametrize(("how", "kind"), [("kill", "fresh"), ("kill", "continued"), ("torn", "fresh")])
def test_killed_at_any_file_operation(servers: Servers, folder: Path, tally, how: str, kind: str) -> None:
    template, expected, num_operations = prepare(servers, folder / how, kind)

    def killed_at(number: int) -> None:
        case = folder / how / f"{kind}-{number}"
        shutil.copytree(template, case)
        assert servers.gpt(case, *RESUME, fault=Fault(number, how)).code == 137
        ended = servers.gpt(case, *RESUME)
        assert ended.code == 0, f"operation {number}: {ended.err}"
        assert fingerprint(case / "run") == expected, f"operation {number}"
        assert strays(case / "run") == [], f"operation {number}"
        shutil.rmtree(case)

    numbers = some_of(range(1, num_operations + 1), 6)
    in_parallel(killed_at, numbers)
    tally(f"kill -9 at a file operation ({how}, {kind} run) of {num_operations}: same weights in the end", len(numbers))


def test_killed_at_any_time(servers: Servers, folder: Path, tally) -> None:
    template, expected, _ = prepare(servers, folder / "times", "fresh")
    length = servers.gpt(new_folder(folder / "length"), *START).seconds
    draw = random.Random(0)

    def killed(number: int) -> None:
        case = folder / f"time-{number}"
        shutil.copytree(template, case)
        # twice, the second time while it continues
        for after in times[number]:
            assert servers.gpt(case, *RESUME, signals=[(after, 9)]).code in (0, 137)
        ended = servers.gpt(case, *RESUME)
        assert ended.code == 0, ended.err
        assert fingerprint(case / "run") == expected, times[number]

    count = scaled(50, 4)
    times = [(draw.uniform(0, length), draw.uniform(0, length)) for _ in range(count)]
    in_parallel(killed, range(count))
    tally("kill -9 at random times, twice each: same weights in the end", count)


def test_a_half_written_checkpoint_is_never_taken(servers: Servers, folder: Path, tally) -> None:
    """Every length at which a kill can cut the temporary file, by making that file."""
    case = new_folder(
        folder / "lengths",
        "model.d_model=4",
        "model.num_heads=1",
        "model.context_length=8",
        "model.tie_embeddings=true",
    )
    assert servers.gpt(case, *START).code == 0
    directory = RunDirectory(case / "run")
    content = directory.step_file(12).read_bytes()
    directory.step_file(12).unlink()
    half = directory.checkpoints / ".step-00000012.safetensors.77.01234567.tmp"
    lengths = some_of(range(len(content)), 40)
    for length in lengths:
        half.write_bytes(content[:length])
        stored = directory.newest(lambda text: pytest.fail(text))
        assert stored is not None
        assert stored.progress.step == 8
    stored = directory.newest(print)
    assert stored is not None
    directory.begin(stored.config, after=8)
    assert not half.exists()
    tally(f"lengths of a half written checkpoint of {len(content):,} bytes: the one before is used", len(lengths))
