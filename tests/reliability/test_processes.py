"""Trainings by two processes that are signalled, killed or stopped: all end together, and nothing is left but the run."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.faults import new_folder, some_of, strays
from support.helpers import WAIT, wait_until

from gpt_cli.checkpoints.run_directory import RunDirectory

TRAIN = (sys.executable, "-m", "gpt_cli", "train", "--config", "c.yaml")
LONG = ("--out", "run", "--set", "train.max_steps=1000000", "--max-time", "10m", "--quiet", "--processes", "2")
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}


@dataclass
class Training:
    """A launcher and its two ranks, somewhere in a training."""

    folder: Path
    launcher: subprocess.Popen[str]
    ranks: list[int]

    def send(self, where: str, number: int) -> None:
        os.kill(self.launcher.pid if where == "launcher" else self.ranks[int(where)], number)

    def ended(self) -> tuple[int, list[str]]:
        """The exit code of the launcher and the lines of all; nothing may outlive it but for a moment."""
        _, err = self.launcher.communicate(timeout=WAIT)
        wait_until("a rank outlives its launcher", lambda: not any(map(lives, self.ranks)))
        assert list((self.folder / "tmp").iterdir()) == []
        return self.launcher.returncode, err.splitlines()

    def newest(self) -> int:
        """The step of the newest checkpoint, which is whole, as is all else."""
        assert strays(self.folder / "run") == []
        checkpoint = RunDirectory(self.folder / "run").newest(pytest.fail)
        assert checkpoint is not None
        return checkpoint.progress.step


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextlib.contextmanager
def training(folder: Path) -> Iterator[Training]:
    """A training that has saved its first checkpoint."""
    new_folder(folder)
    (folder / "tmp").mkdir()
    environment = ENVIRONMENT | {"TMPDIR": str(folder / "tmp")}
    launcher = subprocess.Popen(
        [*TRAIN, *LONG], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    ranks: list[int] = []
    try:
        run = RunDirectory(folder / "run")
        wait_until("it does not save", lambda: launcher.poll() is not None or run.steps())
        assert launcher.poll() is None, launcher.communicate()
        ranks += [int(pid) for pid in Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()]
        assert len(ranks) == 2
        yield Training(folder, launcher, ranks)
    finally:
        for pid in (launcher.pid, *ranks):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        launcher.communicate()


def listening_addresses(pid: int) -> set[str]:
    """The local addresses of a process's TCP sockets, in hexadecimal as in /proc/net/tcp."""
    links = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
    inodes = {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}
    rows = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
    ]
    return {row[1].partition(":")[0] for row in rows if row[9] in inodes}


STOPS = [(where, number) for number in (15, 2, 1) for where in ("1", "0", "launcher")]


@pytest.mark.parametrize(("where", "number"), some_of(STOPS, least=1))
def test_a_signal_to_any_process_stops_all_at_one_saved_step(tmp_path: Path, where: str, number: int) -> None:
    with training(tmp_path / "a") as running:
        addresses = [listening_addresses(pid) for pid in running.ranks]
        assert addresses == 2 * [{"0100007F"}]  # 127.0.0.1
        running.send(where, number)
        code, lines = running.ended()
    step = running.newest()
    assert code == 128 + number
    cause = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
    assert lines == [f"stopped by {cause}; step {step} is saved. To continue: gpt train --out run --resume"]


@pytest.mark.long
@pytest.mark.parametrize("rank", [0, 1])
def test_the_death_of_a_rank_ends_all_with_what_is_intact(tmp_path: Path, rank: int) -> None:
    with training(tmp_path / "a") as running:
        running.send(str(rank), signal.SIGKILL)
        code, lines = running.ended()
    # a killed first rank leaves what a killed process leaves; the next start removes it
    step = max(RunDirectory(running.folder / "run").steps())
    assert code == 5
    assert lines == [
        f"error: process {rank} of 2: SIGKILL ended it, as the system does when memory runs out; "
        f"the newest checkpoint is of step {step}",
        "hint: continue with gpt train --out run --resume",
    ]


@pytest.mark.long
def test_the_death_of_the_launcher_stops_all_with_a_last_save(tmp_path: Path) -> None:
    with training(tmp_path / "a") as running:
        running.send("launcher", signal.SIGKILL)
        code, lines = running.ended()
    assert code == -signal.SIGKILL
    assert lines == [f"stopped by SIGTERM; step {running.newest()} is saved. To continue: gpt train --out run --resume"]


@pytest.mark.long
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_hangs_ends_all_within_a_minute(tmp_path: Path, rank: int) -> None:
    with training(tmp_path / "a") as running:
        running.send(str(rank), signal.SIGSTOP)
        began = time.monotonic()
        code, lines = running.ended()
        assert time.monotonic() - began < 60
    assert code == 5
    assert len(lines) == 2
    assert lines[0].startswith(f"error: process {rank} of 2: it has not answered for 30 s")
    assert lines[1] == "hint: continue with gpt train --out run --resume"


@pytest.mark.long
def test_a_training_that_is_suspended_as_a_whole_goes_on(tmp_path: Path) -> None:
    """As by Ctrl-Z and fg, an eternity later."""
    with training(tmp_path / "a") as running:
        everyone = (running.launcher.pid, *running.ranks)
        for pid in everyone:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(40)
        for pid in everyone:
            os.kill(pid, signal.SIGCONT)
        time.sleep(5)
        running.send("launcher", signal.SIGTERM)
        assert running.ended()[0] == 143


@pytest.mark.long
def test_a_host_name_that_does_not_resolve_disturbs_nobody(tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "a")
    own_name = ["unshare", "--uts", "sh", "-c", 'hostname nowhere-at-all && exec "$@"', "sh"]
    if subprocess.run([*own_name, "true"], capture_output=True).returncode:
        pytest.skip("this system gives no host name of its own")
    command = [*own_name, *TRAIN, "--processes", "2", "--quiet"]
    done = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
