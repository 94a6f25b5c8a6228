"""Names of strangers: links in circles, pipes, devices and sockets where a text, a file or a directory is expected."""

import os
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.fuzzing import require_answer
from support.helpers import CORPUS_TEXT, RunCommand, damage

from gpt_cli.errors import shown

SPECIAL = ["pipe", "socket", "/dev/zero", "/dev/null", "/dev/full", "to-zero", "circle", "broken", "empty", "x" * 300]


@pytest.fixture(name="odd")
def _odd(here: Path) -> Iterator[Path]:
    """A folder with one of each."""
    os.mkfifo("pipe")
    for name, target in (("to-zero", "/dev/zero"), ("circle", "circle"), ("broken", "nothere"), ("pipe.png", "pipe")):
        (here / name).symlink_to(target)
    (here / "empty").mkdir()
    (here / "a.txt").write_text(CORPUS_TEXT)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        yield here


@pytest.mark.parametrize(
    ("command", "codes"),
    [
        ("data stats", {3}),
        ("train --config smoke --data", {3}),
        ("config check", {2}),
        ("info", {2, 4, 5}),
        ("sample --prompt a --run", {4}),
        ("sample --run TRAINED --prompt-file", {3}),
        ("import", {4}),
    ],
)
def test_what_is_no_file_is_refused_at_once(
    command: str, codes: set[int], odd: Path, trained: Path, run: RunCommand
) -> None:
    before, began = set(odd.iterdir()), time.monotonic()
    words = command.replace("TRAINED", str(trained / "runs/smoke")).split()
    for name in SPECIAL:
        require_answer(run(*words, name), *codes)
        assert set(odd.iterdir()) == before, name
    assert time.monotonic() - began < 60  # of a hang


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("pipe.png", '"pipe.png": this is not a regular file; name a new or a regular file'),
        ("nothere/a.png", 'writing "nothere/a.png": there is no such directory'),
        ("a.txt/a.png", 'writing "a.txt/a.png": a part of the path is not a directory'),
        ("x" * 300 + ".png", "the name is too long"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_the_work(
    out: str, said: str, odd: Path, trained: Path, run: RunCommand
) -> None:
    """A pipe without a reader would hang, and the parents of a file are not made."""
    of = ["--run", str(trained / "runs/smoke")]
    for command in (["attn-dump", "--prompt", "The", *of], ["heads", "--prompt", "The value", *of], ["report", of[1]]):
        outcome = run(*command, "--out", out)
        require_answer(outcome, 5)
        assert said in outcome.err


@pytest.mark.parametrize("out", ["circle", "broken", "pipe", "a.txt", "/dev/null"])
def test_a_directory_to_write_is_no_file_and_no_link_to_nothing(
    out: str, odd: Path, trained: Path, run: RunCommand
) -> None:
    """To make what a broken link names would write elsewhere."""
    before = set(odd.iterdir())
    for command in (
        ["train", "--config", "smoke", "--data", "a.txt"],
        ["export", "--run", str(trained / "runs/smoke")],
        ["import", "nothere"],
        ["data", "fetch", "repeats"],
    ):
        require_answer(run(*command, "--out", out), 2)
    assert set(odd.iterdir()) == before


@pytest.mark.parametrize(
    ("command", "ending"),
    [
        ("export --run runs/smoke", ""),
        ("export --run runs/smoke --format safetensors", ".safetensors"),
        ("export --run runs/smoke --format html", ".html"),
        ("attn-dump --run runs/smoke --prompt The", ".npz"),
        ("attn-dump --run runs/smoke --over-training", ".html"),
        ("heads --run runs/smoke --prompt The_value", ".json"),
        ("explain --study mask", ".svg"),
        ("report runs/smoke", ".png"),
        ("import runs/smoke", ""),
        ("sweep s.yaml", ""),
        ("data fetch repeats", ""),
    ],
)
def test_what_no_file_can_replace_is_refused_before_the_work(
    command: str, ending: str, odd: Path, trained: Path, run: RunCommand
) -> None:
    """The checkpoints are damaged, which is said as soon as one is read."""
    for path in shutil.copytree(trained / "runs/smoke", odd / "runs/smoke").glob("checkpoints/*"):
        damage(path)
    Path("s.yaml").write_text("base: smoke\ngrid: {train.seed: [1]}\n")
    os.mkfifo(f"a-pipe{ending}")
    Path(f"a-device{ending}").symlink_to("/dev/full")
    Path(f"a-socket{ending}").symlink_to("socket")
    if ending:
        Path(f"a-folder{ending}").mkdir()
    before = {path: path.lstat().st_mode for path in odd.rglob("*")}
    for path in sorted(odd.glob("a-*")):
        outcome = run(*command.split(), "--out", path.name)
        require_answer(outcome, 2, 5)
        assert shown(path.name) in outcome.err
    assert {path: path.lstat().st_mode for path in odd.rglob("*")} == before


def test_a_notice_shows_the_name_of_a_file_as_it_is_and_on_one_line(trained: Path, here: Path, run: RunCommand) -> None:
    name = "two\nlines\x1b[2J"
    run_of = ["--run", str(trained / "runs/smoke")]
    for command, ending in (
        (["attn-dump", "--prompt", "The", *run_of], ".csv"),
        (["heads", "--prompt", "The value", *run_of], ".csv"),
        (["report", run_of[1]], ".html"),
        (["export", "--format", "safetensors", *run_of], ".safetensors"),
    ):
        outcome = run(*command, "--out", name + ending, exits=0)
        assert Path(name + ending).exists()
        escaped = (name + ending).encode("unicode_escape").decode()
        assert [line for line in (outcome.err + outcome.out).splitlines() if escaped in line]


def test_what_a_file_replaces_is_a_link_and_not_what_it_leads_to(odd: Path, trained: Path, run: RunCommand) -> None:
    Path("link.json").symlink_to("a.txt")
    run("attn-dump", "--run", str(trained / "runs/smoke"), "--prompt", "The", "--out", "link.json", exits=0)
    assert Path("a.txt").read_text() == CORPUS_TEXT
    assert not Path("link.json").is_symlink()


def test_no_command_replaces_a_run_behind_a_folder_that_is_missing(copied: Path, run: RunCommand) -> None:
    """The system knows no nothere/.., and realpath takes it for the folder above."""
    before = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    for command in (["export", "--run", str(copied)], ["train", "--config", "smoke", "--quiet"]):
        for out in ("nothere/../runs/smoke", "nothere/.."):
            require_answer(run(*command, "--out", out), 2, 5)
    assert {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()} == before
    assert not Path("nothere").exists()


@pytest.mark.parametrize("separator", ["x" * 50_000, "\n" * 2_000, "\0", ".*", "[", "(a+)+$", "\u2028", "今" * 9_000])
def test_a_separator_is_plain_text_of_any_length(separator: str, odd: Path, run: RunCommand) -> None:
    Path("b.txt").write_text(f"the first{separator}the second")
    outcome = run("data", "stats", "b.txt", "--config", "smoke", "--set", f"data.separator={separator}", "--json")
    require_answer(outcome, 0, 2, 3)
    if outcome.code == 0:
        assert '"documents": 2' in outcome.out
