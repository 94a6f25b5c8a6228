"""The texts of `benchmarks.auto` that come with no dataset: code, poems and a log, made from packages.

    apt-get download fortunes fortunes-zh linux-source-6.1
    python -m benchmarks.texts FOLDER --packages .

`headers.txt` is C++ headers of the torch that is installed here, 10 MB; `kernel.txt` C code of Linux, 300 MB;
`poems.txt` English songs and poems and `tang.txt` poems of the Tang, 60 kB each; `testlog.txt` what Python's own tests
print. Other versions of a package give other texts, and the log differs a little between machines, so that
`benchmarks.auto` trains on these anew.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

_FORTUNES = Path("usr/share/games/fortunes")
_TESTS = """
    argparse array ast bytes collections complex configparser dataclasses datetime decimal deque dict email enum float
    fractions functools generators heapq inspect int io ipaddress itertools json list long pathlib pickle random re set
    statistics struct textwrap typing unicode xml_etree
"""


def up_to(size: int, files: Iterable[bytes]) -> bytes:
    """The first whole files that together are no larger than a size in bytes."""
    text = bytearray()
    for content in files:
        if len(text) + len(content) > size:
            break
        text += content
    return bytes(text)


def fortunes(content: bytes, size: int = 60_000) -> str:
    """The first bytes of a collection, without the lines between its pieces and the colours of a terminal."""
    plain = re.sub(rb"\x1b\[[0-9;]*m", b"", content).replace(b"\n%\n", b"\n\n")
    return plain[:size].decode("utf-8", "ignore")


def headers() -> Iterator[bytes]:
    """The headers of torch, in the order of their paths."""
    for path in sorted((Path(torch.__file__).parent / "include").rglob("*.h")):
        yield path.read_bytes()


def kernel(archive: Path) -> Iterator[bytes]:
    """The C files of an archive, in its order."""
    with tarfile.open(archive, "r|*") as members:
        for member in members:
            file = members.extractfile(member) if member.name.endswith(".c") else None
            if file is not None:
                yield file.read()


def log() -> str:
    """What tests of Python's standard library print."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "unittest", "-v", *(f"test.test_{name}" for name in _TESTS.split())]
        said = subprocess.run(command, cwd=folder, capture_output=True, text=True).stderr
    if said.count("... ok") < 1000:
        sys.exit(f"Python's own tests are missing here:\n{said[:500]}")
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the texts go")
    parser.add_argument("--packages", type=Path, default=Path(), help="the folder of the Debian packages")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)

    def write(name: str, content: str | bytes) -> None:
        data = content.encode() if isinstance(content, str) else content
        (arguments.folder / f"{name}.txt").write_bytes(data)
        print(f"{name}.txt: {len(data):,} bytes", flush=True)

    write("headers", up_to(10_000_000, headers()))
    with tempfile.TemporaryDirectory() as folder:
        unpacked = Path(folder)
        for package in sorted(arguments.packages.glob("*.deb")):
            subprocess.run(["dpkg-deb", "--extract", package, folder], check=True)
        write("poems", fortunes((unpacked / _FORTUNES / "songs-poems").read_bytes()))
        write("tang", fortunes((unpacked / _FORTUNES / "tang300").read_bytes()))
        write("kernel", up_to(300_000_000, kernel(unpacked / "usr/src/linux-source-6.1.tar.xz")))
    write("testlog", log())


if __name__ == "__main__":
    main()
