"""Read and format the logs of a run: metrics.jsonl, and samples.txt with a heading for each step. Needs no torch.

A line of a sample that looks like a heading is written with a backslash before it, so that readers see no heading.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gpt_cli.common.limits import LOG_BYTES, METRICS_LINE
from gpt_cli.common.strict_json import figure, step_number, strict_json
from gpt_cli.common.untrusted_files import open_regular, read_bytes, require_size
from gpt_cli.errors import CheckpointError, GptError, shown

_HEADING = re.compile(r"^=== step ([1-9][0-9]{0,17}) ===$", re.MULTILINE)
# match at the beginning of a line that looks like a heading, perhaps after backslashes
_TO_ESCAPE = re.compile(r"^(?=\\*=== step \d+ ===$)", re.MULTILINE)
_ESCAPED = re.compile(r"^\\(?=\\*=== step \d+ ===$)", re.MULTILINE)
_MOST = ("a log of a run", LOG_BYTES)
MOST_LOSSES = 20.0  # losses that a smoothed loss averages over
_TAIL = 2**18  # bytes; a line of metrics has a few hundred


class LoggedSample(NamedTuple):
    """A prompt with the model's continuation, sampled after a training step."""

    step: int
    text: str


def read_log(path: Path, kind: type[GptError]) -> str:
    """Return the text of a log, with U+FFFD for bad UTF-8.

    Raises `kind` if the file is missing or larger than LOG_BYTES; EnvironmentFailure without permission.
    """
    return read_bytes(path, kind, most=_MOST).decode("utf-8", "replace")


def metrics_of(path: Path, kind: type[GptError]) -> Iterator[dict[str, int | float]]:
    """Yield a dict name -> number for each complete line of a metrics file, and nothing if the file is missing.

    A damaged line yields {}. Raises the errors of `read_log`, and `kind` for a line of METRICS_LINE bytes or more.
    """
    if not path.exists():
        return
    with open_regular(path, kind) as file:
        require_size(path, file, kind, most=_MOST)
        while (line := file.readline(METRICS_LINE)).endswith(b"\n"):  # the last may be half written
            yield numbers_of_line(line.decode("utf-8", "replace"))
    if len(line) == METRICS_LINE:
        raise kind(shown(path), f"a line of metrics has fewer than {METRICS_LINE:,} bytes")


def last_metrics(path: Path) -> Iterator[dict[str, int | float]]:
    """Yield {name: number} of each intact line at the end of metrics, newest first. May raise CheckpointError."""
    if not path.exists():
        return
    with open_regular(path, CheckpointError) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
        lines = file.read(_TAIL).split(b"\n")
    yield from filter(None, (numbers_of_line(line.decode("utf-8", "replace")) for line in reversed(lines[:-1])))


def numbers_of_line(line: str) -> dict[str, int | float]:
    """Return a line of metrics as a dict name -> number; {} if the line is damaged or names no step."""
    try:
        entry = strict_json(line)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(entry, dict) or not step_number(entry.get("step")):
        return {}
    return {name: value for name, value in entry.items() if figure(value) is not None}


def step_in(line: str) -> int:
    """Return the step that a line of metrics names; 0 if the line is damaged or names no step."""
    return int(numbers_of_line(line).get("step", 0))


def sample_record(sample: LoggedSample) -> str:
    """Return a sample as a part of samples.txt: a heading with the step, then the escaped text."""
    text = _TO_ESCAPE.sub(r"\\", sample.text)
    return f"=== step {sample.step} ===\n{text}\n"


def samples_of(content: str) -> tuple[LoggedSample, ...]:
    """Return the samples in the content of samples.txt, in the order of their steps.

    A heading whose step is not above the previous one is sample text, which old versions of gpt did not escape.
    """
    headings: list[re.Match[str]] = []
    for heading in _HEADING.finditer(content):
        if not headings or int(heading[1]) > int(headings[-1][1]):
            headings.append(heading)
    ends = [*(heading.start() for heading in headings), len(content)][1:]
    return tuple(
        LoggedSample(int(heading[1]), _ESCAPED.sub("", content[heading.end() : end]).strip("\n"))
        for heading, end in zip(headings, ends, strict=True)
    )


def without_later(content: str, step: int) -> str:
    """Return the content of samples.txt without the samples of steps after `step`."""
    last = max((heading.end() for heading in _HEADING.finditer(content) if int(heading[1]) <= step), default=0)
    later = _HEADING.search(content, last)
    return content if later is None else content[: later.start()]


def smoothed(mean: float | None, loss: float, step: int) -> float:
    """Return the updated moving average of the loss, over about the last quarter of all steps, at most 20 steps.

    The loss x of step n changes the mean m to m + (x - m) / min(1 + (n - 1) / 4, 20). If `mean` is None, as before the
    first step, the new mean is the loss.
    """
    weight = 1 / min(1 + (step - 1) / 4, MOST_LOSSES)
    return loss if mean is None else mean + (loss - mean) * weight
