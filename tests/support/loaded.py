"""Loads files of strangers, each in a process of its own, and prints, as JSON, the memory and the seconds that it takes.

    python -m support.loaded FILE...

The processes are forked, so that what gpt imports counts for none of them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from support.audited import load


def main() -> None:
    """Print a list of [bytes of peak memory, seconds]."""
    json.loads("[1]")
    found: list[tuple[int, float]] = []
    for path in [None, *map(Path, sys.argv[1:])]:
        began = time.monotonic()
        child = os.fork()
        if not child:
            try:
                if path is not None:
                    load(path)
            finally:
                os._exit(0)
        _, status, used = os.wait4(child, 0)
        assert status == 0
        found.append((1024 * used.ru_maxrss, time.monotonic() - began))
    (nothing, _), *rest = found
    print(json.dumps([(peak - nothing, seconds) for peak, seconds in rest]))


if __name__ == "__main__":
    main()
