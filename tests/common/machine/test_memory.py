import resource
import subprocess
import sys

import pytest
import torch

from gpt_cli.common.machine.memory import reuse_memory

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc")


def test_large_tensors_come_back_without_a_page_fault() -> None:
    """The least of several tries, since a busy system takes pages away; without reuse each try has 39,060 faults."""
    reuse_memory()
    faults = []
    for _ in range(6):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(10):
            torch.ones(4_000_000)  # 16 MB, 3,906 pages
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    assert min(faults) < 3_906


def test_the_main_thread_reuses_what_a_thread_has_freed() -> None:
    """In a process of its own, since heaps of threads that were there before remain."""
    script = (
        "import resource, threading\nfrom gpt_cli.common.machine.memory import reuse_memory\nreuse_memory()\n"
        "def use(): bytearray(b'x') * 16_000_000\n"
        "def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "thread = threading.Thread(target=use); thread.start(); thread.join()\n"
        "before = faults()\nuse()\nprint(faults() - before)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 390  # of 3,906 pages
