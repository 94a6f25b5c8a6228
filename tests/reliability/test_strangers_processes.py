"""Little memory and an early Ctrl-C: a command ends with one sentence and its exit code, whatever Python is doing."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.helpers import RunCommand

SAMPLE = ["sample", "--run", "runs/smoke", "--prompt", "The", "--max-new-tokens", "1"]


def limited(megabytes: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `gpt` in a process whose address space has a limit."""
    command = ["bash", "-c", f'ulimit -v {megabytes * 1024}; exec "$@"', "-", sys.executable, "-m", "gpt_cli"]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize(
    ("megabytes", "sentence"),
    [
        (24, "gpt ran out of memory"),
        # each of these broke while another library was loaded, with a traceback or a signal
        (60, "gpt needs 268 MB of address space, but this process may have 63 MB"),
        (300, "PyTorch needs 1074 MB of address space, but this process may have 315 MB"),
    ],
)
def test_too_little_address_space_is_no_bug(megabytes: int, sentence: str, smoke_run: Path) -> None:
    done = limited(megabytes, *SAMPLE)
    assert done.returncode == 5
    assert done.stderr.splitlines()[0] == f"error: memory: {sentence}"
    if megabytes > 24:
        least = done.stderr.split()[-3]
        assert f"hint: raise the limit, which ulimit -v shows, to {least} or more" in done.stderr


@pytest.mark.long
def test_the_address_space_that_the_hint_names_is_enough(smoke_run: Path) -> None:
    done = limited(1024, *SAMPLE, "--threads", "2")
    assert done.returncode == 0, done.stderr


# both load torch before they are refused
@pytest.mark.long
@pytest.mark.parametrize(
    "words", ["sweep a.yaml", "train --config smoke --data nothing --processes 2 --set train.micro_batch_size=4"]
)
def test_the_processes_that_gpt_starts_import_nothing_from_the_working_folder(
    words: str, here: Path, run: RunCommand
) -> None:
    """`python -m` does, and a torch.py in a stranger's folder ran."""
    for name in ("torch", "numpy", "typer", "yaml", "gpt_cli"):
        Path(f"{name}.py").write_text("open('canary', 'w')")
    Path("a.yaml").write_text("base: smoke\nsettings: {data.source: nothing}\ngrid: {train.seed: [1]}\n")
    run(*words.split(), exits=3)
    assert not Path("canary").exists()


def test_nothing_slow_is_imported_before_ctrl_c_is_handled() -> None:
    """What a module imports at its top can be interrupted with a traceback, so there is next to nothing."""
    script = "import os, sys\nbefore = set(sys.modules)\nimport gpt_cli.__main__\nprint(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    ours = {"gpt_cli", "gpt_cli.__main__", "gpt_cli.common"}
    assert set(done.stdout.split()) <= ours | {"_signal", "__future__"}
