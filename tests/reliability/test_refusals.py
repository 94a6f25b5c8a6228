"""The disk is full or fails at any file operation: `gpt train` names what is intact, exits with 5, and continues later."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.faults import RESUME, START, Fault, fingerprint, in_parallel, new_folder, some_of, strays
from support.forks import Servers
from support.helpers import RunCommand
from support.users import hand_over

from gpt_cli.checkpoints.run_directory import RunDirectory

REASONS = {
    "ENOSPC": "there is no space left on the filesystem",
    "EIO": "input/output error",
    "EROFS": "the filesystem is read-only",
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, servers: Servers) -> tuple[Path, str, int]:
    """The folder in which the command starts, and of the undisturbed run the digest and the number of file operations."""
    template = new_folder(
        tmp_path_factory.mktemp("refusals") / "a", "train.max_steps=8", "train.save_every=3", "model.num_heads=1"
    )
    whole = shutil.copytree(template, template.with_name("whole"))
    servers.gpt(whole, *RESUME, exits=0)
    return template, fingerprint(whole / "run"), int((whole / "operations").read_text())


@pytest.mark.parametrize(
    ("kind", "ever_after"),
    [
        pytest.param("ENOSPC", False, id="full-once"),
        pytest.param("ENOSPC", True, id="full-for-good", marks=pytest.mark.long),
        pytest.param("EIO", False, id="broken-once", marks=pytest.mark.long),
        pytest.param("EROFS", True, id="read-only"),
    ],
)
def test_refused_at_any_file_operation(
    tmp_path: Path, servers: Servers, whole, tally, kind: str, ever_after: bool
) -> None:
    template, expected, num_operations = whole

    def refused(number: int) -> bool:
        folder = shutil.copytree(template, tmp_path / str(number))
        ended = servers.gpt(folder, *RESUME, fault=Fault(number, kind, ever_after))
        # removing never fails here, and the last operations only remove the lock
        if ended.code != 0:
            assert ended.code == 5, ended.err
            error = next(line for line in ended.err.splitlines() if line.startswith("error: "))
            assert REASONS[kind] in error
            steps = RunDirectory(folder / "run").steps()
            if "step 1/8" in ended.err:
                # a checkpoint whose save failed at its last operation may exist; it does not count
                safe = [step for step in steps if f"step-{step:08}" not in error]
                intact = (
                    f"the checkpoint of step {max(safe)} is intact"
                    if safe
                    else RunDirectory(folder / "run").without_checkpoints
                )
                assert error.endswith(f"; {intact}"), error
                assert "continue with gpt train --out run --resume" in ended.err
            if steps:
                assert RunDirectory(folder / "run").newest(lambda text: pytest.fail(text)) is not None
            assert strays(folder / "run") == []
        servers.gpt(folder, *RESUME, exits=0)
        assert fingerprint(folder / "run") == expected
        shutil.rmtree(folder)
        return ended.code == 5

    numbers = some_of(range(1, num_operations + 1), 3, cost=2)
    found = in_parallel(refused, numbers)
    assert sum(found) > len(found) / 2
    how = f"{kind} at a file operation{' and ever after' * ever_after}"
    tally(f"{how} of {num_operations}: exit 5, continues", len(numbers))


@pytest.mark.parametrize("place", ["run", "run/checkpoints"])
def test_a_directory_without_permission_is_refused_before_the_first_step(
    theirs: Path, servers: Servers, place: str
) -> None:
    folder = new_folder(theirs / "a")
    servers.gpt(folder, *RESUME, "--max-steps", "8", exits=0)
    before = fingerprint(folder / "run")
    hand_over(folder)
    (folder / place).chmod(0o555)
    ended = servers.gpt(folder, *RESUME, unprivileged=True, exits=5)
    assert ended.err.endswith(f'error: writing "{place}": permission is denied\n'), ended.err
    assert "step 9/12" not in ended.err
    (folder / place).chmod(0o755)
    assert fingerprint(folder / "run") == before


def test_a_file_larger_than_the_system_allows_leaves_the_old_ones(tmp_path: Path, servers: Servers) -> None:
    """Here the system itself refuses, in the middle of the first checkpoint."""
    folder = new_folder(tmp_path / "a")
    assert servers.gpt(folder, *RESUME, largest_file=100_000, exits=5).err.splitlines()[-2:] == [
        'error: writing "run/checkpoints/step-00000004.safetensors": the file would be larger than this process may write; '
        "only the best weights so far are saved",
        "hint: continue with gpt train --out run --resume",
    ]
    assert strays(folder / "run") == []


def test_a_disk_that_is_too_small_is_reported_before_the_first_step(
    tmp_path: Path, run: RunCommand, monkeypatch
) -> None:
    monkeypatch.chdir(new_folder(tmp_path / "a"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10_000))
    assert run(*START, exits=5).err.splitlines()[-2:] == [
        'error: "run": the run needs up to 1 MB of disk, but only 0 MB are free',
        "hint: free some space, name another directory with --out, or try --set train.keep_checkpoints=1",
    ]
    assert not Path("run").exists()
