"""What long texts take: files of attention and explanations of them need little memory beside their numbers."""

import os
import subprocess
import sys

import pytest

# in a process of its own, whose highest memory is not that of other tests; a small call imports and warms up
SCRIPT = """
import re, sys
from pathlib import Path
import numpy as np
from gpt_cli.tools.explain.explanation import Explanation, Step
from gpt_cli.attention_maps.patterns import AttentionDump, Origin
from gpt_cli.common.files import write_durably
from gpt_cli.tools.interpret.attention_files import encode_dump

def act(what, T):
    tokens = tuple("token" for _ in range(T))
    weights = np.tril(np.random.default_rng(0).random((T, T), np.float32))
    if what == "explain":
        step = Step("weights", "w", weights.astype(np.float64), tokens, tokens)
        for piece in Explanation("a head", [step]).to_json():
            assert len(piece) < 10**6
    else:
        heads, origin = (0, 1) if what == ".png" else (0,), Origin("runs/tiny", 5, "a text")
        dump = AttentionDump(tokens, (1,) * T, (0,), heads, {"weights": np.stack([weights] * len(heads))[None]}, origin)
        write_durably(Path(f"a{what}"), encode_dump(dump, what))

def highest():  # unlike ru_maxrss without that of the process that started this one
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

for case in sys.argv[1:]:
    what, num_tokens = case.split("=")
    act(what, 16)
    Path("/proc/self/clear_refs").write_text("5")  # the highest from now on
    before = highest()
    act(what, int(num_tokens))
    print((highest() - before) / 1000)
"""


# what is freed goes back at once and pages are small, or malloc and the kernel decide what is measured: on a busy
# machine the picture once seemed to take three times as much
AS_IT_IS = {"MALLOC_MMAP_THRESHOLD_": "1000000", "MALLOC_ARENA_MAX": "1", "NUMPY_MADVISE_HUGEPAGE": "0"}


# by what is written of how many tokens, the most megabytes; at once, these took 30, 18, 18 and 540
MEGABYTES = {".json=600": 15, ".csv=600": 10, "explain=600": 10, ".png=1500": 400}


@pytest.mark.long
def test_memory_beside_the_numbers_is_bounded(here: object) -> None:
    command = [sys.executable, "-c", SCRIPT, *MEGABYTES]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **AS_IT_IS})
    assert done.returncode == 0, done.stderr
    taken = map(float, done.stdout.split())
    for (what, most), megabytes in zip(MEGABYTES.items(), taken, strict=True):
        assert 0 <= megabytes < most, what
