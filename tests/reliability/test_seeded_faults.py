"""The tests notice every fault that we put into the package on purpose."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.seeded_faults import SeededFault, read_fault, read_faults

ROOT = Path(__file__).parents[2]
FAULTS = read_faults()
# enough cases to notice each of them
SCALE = "0.05"

each_fault = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)


def passes(folder: Path, *tests: str) -> bool:
    """Whether tests of the package in `folder` pass; a fault may also end pytest's own process."""
    environment = os.environ | {"PYTHONPATH": str(folder), "GPT_TEST_SCALE": SCALE}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    print(done.stdout)
    # 2 to 5 mean that pytest itself could not run
    assert done.returncode not in (2, 3, 4, 5), done.stdout
    # the tests themselves must fail, not the import of a module or a fixture
    assert "ERROR" not in done.stdout, done.stdout
    return done.returncode == 0


def copy_package(folder: Path) -> Path:
    for name in ("gpt_cli", "configs", "tests", "benchmarks"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@each_fault
def test_the_patch_fits_the_code_and_names_tests_that_exist(fault: SeededFault, tmp_path: Path) -> None:
    assert (ROOT / fault.tests[0]).is_file()
    copy = tmp_path / fault.file
    copy.parent.mkdir(parents=True)
    shutil.copy(ROOT / fault.file, copy)
    fault.apply(tmp_path)
    assert copy.read_text() != (ROOT / fault.file).read_text()
    compile(copy.read_text(), copy, "exec")


def test_a_patch_changes_the_lines_it_names_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\ntwo\nthree\n\nfour\nfive\n")
    patch = tmp_path / "half.patch"
    patch.write_text(
        "Half is lost.\ntests: tests/a.py -k 'b or c'\n\n--- a/a.py\n+++ b/a.py\n"
        "@@ -1,2 +1,2 @@ somewhere\n one\n-two\n+2\n@@ -3,3 +3,2 @@\n \n-four\n five\n"
    )
    fault = read_fault(patch)
    assert (fault.wrong, fault.tests) == ("Half is lost.", ("tests/a.py", "-k", "b or c"))
    fault.apply(tmp_path)
    assert (tmp_path / "a.py").read_text() == "one\n2\nthree\n\nfive\n"
    with pytest.raises(AssertionError, match=r"half\.patch: its lines occur 0 times in a\.py"):
        fault.apply(tmp_path)


@pytest.mark.long
def test_without_a_fault_all_pass(tmp_path: Path) -> None:
    copy_package(tmp_path)
    for tests in dict.fromkeys(fault.tests for fault in FAULTS):
        assert passes(tmp_path, *tests), tests


@pytest.mark.long
@each_fault
def test_a_seeded_fault_is_noticed(fault: SeededFault, tmp_path: Path, tally) -> None:
    fault.apply(copy_package(tmp_path))
    assert not passes(tmp_path, *fault.tests)
    tally("seeded faults: each is noticed", 1)
