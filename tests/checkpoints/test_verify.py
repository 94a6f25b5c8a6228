from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
from support.helpers import RunCommand, damage

from gpt_cli.checkpoints import verify
from gpt_cli.checkpoints.verify import ReadingAhead, Verified, read_verified
from gpt_cli.errors import CheckpointError

COMMANDS = {
    "sample": ["--prompt", "The", "--max-new-tokens", "1", "--seed", "1"],
    "eval": [],
    "attn-dump": ["--prompt", "The"],
    "explain": ["--prompt", "The"],
}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the functions that read a whole file, or compute a digest, in the order of the calls."""
    found: list[str] = []

    def count(name: str) -> None:
        real = getattr(verify, name)
        monkeypatch.setattr(verify, name, lambda *given, **named: (found.append(name), real(*given, **named))[1])

    count("reading")
    count("digest")
    return found


def test_what_was_read_ahead_is_what_would_be_read(copied: Path) -> None:
    path = copied / "checkpoints" / "best.safetensors"
    ahead, found = ReadingAhead(path).read(path), read_verified(path)
    assert ahead.header == found.header
    assert {name: one.tobytes() for name, one in ahead.content.items()} == {
        n: c.tobytes() for n, c in found.content.items()
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_reads_and_verifies_a_file_once(
    smoke_run: Path, run: RunCommand, calls: list[str], command: str
) -> None:
    assert run(command, "--run", str(smoke_run), *COMMANDS[command], "--quiet").code == 0
    assert calls == ["reading", "digest"]


def test_the_file_is_read_before_anyone_asks_for_it(smoke_run: Path, calls: list[str]) -> None:
    path = smoke_run / "checkpoints" / "best.safetensors"
    reading = ReadingAhead(path)
    reading._thread.join()
    assert calls == ["reading", "digest"]
    reading.read(path)
    assert calls == ["reading", "digest"]
    reading.read(path)
    assert calls == ["reading", "digest"] * 2  # nothing is kept for a second look


@pytest.mark.parametrize("wrong", ["damaged", "truncated", "foreign", "missing", "directory"])
def test_errors_are_those_without_reading_ahead(copied: Path, calls: list[str], wrong: str) -> None:
    path = copied / "checkpoints" / "best.safetensors"
    if wrong == "damaged":
        damage(path)
    elif wrong == "truncated":
        path.write_bytes(path.read_bytes()[:-1])
    elif wrong == "foreign":
        path.write_bytes(b"model: {}")
    else:
        path.unlink()
        if wrong == "directory":
            path.mkdir()
    with pytest.raises(CheckpointError) as expected:
        read_verified(path)
    once = list(calls)
    with pytest.raises(CheckpointError) as raised:
        ReadingAhead(path).read(path)
    assert raised.value.lines() == expected.value.lines()
    assert calls == once * 2


def test_another_file_than_expected_is_read_when_it_is_asked_for(copied: Path) -> None:
    best, last = (copied / "checkpoints" / f"{name}.safetensors" for name in ("best", "step-00000010"))
    assert ReadingAhead(best).read(last).header.step == 10


def test_a_file_that_was_replaced_meanwhile_is_read_anew(copied: Path) -> None:
    best, other = (copied / "checkpoints" / f"{name}.safetensors" for name in ("best", "step-00000010"))
    reading = ReadingAhead(best)
    reading._thread.join()
    os.replace(other, best)
    assert reading.read(best).header.step == 10


def test_a_file_that_was_damaged_in_place_meanwhile_is_noticed(copied: Path) -> None:
    best = copied / "checkpoints" / "best.safetensors"
    reading, before = ReadingAhead(best), best.stat()
    reading._thread.join()
    damage(best)
    os.utime(best, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(CheckpointError, match="damaged"):
        reading.read(best)


def test_a_file_that_was_removed_meanwhile_is_missing(copied: Path) -> None:
    best = copied / "checkpoints" / "best.safetensors"
    reading = ReadingAhead(best)
    reading._thread.join()
    best.unlink()
    with pytest.raises(CheckpointError, match="there is no such file"):
        reading.read(best)


def test_content_and_errors_are_freed_by_their_last_user(copied: Path) -> None:
    best = copied / "checkpoints" / "best.safetensors"
    found: list[weakref.ref[Verified | CheckpointError]] = []
    gc.disable()  # without a cycle of references, nothing waits for the collector
    try:
        found.append(weakref.ref(ReadingAhead(best).read(best)))
        damage(best)
        try:
            ReadingAhead(best).read(best)
        except CheckpointError as error:
            found.append(weakref.ref(error))
    finally:
        gc.enable()
    assert [one() for one in found] == [None, None]


def test_a_failure_in_the_thread_is_one_of_the_command(
    smoke_run: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Path) -> Verified:
        raise MemoryError

    monkeypatch.setattr(verify, "read_verified", fail)
    outcome = run("sample", "--run", str(smoke_run), "--prompt", "The", "--quiet")
    assert outcome.err.startswith("error: memory: gpt sample ran out of memory\n")


def test_ctrl_c_ends_a_command_that_waits_for_the_thread(smoke_run: Path) -> None:
    script = (
        "import os, signal, sys, time\n"
        "from gpt_cli.__main__ import main\n"
        "from gpt_cli.checkpoints import verify\n"
        "def wait(path):\n"
        "    while 'gpt_cli.sampling.sample' not in sys.modules: time.sleep(0.01)\n"
        "    time.sleep(0.3)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(60)\n"
        "verify.read_verified = wait\n"
        f"sys.argv = ['gpt', 'sample', '--run', {str(smoke_run)!r}, '--prompt', 'The']\n"
        "sys.exit(main())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stopped\n")
