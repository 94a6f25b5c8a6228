"""Loads files of strangers, each in a process of its own, and prints, as JSON, the memory and the seconds that it takes.

    python -m support.loaded FILE...

The processes are forked, so that what gpt imports counts for none of them.
"""

import json
import os
import sys
import time
from pathlib import Path

from support.audited import load
from support.measured import peak


def main() -> None:
    """Print a list of [bytes of peak memory, seconds]."""
    json.loads("[1]")
    found: list[tuple[int, float]] = []
    for path in [None, *map(Path, sys.argv[1:])]:
        began = time.monotonic()
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            code = 1
            try:
                if path is not None:
                    load(path)
                os.write(writing, str(peak()).encode())
                code = 0
            finally:
                os._exit(code)
        os.close(writing)
        most = os.read(reading, 100)
        os.close(reading)
        assert os.waitpid(child, 0)[1] == 0
        found.append((int(most), time.monotonic() - began))
    (nothing, _), *rest = found
    print(json.dumps([(peak - nothing, seconds) for peak, seconds in rest]))


if __name__ == "__main__":
    main()
