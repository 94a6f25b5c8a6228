"""What large texts cost: reading, tokenizing, memory, starting and batches from the disk; part of `make bench`.

The text is made of the lines of a corpus in a keyed order, repeated up to the asked size. Each figure is beside
the path that has the whole text in memory (`whole_texts`), forms in turns, medians; the ratio says how many times
better a form is. What needs memory of its own runs in a process of its own, without torch. Everything is written
below the working directory, and removed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from benchmarks import whole_texts
from gpt_cli.common.files import cache_directory
from gpt_cli.common.machine.cpu_contention import cores
from gpt_cli.common.rng import permutation, stream_key
from gpt_cli.common.tables import table
from gpt_cli.config import DataConfig, TokenizerConfig
from gpt_cli.config.load import read_config
from gpt_cli.errors import GptError
from gpt_cli.text.cache import RACY_SECONDS
from gpt_cli.text.encode import encode, encode_parts
from gpt_cli.text.load import read_data
from gpt_cli.text.token_files import Ids, TokensOnDisk
from gpt_cli.text.tokenizers import Tokenizer
from gpt_cli.text.train_tokenizer import learn_tokenizer

BEFORE = "whole text in memory"
FILE_BYTES = 2000  # of each of many files


class Row(NamedTuple):
    """A figure; the ratio is to that of the first form of the same work, and more is better."""

    work: str
    form: str
    figure: float
    unit: str
    ratio: float | None = None


class Started(NamedTuple):
    """What a process that prepares a text took, and where it left the ids, if on the disk."""

    seconds: float
    peak: float  # bytes
    directory: Path | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=50, help="size of the text that is measured in turns")
    parser.add_argument("--large", type=float, default=1000, help="size of the text that only gpt prepares")
    parser.add_argument("--files", type=int, default=20_000, help="number of small files")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--config", default="small", help="whose step waits for its batch")
    parser.add_argument("--data", nargs="+", default=["python-docs"], metavar="FILE", help="whose lines the text has")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    try:
        blocks = read_data(DataConfig(source=arguments.data)).blocks()
        lines = "".join(block.text for block in blocks).splitlines(keepends=True)
    except GptError as error:
        sys.exit(str(error))
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as name:
        folder = Path(name).absolute()
        with mock.patch.dict(os.environ, XDG_CACHE_HOME=str(folder / "cache")):
            rows = [*measure(arguments, lines, folder)]
    if arguments.json:
        print(json.dumps({"cores": cores(), "megabytes": arguments.megabytes, "rows": [row._asdict() for row in rows]}))
        return
    print(f"{arguments.megabytes:g} MB, {cores()} cores, medians of {arguments.rounds}")
    print(table([("work", "form", "figure", "unit", "ratio"), *map(_words, rows)]))


def measure(arguments: argparse.Namespace, lines: list[str], folder: Path) -> Iterator[Row]:
    """All rows, in the order in which they are measured."""
    rounds = arguments.rounds
    say("writing texts")
    text, large, files = folder / "text.txt", folder / "large.txt", folder / "files"
    write_text(text, lines, arguments.megabytes)
    write_text(large, lines, arguments.large)
    write_files(files, text, arguments.files)
    yield from survey(text, rounds)
    yield from encode_each_kind(text, rounds)
    yield from start(text, files, arguments)
    yield from start_large(large, folder, arguments)


def survey(text: Path, rounds: int) -> Iterator[Row]:
    """One pass that hashes and counts."""
    forms = {
        BEFORE: lambda: whole_texts.digest(whole_texts.read(text)),
        "gpt": lambda: read_data(DataConfig(source=str(text)), fresh=True),
    }
    yield from speeds("one pass", text, in_turns("one pass", forms, rounds))


def encode_each_kind(text: Path, rounds: int) -> Iterator[Row]:
    """Tokenizing, from the file to ids that are durable on disk; that beside it has them in memory."""
    corpus = read_data(DataConfig(source=str(text)))
    training, validation = corpus.split(0.1)
    for kind in ("bpe", "byte", "char"):
        started = time.perf_counter()
        tokenizer = learn_tokenizer(TokenizerConfig(kind=kind), training, validation)
        if kind == "bpe":
            yield Row("learning byte pairs", "gpt", training.num_bytes / 1e6 / (time.perf_counter() - started), "MB/s")
        forms = {
            BEFORE: partial(encode_before, text, tokenizer),
            "gpt, 1 core": partial(encode_anew, text, tokenizer, 1),
        }
        if (number := cores()) > 1:
            forms[f"gpt, {number} cores"] = partial(encode_anew, text, tokenizer, number)
        np.testing.assert_array_equal(forms[BEFORE](), forms["gpt, 1 core"]())
        yield from speeds(f"tokenizing, {kind}", text, in_turns(f"tokenizing, {kind}", forms, rounds))


def encode_before(text: Path, tokenizer: Tokenizer) -> np.ndarray:
    return whole_texts.encode(whole_texts.read(text), tokenizer)


def encode_anew(text: Path, tokenizer: Tokenizer, num_cores: int) -> Ids:
    """The ids of a text that are not in the cache yet."""
    shutil.rmtree(cache_directory("tokens"), ignore_errors=True)
    with only_cores(num_cores):
        return encode(read_data(DataConfig(source=str(text))), tokenizer)


def start(text: Path, files: Path, arguments: argparse.Namespace) -> Iterator[Row]:
    """From the first look at a text to its ids: the first time, and when a cache has them; and the peak of memory."""
    wait_until_old(files)
    for source, size in ((text, f"{arguments.megabytes:g} MB"), (files, f"{arguments.files:,} files")):
        found: dict[str, dict[str, list[Started]]] = {f"{which} start, {size}": {} for which in ("first", "next")}
        for number in range(arguments.rounds):
            say(f"starting with {size}, round {number + 1} of {arguments.rounds}")
            caches = source.with_name("cache-before"), source.with_name("cache-gpt")
            for work in found:
                before = in_child(start_before, source, caches[0], arguments.config)
                ours = in_child(start_gpt, source, caches[1], arguments.config, work.startswith("first"))
                found[work].setdefault(BEFORE, []).append(before)
                found[work].setdefault("gpt", []).append(ours)
            for cache in caches:
                shutil.rmtree(cache, ignore_errors=True)
        for work, by_form in found.items():
            taken = {form: statistics.median(each.seconds for each in times) for form, times in by_form.items()}
            yield from (Row(work, form, each, "s", taken[BEFORE] / each) for form, each in taken.items())
        if source is text:
            first = found[f"first start, {size}"]
            peaks = {form: statistics.median(each.peak for each in times) for form, times in first.items()}
            yield Row("peak memory", "imports alone", in_child(peak_memory) / 1e6, "MB")
            for form, peak in peaks.items():
                yield Row("peak memory", f"{form}, {size}", peak / 1e6, "MB", peaks[BEFORE] / peak)


def start_before(source: Path, cache: Path, config_name: str) -> Started:
    """In a process of its own: the path with the whole text in memory."""
    vocab_size = read_config(config_name).tokenizer.vocab_size
    started = time.perf_counter()
    whole_texts.start(source, cache, vocab_size)
    return Started(time.perf_counter() - started, peak_memory())


def start_gpt(source: Path, cache: Path, config_name: str, prepare: bool) -> Started:
    """In a process of its own: what `gpt train` does, or `gpt data prepare`, which does not load the ids."""
    os.environ["XDG_CACHE_HOME"] = str(cache)
    config = read_config(config_name).changed(data={"source": str(source)}, tokenizer={"kind": "bpe"})
    started = time.perf_counter()
    training, validation = read_data(config.data).split(config.data.validation_fraction)
    ids = encode_parts(training, validation, config, load=not prepare).ids
    directory = ids.directory if isinstance(ids, TokensOnDisk) else None
    return Started(time.perf_counter() - started, peak_memory(), directory)


def start_large(large: Path, folder: Path, arguments: argparse.Namespace) -> Iterator[Row]:
    """The same for a text that the other path would not hold, and then batches of its ids from the disk."""
    say("preparing the large text")
    size, cache = f"{arguments.large:g} MB", folder / "cache-large"
    first = in_child(start_gpt, large, cache, arguments.config, True)
    again = in_child(start_gpt, large, cache, arguments.config, False)
    yield Row("peak memory", f"gpt, {size}", first.peak / 1e6, "MB")
    yield Row(f"first start, {size}", "gpt", first.seconds, "s")
    yield Row(f"next start, {size}", "gpt", again.seconds, "s")
    if first.directory is not None:
        say("reading batches")
        from benchmarks.reading import read_batches  # loads torch

        seconds = read_batches(first.directory, folder, arguments.config, arguments.rounds)
        step = seconds.pop("step")
        yield Row("a step", arguments.config, step * 1e3, "ms")
        for form, taken in seconds.items():
            yield Row("reading a batch", form, taken * 1e3, "ms", seconds["np.memmap"] / taken)
        for form, taken in seconds.items():
            yield Row("share of a step", form, 100 * taken / step, "%")


def write_text(path: Path, lines: list[str], megabytes: float) -> None:
    """The lines in a new order for each repetition, up to the size."""
    with path.open("wb") as file:
        repetition = 0
        while (left := round(megabytes * 1e6) - file.tell()) > 0:
            order = permutation(stream_key(0, "benchmark", repetition), len(lines))
            content = "".join(lines[number] for number in order).encode("utf-8")
            # a character that is cut at the end becomes spaces
            file.write(
                content if len(content) <= left else content[:left].decode("utf-8", "ignore").encode().ljust(left)
            )
            repetition += 1


def write_files(folder: Path, text: Path, number: int) -> None:
    """A text in a number of files of FILE_BYTES each; it begins again where it ends."""
    folder.mkdir()
    content = text.read_bytes()
    for name in range(number):
        start = name * FILE_BYTES % len(content)
        # the first and the last character may be cut
        part = content[start : start + FILE_BYTES].decode("utf-8", "ignore")
        (folder / f"{name:07}.txt").write_text(part, encoding="utf-8", newline="")


def wait_until_old(folder: Path) -> None:
    """Files that have just changed are not noted in the cache."""
    newest = max(path.stat().st_mtime for path in folder.iterdir())
    time.sleep(max(0.0, newest + RACY_SECONDS + 0.1 - time.time()))


def in_turns(work: str, forms: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The median seconds of each form."""
    seconds: dict[str, list[float]] = {form: [] for form in forms}
    for number in range(rounds):
        say(f"{work}, round {number + 1} of {rounds}")
        for form, run in forms.items():
            started = time.perf_counter()
            run()
            seconds[form].append(time.perf_counter() - started)
    return {form: statistics.median(found) for form, found in seconds.items()}


def speeds(work: str, text: Path, seconds: dict[str, float]) -> Iterator[Row]:
    size = text.stat().st_size / 1e6
    return (Row(work, form, size / taken, "MB/s", seconds[BEFORE] / taken) for form, taken in seconds.items())


@contextlib.contextmanager
def only_cores(number: int) -> Iterator[None]:
    """Let this thread, and those that it starts, run on a number of cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:number])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def in_child(work: Callable[..., Any], *arguments: object) -> Any:
    """What a function returns in a new process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def peak_memory() -> float:
    """The most memory that this process has had, in bytes."""
    found = re.search(r"^VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return float(found[1]) * 1024


def say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def _words(row: Row) -> tuple[str, ...]:
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    return row.work, row.form, f"{row.figure:,.3g}" if row.figure < 100 else f"{row.figure:,.0f}", row.unit, ratio


if __name__ == "__main__":
    main()
