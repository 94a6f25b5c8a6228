"""samples.txt gives back each text as the model wrote it, whatever it wrote."""

from pathlib import Path

import pytest

from gpt_cli.checkpoints.metrics_files import LoggedSample, sample_record, samples_of, without_later
from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.checkpoints.run_paths import RunFiles
from gpt_cli.tools.loggers.processes import LogReader
from gpt_cli.tools.reports.run_record import read_record

LIKE_HEADINGS = [
    "=== step 999 ===\nab\n=== step 999 ===",
    "a\n=== step 1 ===\nb",
    "\\=== step 60 ===\n\\\\=== step 60 ===",
    f"=== step {'9' * 5000} ===",
    "=== step 10 ===\r\n=== step ٣ ===\n === step 7 ===",
    "",
]
SAMPLES = tuple(LoggedSample(50 * number, text) for number, text in enumerate(LIKE_HEADINGS, 1))


def test_each_text_is_read_as_it_was_written() -> None:
    content = "".join(map(sample_record, SAMPLES))
    assert samples_of(content) == SAMPLES
    assert content.startswith("=== step 50 ===\n\\=== step 999 ===\nab\n")


@pytest.mark.parametrize("step", [0, 49, 50, 149, 250, 10**6])
def test_a_run_that_continues_keeps_exactly_the_samples_up_to_its_step(step: int) -> None:
    content = "".join(map(sample_record, SAMPLES))
    kept = [sample for sample in SAMPLES if sample.step <= step]
    assert without_later(content, step) == "".join(map(sample_record, kept))


def test_what_earlier_versions_wrote_is_read_as_before() -> None:
    """They escaped nothing; a heading whose step does not rise can only be of a text."""
    old = "before\n=== step 50 ===\none\n\ntwo\n=== step 1 ===\nthree\n=== step 100 ===\nfour\n"
    assert samples_of(old) == (LoggedSample(50, "one\n\ntwo\n=== step 1 ===\nthree"), LoggedSample(100, "four"))
    assert without_later(old, 99) == old[: old.index("=== step 100")]
    # no whole sample is lost to what looks like a later step
    old = "=== step 50 ===\n=== step 999 ===\nab\n=== step 100 ===\ncd\n=== step 150 ===\nef\n"
    assert without_later(old, 125) == old[: old.index("=== step 150")]


def test_the_run_directory_the_report_and_the_loggers_read_the_same(copied: Path) -> None:
    directory = RunDirectory(copied)
    directory.samples.unlink()
    for sample in SAMPLES:
        directory.add_sample(*sample)
    directory.rewind(200)
    assert read_record(copied).samples == SAMPLES[:4]
    news = [(step, sample) for step, _, sample in LogReader(RunFiles(copied), 20).read_new(over=True)]
    assert news == list(SAMPLES[:4])
