import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
from support.helpers import RunCommand, damage

from gpt_cli.checkpoints import verify
from gpt_cli.checkpoints.verify import read_verified
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


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_read_and_verify_files_once(smoke_run: Path, run: RunCommand, calls: list[str], command: str) -> None:
    assert run(command, "--run", str(smoke_run), *COMMANDS[command], "--quiet").code == 0
    assert calls == ["reading", "digest"]


def test_gpt_info_reads_and_verifies_each_file_of_a_run_once(
    smoke_run: Path, run: RunCommand, calls: list[str]
) -> None:
    run("info", smoke_run, exits=0)
    assert calls == ["reading", "digest", "digest"] * 3, "weights and the rest of two steps and the best"


def test_content_and_errors_are_freed_by_their_last_user(copied: Path) -> None:
    best = copied / "checkpoints" / "best.safetensors"
    found: list[weakref.ref[Any]] = []
    gc.disable()  # without a cycle of references, nothing waits for the collector
    try:
        found.append(weakref.ref(next(iter(read_verified(best)[1].values()))))
        damage(best)
        try:
            read_verified(best)
        except CheckpointError as error:
            found.append(weakref.ref(error))
    finally:
        gc.enable()
    assert [one() for one in found] == [None, None]
