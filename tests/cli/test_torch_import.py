from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

from gpt_cli.common.machine.memory import importing_torch


def test_torch_is_imported_without_the_collector_which_leaves_its_objects_alone_afterwards(tmp_path: Path) -> None:
    """In its place is a module with as many objects."""
    (tmp_path / "torch.py").write_text("objects = [[] for _ in range(200_000)]")
    script = (
        "import gc\nfrom gpt_cli.common.machine.memory import importing_torch\n"
        "with importing_torch():\n    assert not gc.isenabled()\n    import torch\n"
        "assert gc.isenabled()\nassert gc.get_freeze_count() > 100_000"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path)


def test_an_import_that_fails_leaves_the_collector_at_work() -> None:
    script = (
        "import gc\nfrom gpt_cli.common.machine.memory import importing_torch\n"
        "try:\n    with importing_torch(): import no_such_module\nexcept ImportError: assert gc.isenabled()"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_folder_that_was_removed_is_one_sentence(tmp_path: Path) -> None:
    """Without one, the import of torch ends the process with a line of MKL and exit code 2."""
    folder = tmp_path / "gone"
    folder.mkdir()
    script = (
        "import os, sys\nfrom gpt_cli.__main__ import run\nos.rmdir(os.getcwd())\n"
        "code = run(['explain', '--study', 'mask'])\nassert 'torch' not in sys.modules\nsys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=folder)
    said = "error: this folder: it was removed, and PyTorch needs one\nhint: cd ~\n"
    assert (done.returncode, done.stderr) == (5, said)


def test_nothing_happens_where_torch_is_there_already() -> None:
    frozen = gc.get_freeze_count()
    with importing_torch():
        assert gc.isenabled()
    assert gc.get_freeze_count() == frozen
