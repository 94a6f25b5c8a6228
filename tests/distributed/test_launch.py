"""The launcher: how many processes fit, and what it does with those it has started."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support.helpers import RunCommand, small_config
from support.light import WithoutTorch

from gpt_cli.common.machine.signals import STOPS, handling
from gpt_cli.distributed import launch as module
from gpt_cli.distributed.launch import Workers, require_fitting
from gpt_cli.errors import EnvironmentFailure, UsageError


@pytest.mark.parametrize(
    ("num_processes", "batch_size", "at_once", "sentence", "hint"),
    [
        (2, 4, 4, "2 processes cannot share a batch of 4 sequences evenly, 4 at once; 1 process can", 2),
        (8, 16, 4, "8 processes cannot share a batch of 16 sequences evenly, 4 at once; 1, 2 or 4 processes can", 2),
        (4, 12, 2, "4 processes cannot share a batch of 12 sequences evenly, 2 at once; 1 or 2 processes can", 1),
        (8, 12, 2, "8 processes cannot share a batch of 12 sequences evenly, 2 at once; 1 or 2 processes can", None),
    ],
)
def test_a_number_that_does_not_fit_is_refused_with_what_does(
    num_processes: int, batch_size: int, at_once: int, sentence: str, hint: int | None
) -> None:
    config = small_config(f"train.batch_size={batch_size}", f"train.micro_batch_size={at_once}")
    with pytest.raises(UsageError) as raised:
        require_fitting(num_processes, config)
    assert (raised.value.where, raised.value.sentence) == ("‹processes›", sentence)
    assert raised.value.hint == (hint and f"‹train.micro_batch_size={hint}›")


TWO = "--processes 2 --set train.micro_batch_size=2"
UNEVEN = "cannot share a batch of 8 sequences evenly"


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        ("--processes 4", f"--processes: 4 processes {UNEVEN}, 8 at once; 1 process can"),
        ("--processes 0", '--processes: "0" is not a whole number from 1 to 1,024'),
        (f"{TWO} --data -", "--data: only one process can read stdin, so save the text to a file and name that file"),
        (
            f"{TWO} --device cuda:1",
            "train.device: cuda:1 is one GPU, but each process needs its own GPU; use cuda",
        ),
    ],
)
def test_a_wrong_launch_is_one_line_before_torch_is_loaded(
    here: Path, flags: str, error: str, without_torch: WithoutTorch
) -> None:
    done = without_torch("train", "--config", "smoke", "--set", "train.batch_size=8", *flags.split())
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, f"error: {error}")
    assert list(here.iterdir()) == []


def test_a_number_of_a_sweep_that_is_none_is_refused(
    here: Path, run: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPT_LAUNCHER", "abc")
    assert (
        run("train", "--config", "smoke", exits=2).err
        == 'error: GPT_LAUNCHER: "abc" is not a whole number of at least 0\n'
    )


def intact() -> tuple[str, str]:
    return "the newest checkpoint is of step 40", "continue with gpt train --out r --resume"


def launched(folder: Path, script: str, size: int = 3) -> Workers:
    """Processes that run a script of Python instead of gpt."""
    workers = Workers(size, folder, intact)
    workers.start(
        [sys.executable, "-S", "-c", f"import os, signal, time\nrank = int(os.environ['RANK'])\n{script}"], {}
    )
    return workers


def ends_with(folder: Path, script: str) -> int:
    workers = launched(folder, script)
    try:
        return workers.wait()
    finally:
        workers.kill()


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("", 0),
        ("time.sleep(0.1 * rank); os._exit(143)", 143),  # as asked
        # one by a signal before it listens
        ("rank == 1 and os.kill(os.getpid(), 15)\ntime.sleep(0.5)\nos._exit(5)", 143),
    ],
)
def test_processes_that_succeed_or_stop_give_the_exit_code_of_all(tmp_path: Path, script: str, code: int) -> None:
    assert ends_with(tmp_path, script) == code


def test_the_exit_code_is_that_of_the_process_that_told_the_user_why(tmp_path: Path) -> None:
    """Others may end before it."""
    script = f"""
if rank == 1: open({str(tmp_path / "said")!r}, "w").write("1 3"); time.sleep(0.3)
os._exit(3 if rank == 1 else 5)"""
    assert ends_with(tmp_path, script) == 3


def test_a_process_that_is_killed_is_named_with_what_is_left(tmp_path: Path) -> None:
    """The others end as well, in silence, when they lose it."""
    script = "rank == 2 and os.kill(os.getpid(), 9)\ntime.sleep(0.5)\nos._exit(5)"
    with pytest.raises(EnvironmentFailure) as raised:
        ends_with(tmp_path, script)
    assert raised.value.lines() == [
        "error: process 2 of 3: SIGKILL ended it, as the system does when memory runs out; "
        "the newest checkpoint is of step 40",
        "hint: continue with gpt train --out r --resume",
    ]


def test_a_failure_just_before_all_have_ended_counts(tmp_path: Path) -> None:
    workers = launched(tmp_path, "os._exit(4)")
    for process in workers.processes:
        process.wait()
    with pytest.raises(EnvironmentFailure):  # nobody has said why
        workers.wait()


def test_what_does_not_end_with_the_others_is_asked_and_then_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GRACE", 0.3)
    monkeypatch.setattr(module, "AFTER_TERM", 0.3)
    script = """
signal.signal(15, (lambda *_: os._exit(0)) if rank == 0 else signal.SIG_IGN)
if rank == 1: time.sleep(0.2); os._exit(4)
time.sleep(60)"""
    workers = launched(tmp_path, script)
    with pytest.raises(EnvironmentFailure):  # nobody has said why
        workers.wait()
    assert [process.returncode for process in workers.processes] == [0, 4, -9]


def test_the_last_resort_of_the_launcher_is_not_told_as_a_stop_by_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that hears TERM says so, unless another one speaks."""
    monkeypatch.setattr(module, "GRACE", 0.5)
    script = f"""
def hear(*_): open({str(tmp_path / "said")!r}, "a").write("1 143\\n"); os._exit(143)
signal.signal(15, hear)
if rank == 0: time.sleep(0.2); os._exit(5)
time.sleep(60)"""
    with pytest.raises(EnvironmentFailure) as raised:
        ends_with(tmp_path, script)
    assert "the processes lost contact with each other; the newest checkpoint is of step 40" in str(raised.value)
    assert (tmp_path / "said").read_text().startswith("-1 5\n")


def test_a_folder_that_was_removed_before_they_met_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "meeting"
    folder.mkdir()
    with pytest.raises(
        EnvironmentFailure, match="it was removed, but the processes need it to connect; the newest checkpoint is of"
    ):
        ends_with(folder, f"import shutil; rank == 1 and shutil.rmtree({str(folder)!r})\ntime.sleep(0.5)\nos._exit(5)")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_goes_to_all_and_usr1_to_the_first(tmp_path: Path, number: signal.Signals) -> None:
    script = f"""
def hear(number, _): open(f"{tmp_path}/{{rank}}-{{number}}", "w").close(); number == 10 or os._exit(128 + number)
for n in (1, 2, 10, 15): signal.signal(n, hear)
signal.pthread_sigmask(signal.SIG_UNBLOCK, [10])
open(f"{tmp_path}/ready-{{rank}}", "w").close()
while True: time.sleep(0.01)"""
    workers = Workers(2, tmp_path, intact)

    def ask() -> None:
        while len(list(tmp_path.glob("ready-*"))) < 2:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGUSR1)
        while not list(tmp_path.glob("*-10")):
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    with handling((*STOPS, signal.SIGUSR1), workers.hear):
        threading.Thread(target=ask).start()
        workers.start([sys.executable, "-S", "-c", f"import os, signal, time; rank = os.environ['RANK']\n{script}"], {})
        assert workers.wait() == 128 + number
    assert sorted(path.name for path in tmp_path.glob("*-10")) == ["0-10"]
    assert len(list(tmp_path.glob(f"[01]-{int(number)}"))) == 2


def test_only_the_first_process_has_stdin_and_stdout(tmp_path: Path) -> None:
    script = f"""
import sys
sys.path.insert(0, {str(Path(module.__file__).parents[2])!r})
from pathlib import Path
from gpt_cli.distributed.launch import Workers
code = "import os, sys; print(sys.stdin.read()); print('err', file=sys.stderr)"
workers = Workers(2, Path({str(tmp_path)!r}), lambda: ("", None))
workers.start([sys.executable, "-S", "-c", code], {{}})
sys.exit(workers.wait())"""
    done = subprocess.run([sys.executable, "-c", script], input="text", capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "text\n", "err\nerr\n")
