"""The disk is full or fails at every file operation: exit 5, what is intact is named, and the run continues later."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from faults import RESUME, Fault, Servers, fingerprint, in_parallel, new_folder, some_of, strays

from gpt_cli.checkpoints.run_directory import RunDirectory

REASONS = {
    "ENOSPC": "no space left on the filesystem",
    "EIO": "input/output error",
    "EROFS": "the filesystem is read-only",
}


@pytest.mark.parametrize(
    ("kind", "ever_after"), [("ENOSPC", False), ("ENOSPC", True), ("EIO", False), ("EROFS", True)],
    ids=["full-once", "full-for-good", "broken-once", "read-only"],
)  # fmt: skip
def test_refused_at_any_file_operation(tmp_path: Path, servers: Servers, tally, kind: str, ever_after: bool) -> None:
    template = new_folder(tmp_path / "template", "train.max_steps=8", "train.save_every=3", "model.num_heads=1")
    whole = shutil.copytree(template, tmp_path / "whole")
    assert servers.gpt(whole, *RESUME).code == 0
    num_operations, expected = int((whole / "operations").read_text()), fingerprint(whole / "run")

    def refused(number: int) -> bool:
        folder = shutil.copytree(template, tmp_path / str(number))
        ended = servers.gpt(folder, *RESUME, fault=Fault(number, kind, ever_after))
        # removing is not refused, and at the end nothing but the lock is left to be removed
        if ended.code != 0:
            assert ended.code == 5, ended.err
            error = next(line for line in ended.err.splitlines() if line.startswith("error: "))
            assert REASONS[kind] in error
            steps = RunDirectory(folder / "run").steps()
            if "step 1/8" in ended.err:
                told = f"the checkpoint of step {max(steps)} is intact" if steps else "nothing was saved yet"
                assert error.endswith(f"; {told}"), error
                assert "continue with gpt train --out run --resume" in ended.err
            if steps:
                assert RunDirectory(folder / "run").newest(lambda text: pytest.fail(text)) is not None
            assert strays(folder / "run") == []
        again = servers.gpt(folder, *RESUME)
        assert again.code == 0, again.err
        assert fingerprint(folder / "run") == expected
        shutil.rmtree(folder)
        return ended.code == 5

    numbers = some_of(range(1, num_operations + 1), 5)
    found = in_parallel(refused, numbers)
    assert sum(found) > len(found) / 2
    tally(
        f"{kind} at a file operation{' and ever after' * ever_after} of {num_operations}: exit 5, continues",
        len(numbers),
    )
