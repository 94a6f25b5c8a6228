import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gpt_cli.common.machine import memory
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


def test_a_container_may_have_less_memory_than_its_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a group above that of the process has the limit, as in a Slurm job; what is cached is free."""
    group = tmp_path / "job" / "step"
    group.mkdir(parents=True)
    for folder, most, used in ((group, "max", 300), (group.parent, "1000", 700)):
        (folder / "memory.max").write_text(f"{most}\n")
        (folder / "memory.current").write_text(f"{used}\n")
        (folder / "memory.stat").write_text("anon 500\ninactive_file 200\nactive_file 7\n")
    (tmp_path / "cgroup").write_text("3:cpu:/other\n0::/job/step\n")
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:   8 kB\n")
    monkeypatch.setattr(memory, "_CGROUPS", tmp_path)
    monkeypatch.setattr(memory, "_PROC_CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(memory, "_PROC_MEMINFO", tmp_path / "meminfo")
    assert memory.available_memory() == 1000 - 700 + 200
    (group.parent / "memory.max").write_text("max\n")
    assert memory.available_memory() == 8 * 1024
    monkeypatch.setattr(memory, "_PROC_CGROUP", tmp_path / "none")
    assert memory.available_memory() == 8 * 1024
