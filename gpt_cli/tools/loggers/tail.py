"""New lines of the metrics and samples of a run, by step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from gpt_cli.checkpoints.metrics_files import numbers_of_line, read_log, samples_of
from gpt_cli.checkpoints.run_paths import RunFiles
from gpt_cli.errors import CheckpointError


@dataclass
class LogEntry:
    """The figures of a line of metrics, and the sample of the same step."""

    figures: dict[str, float] = field(default_factory=dict)
    sample: str | None = None


class LogReader:
    """Read metrics and samples of a run that is being trained, in the order of steps, from those after `step` on."""

    def __init__(self, run: RunFiles, step: int):
        self._run = run
        self._returned = step
        self._waiting: dict[int, LogEntry] = {}
        self._newest_line = 0
        self._read = 0  # bytes of metrics
        self._samples_seen: tuple[int, int] | None = None

    def read_new(self, *, over: bool) -> Iterator[tuple[int, LogEntry]]:
        """Yield the entries that are complete: all that are there when the training is `over`.

        Until then a line waits for one look, because the sample of its step is written right after it.
        """
        settled = self._newest_line
        self._read_lines()
        self._read_samples()
        for step in sorted(self._waiting):
            if over or step <= settled:
                entry = self._waiting.pop(step)
                self._returned = step
                yield step, entry

    def _read_lines(self) -> None:
        if not self._run.metrics.exists():
            return
        with self._run.metrics.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):  # it is being written
                    break
                self._read += len(line)
                figures = numbers_of_line(line.decode("utf-8", "replace"))
                step = int(figures.pop("step", 0))
                if step > self._returned:
                    self._entry(step).figures = figures
                    self._newest_line = max(self._newest_line, step)

    def _read_samples(self) -> None:
        if not self._run.samples.exists():
            return
        status = self._run.samples.stat()
        if (seen := (status.st_mtime_ns, status.st_size)) == self._samples_seen:
            return
        self._samples_seen = seen
        for step, text in samples_of(read_log(self._run.samples, CheckpointError)):
            if step > self._returned:
                self._entry(step).sample = text

    def _entry(self, step: int) -> LogEntry:
        return self._waiting.setdefault(step, LogEntry())
