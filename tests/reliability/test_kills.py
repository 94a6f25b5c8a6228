"""After `kill -9` at any file operation, half way through a write or at any time, the run continues with the same result."""

import os
import random
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.faults import (
    RESUME,
    START,
    Fault,
    KilledError,
    Operations,
    fingerprint,
    in_parallel,
    new_folder,
    scaled,
    some_of,
    strays,
)
from support.forks import Servers
from support.helpers import CORPUS_TEXT

import gpt_cli.common.files
from gpt_cli.checkpoints.checkpoint import read_checkpoint, save_checkpoint
from gpt_cli.checkpoints.run_directory import RunDirectory

KINDS = {
    "fresh": "",
    "continued": "train.keep_checkpoints=1 train.dtype=bfloat16 model.positions=rope inspect.prompt=squared inspect.every=4",
    # three models of 4 steps
    "taught": "train.teacher_share=0.33 train.num_models=3 train.ema_decay=0.5 train.keep_checkpoints=1",
}


class Prepared(NamedTuple):
    """The folder in which the command starts, and of the undisturbed run the digest, file operations and seconds."""

    template: Path
    expected: str
    num_operations: int
    seconds: float


@pytest.fixture(scope="module")
def prepared(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Prepared]:
    folder = tmp_path_factory.mktemp("kills")

    @cache
    def prepare(kind: str) -> Prepared:
        template = new_folder(folder / kind, *KINDS[kind].split())
        (template / "corpus.txt").write_text(CORPUS_TEXT[:2000])  # of which a teacher's targets are soon drawn
        if kind == "continued":
            servers.gpt(template, *START, fault=Fault(150, "kill"), exits=137)
        whole = shutil.copytree(template, folder / f"{kind}-whole")
        ended = servers.gpt(whole, *RESUME, exits=0)
        return Prepared(template, fingerprint(whole / "run"), int((whole / "operations").read_text()), ended.seconds)

    return prepare


@pytest.mark.parametrize(
    ("how", "kind"),
    [*(("kill", kind) for kind in KINDS), pytest.param("torn", "fresh", marks=pytest.mark.long)],
)
def test_killed_at_any_file_operation(servers: Servers, prepared, tmp_path: Path, tally, how: str, kind: str) -> None:
    template, expected, num_operations, _ = prepared(kind)

    def killed_at(number: int) -> None:
        case = shutil.copytree(template, tmp_path / str(number))
        servers.gpt(case, *RESUME, fault=Fault(number, how), exits=137)
        RunDirectory(case / "run").newest(pytest.fail)  # no file is ever damaged
        servers.gpt(case, *RESUME, exits=0)
        assert fingerprint(case / "run") == expected, f"operation {number}"
        assert strays(case / "run") == [], f"operation {number}"
        shutil.rmtree(case)

    numbers = some_of(range(1, num_operations + 1), 3, cost=2 if kind == "fresh" else 3)
    in_parallel(killed_at, numbers)
    tally(f"kill -9 at a file operation ({how}, {kind} run) of {num_operations}: same weights in the end", len(numbers))


def test_killed_at_any_time(servers: Servers, prepared, tmp_path: Path, tally) -> None:
    template, expected, _, length = prepared("fresh")
    draw = random.Random(0)

    def killed(number: int) -> None:
        case = shutil.copytree(template, tmp_path / str(number))
        # twice, the second time while it continues
        for after in times[number]:
            assert servers.gpt(case, *RESUME, signals=[(after, 9)]).code in (0, 137)
        servers.gpt(case, *RESUME, exits=0)
        assert fingerprint(case / "run") == expected, times[number]

    count = scaled(50)
    times = [(draw.uniform(0, length), draw.uniform(0, length)) for _ in range(count)]
    in_parallel(killed, range(count))
    tally("kill -9 at random times, twice each: same weights in the end", count)


class DieAfter:
    """Lets the program write a number of bytes, then raises KilledError at every operation."""

    def __init__(self, num_bytes: int):
        self.left = num_bytes
        self.dead = False

    def __call__(self, _: int, name: str, arguments: tuple[Any, ...]) -> None:
        if name == "write" and not self.dead and len(arguments[1]) <= self.left:
            self.left -= len(arguments[1])
            return
        if name == "write" and not self.dead:
            os.write(arguments[0], arguments[1][: self.left])
            self.dead = True
        if self.dead:
            raise KilledError


def test_killed_after_any_byte_of_a_checkpoint(
    servers: Servers, tmp_path: Path, tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real writer dies in this process, and leaves what a killed process would leave."""
    small = ("model.d_model=4", "model.num_heads=1", "model.context_length=8", "model.tie_embeddings=true")
    case = new_folder(tmp_path / "a", *small)
    servers.gpt(case, *START, exits=0)
    directory = RunDirectory(case / "run")
    path = directory.step_file(12)
    checkpoint = read_checkpoint(path, everything=True)
    save_checkpoint(path, checkpoint)  # with its tensors in the order in which they were read
    size = path.stat().st_size
    path.unlink()
    lengths = some_of(range(size), 12, cost=8)
    for length in lengths:
        with monkeypatch.context() as patch:
            patch.setattr(gpt_cli.common.files, "os", Operations(DieAfter(length)))
            with pytest.raises(KilledError):
                save_checkpoint(path, checkpoint)
        (left,) = directory.checkpoints.glob(".*")
        assert left.stat().st_size == length
        stored = directory.newest(pytest.fail)
        assert stored is not None
        assert stored.progress.step == 8
        left.unlink()
    tally(f"kills after a byte of a checkpoint of {size:,}: the one before is used", len(lengths))
