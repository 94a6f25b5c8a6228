from __future__ import annotations

import gc
import subprocess
import sys

from gpt_cli.cli.importing import importing_torch


def test_torch_is_imported_without_the_collector_which_leaves_its_objects_alone_afterwards() -> None:
    script = (
        "import gc\nfrom gpt_cli.cli.importing import importing_torch\n"
        "with importing_torch():\n    assert not gc.isenabled()\n    import torch\n"
        "assert gc.isenabled()\nassert gc.get_freeze_count() > 100_000"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_an_import_that_fails_leaves_the_collector_at_work() -> None:
    script = (
        "import gc\nfrom gpt_cli.cli.importing import importing_torch\n"
        "try:\n    with importing_torch(): import no_such_module\nexcept ImportError: assert gc.isenabled()"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_nothing_happens_where_torch_is_there_already() -> None:
    frozen = gc.get_freeze_count()
    with importing_torch():
        assert gc.isenabled()
    assert gc.get_freeze_count() == frozen
