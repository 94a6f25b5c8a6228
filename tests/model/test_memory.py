import resource
import sys

import pytest
import torch

from gpt_cli.model.memory import reuse_memory


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc")
def test_large_tensors_come_back_without_a_page_fault() -> None:
    reuse_memory()
    for _ in range(3):
        torch.ones(4_000_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.ones(4_000_000)  # 16 MB, 3,906 pages
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 3_906
