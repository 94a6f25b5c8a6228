"""The power fails at any moment of a run. The newest checkpoint whose save had returned survives, or the one being saved."""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.disk import Disk, Tree
from support.faults import RESUME, START, fingerprint, in_parallel, new_folder, some_of
from support.forks import SAMPLE_NEW_TOKENS, Servers
from support.helpers import run_command

import gpt_cli.common.files
from gpt_cli.checkpoints.checkpoint import Checkpoint, read_checkpoint
from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.text import token_files
from gpt_cli.text.token_files import TokenWriter, open_tokens
from gpt_cli.training import evaluate_and_log

CONFIG = ("model.d_model=4", "train.keep_checkpoints=1")


class Recorder:
    """Replaces the module `os` in our writers, and keeps every state that a power cut may leave.

    Each state has the steps that may be found: the newest whose save had returned, and the one being saved.
    """

    def __init__(self) -> None:
        self.disk = Disk()
        self.opened: dict[int, int | str] = {}  # descriptor -> a file, or the path of what was opened to be read
        self.saved: int | None = None
        self.saving: int | None = None
        self.states: dict[bytes, tuple[Tree, set[int | None]]] = {}

    def __getattr__(self, name: str) -> Any:
        if name not in ("replace", "unlink", "mkdir"):
            return getattr(os, name)

        def recorded(*paths: Any) -> None:
            getattr(os, name)(*paths)
            getattr(self.disk, name)(*map(str, paths))
            self.keep()

        return recorded

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        descriptor = os.open(path, flags, mode)
        writes = flags & (os.O_WRONLY | os.O_RDWR)
        truncate = bool(flags & os.O_TRUNC)
        self.opened[descriptor] = self.disk.create(str(path), truncate=truncate) if writes else str(path)
        self.keep()
        return descriptor

    def write(self, descriptor: int, content: Any) -> int:
        written = os.write(descriptor, content)
        file = self.opened[descriptor]
        assert isinstance(file, int)
        self.disk.write(file, bytes(content[:written]))
        if any(self.disk.names[path] == file for path in self.disk.names if matters(path)):
            self.keep()
        return written

    def fsync(self, descriptor: int) -> None:
        opened = self.opened[descriptor]
        if isinstance(opened, int):
            self.disk.fsync_file(opened)
        else:
            self.disk.fsync("" if opened == "." else opened)
        self.keep()

    def keep(self) -> None:
        found = {self.saved} | ({self.saving} if self.saving else set())
        for tree in self.disk.states(matters):
            digest = hashlib.sha256(repr(sorted(tree.items())).encode()).digest()
            _, allowed = self.states.setdefault(digest, (tree, set(found)))
            # a state that is possible at two moments must be right at both
            allowed &= found


def matters(path: str) -> bool:
    return not Path(path).name.startswith(".")


def record(recorder: Recorder, *arguments: str) -> None:
    """Run a command in this process, and keep every state on the way."""
    save = RunDirectory.save

    def save_and_note(directory: RunDirectory, checkpoint: Checkpoint, keep: int) -> None:
        recorder.saving = checkpoint.progress.step
        save(directory, checkpoint, keep)
        recorder.saved, recorder.saving = recorder.saving, None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpt_cli.common.files, "os", recorder)
        patch.setattr(RunDirectory, "save", save_and_note)
        patch.setattr(evaluate_and_log, "SAMPLE_NEW_TOKENS", SAMPLE_NEW_TOKENS)  # as those that continue
        run_command(*arguments, exits=0)


@pytest.fixture(name="recorded")
def _recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """A whole run, from the creation of its directory."""
    monkeypatch.chdir(new_folder(tmp_path / "recorded", *CONFIG))
    recorder = Recorder()
    record(recorder, *START)
    return recorder


def build(tree: Tree, folder: Path) -> RunDirectory:
    for path, content in tree.items():
        if content is None:
            (folder / path).mkdir(parents=True, exist_ok=True)
        else:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
    return RunDirectory(folder / "run")


def test_the_power_fails_at_any_moment(recorded: Recorder, tmp_path: Path, servers: Servers, tally) -> None:
    lines = Path("run/metrics.jsonl").read_text().splitlines(keepends=True)
    states = list(recorded.states.values())
    chosen, ended = some_of(states, 200), 0
    for number, (tree, allowed) in enumerate(chosen):
        directory = build(tree, tmp_path / str(number))
        stored = directory.newest(lambda text: pytest.fail(text))  # no file is ever damaged
        assert (stored and stored.progress.step) in allowed, sorted(tree)
        if directory.best.exists():
            read_checkpoint(directory.best)
        if directory.outcome.exists():
            assert (json.loads(directory.outcome.read_text())["step"], allowed) == (12, {12})
            ended += 1
        if stored:
            directory.open_for(None, after=stored.progress.observed_step)
            assert directory.metrics.read_text() == "".join(lines[: stored.progress.step])
            assert not directory.outcome.exists()  # a run that continues has not ended
        shutil.rmtree(tmp_path / str(number), ignore_errors=True)
    assert ended
    tally(
        f"states of {len(states):,} that a power cut may leave: the newest saved checkpoint, or the one being saved",
        len(chosen),
    )

    expected = fingerprint(Path("run"))

    def continued(number: int) -> None:
        folder = new_folder(tmp_path / f"c{number}", *CONFIG)
        build(states[number][0], folder)
        servers.gpt(folder, *RESUME, exits=0)
        assert fingerprint(folder / "run") == expected
        shutil.rmtree(folder)

    numbers = some_of(range(len(states)), 4)
    in_parallel(continued, numbers)
    tally("of these states continued to the end: same weights", len(numbers))


def test_the_power_fails_while_a_run_is_replaced(recorded: Recorder, tmp_path: Path, tally) -> None:
    """Until the new config is written, the old run or a part of it is there; afterwards, nothing of it."""
    recorded.disk.fsync_all()
    recorded.states.clear()
    configs = [Path("run/config.yaml").read_text()]
    record(recorded, *START, "--overwrite", "--seed", "5", "--max-steps", "4")
    configs.append(Path("run/config.yaml").read_text())
    states = some_of(list(recorded.states.values()), 60)
    old = new = 0
    for number, (tree, _) in enumerate(states):
        directory = build(tree, tmp_path / str(number))
        seed = (1337, 5)[configs.index(directory.config.read_text())]
        stored = directory.newest(pytest.fail) if seed == 5 or directory.steps() else None
        assert stored is None or stored.config.train.seed == seed
        if seed == 5:
            new += 1
            assert (
                stored is not None
                or not directory.best.exists()
                or read_checkpoint(directory.best).config.train.seed == 5
            )
        else:
            old += 1
        shutil.rmtree(tmp_path / str(number))
    assert old
    assert new
    tally("states that a power cut may leave while a run is replaced: the old run or the new one", len(states))


def test_the_power_fails_while_a_text_is_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tally) -> None:
    """The parts that are found are whole, the index is found after all of them, and the rest is written again."""
    groups = [np.arange(start, start + 4, dtype=np.uint16) for start in range(0, 12, 4)]

    def write() -> None:
        writer = TokenWriter(Path("tokens"), np.uint16)
        for group in groups[writer.num_groups :]:
            writer.add(group)
        writer.finish({})

    monkeypatch.setattr(token_files, "PART_TOKENS", 4)
    monkeypatch.chdir(tmp_path)
    recorder = Recorder()
    with monkeypatch.context() as patch:
        patch.setattr(gpt_cli.common.files, "os", recorder)
        write()
    expected = {path.name: path.read_bytes() for path in Path("tokens").iterdir()}
    states = [tree for tree, _ in recorder.states.values()]
    for number, tree in enumerate(states):
        folder = tmp_path / str(number)
        folder.mkdir()
        build(tree, folder)
        monkeypatch.chdir(folder)
        for path, content in tree.items():
            assert content is None or content == expected[Path(path).name]  # no file is ever damaged
        if tokens := open_tokens(Path("tokens")):
            tokens.verify()
        write()
        assert {path.name: path.read_bytes() for path in Path("tokens").iterdir()} == expected
    assert len(states) > 4
    tally("states that a power cut may leave of a text that is prepared: continued to the same files", len(states))


def test_the_model_of_a_disk_loses_what_was_not_fsynced() -> None:
    """Worked by hand: a file renamed before its content is safe may be empty, cut or zeroed."""
    disk = Disk()
    file = disk.create("new")
    disk.write(file, b"12345678")
    disk.replace("new", "final")
    found = [tree.get("final") for tree in disk.states(matters)]
    assert set(found) == {None, b"\0" * 8, *(b"12345678"[:length] for length in range(9))}
    disk.fsync_file(file)
    assert {tree.get("final") for tree in disk.states(matters)} == {None, b"12345678"}
    disk.fsync("")
    assert list(disk.states(matters)) == [{"final": b"12345678"}]
