"""Report on runs: curves and tables in a terminal, on a page, or as a picture. Only its --prompt needs torch."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from gpt_cli.common.drawing.file_types import PICTURES
from gpt_cli.common.drawing.token_labels import Origin
from gpt_cli.common.files import write_durably
from gpt_cli.common.host import Host, Notify, ignored
from gpt_cli.common.results import WIDTH, Result, Screen
from gpt_cli.common.tables import table
from gpt_cli.errors import CheckpointError, DataError, UsageError, counted, shown, visible
from gpt_cli.sampling.prompts import encode_text
from gpt_cli.tools.reports.compare_runs import (
    MOST_DRAWN,
    Mean,
    by_token,
    differing_settings,
    groups_of,
    means_of_records,
    models_in_turn,
    repeated,
    rows_of_means,
)
from gpt_cli.tools.reports.curves import letter_of
from gpt_cli.tools.reports.page_content import report_page
from gpt_cli.tools.reports.request import ReportRequest
from gpt_cli.tools.reports.run_record import RunRecord, read_record
from gpt_cli.tools.reports.terminal_plot import Style, plot_curves

if TYPE_CHECKING:
    from gpt_cli.attention_maps.patterns import AttentionDump

MOST_ON_A_PAGE = 32  # as many runs as a table of the page can show beside each other


@dataclass(frozen=True, eq=False)
class RunReport(Result):
    """Result of `gpt report`: a record of each run; its `metrics` map "loss", "step", ... to float64 [logged lines]."""

    runs: tuple[RunRecord, ...]
    axis: str = "step"
    attention: Mapping[str, AttentionDump] = field(default_factory=dict)  # on a prompt, by the path of the run
    out: str | None = field(default=None, repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Return the object that `gpt report --json` prints: numbers of runs, differing settings, means over seeds."""
        content: dict[str, Any] = {"runs": [record.as_dict() for record in self.runs], "settings": self.settings}
        if repeated(means := self.means):
            content["means"] = [mean.as_dict() | {"unit": self.unit} for mean in means]
        return content

    @property
    def settings(self) -> dict[str, list[Any]]:
        """The settings in which runs differ: section.key -> the value in each run, None if a run lacks the setting."""
        names = [row.name for row in differing_settings(self.runs)]
        return {name: [record.config.get(name) for record in self.runs] for name in names}

    @property
    def means(self) -> list[Mean]:
        """The means over seeds of the loss after training, one for each combination of settings, the lowest first."""
        return means_of_records(self.runs)

    @property
    def unit(self) -> str:
        """Unit of the mean losses: nats/token, or bits/byte if tokenizers differ."""
        return "nats/token" if by_token(self.runs) else "bits/byte"

    def as_text(self, width: int = WIDTH, encoding: str = "utf-8", *, coloured: bool = False) -> str:
        """Return a drawing of the best MOST_DRAWN curves, and a table of differing settings or means over seeds.

        The curves are in colours if `coloured` and the terminal has at least 256 colours.
        """
        # writes into memory, with the colours of the terminal that TERM names
        terminal = Console(file=io.StringIO(), width=width, force_terminal=True, force_jupyter=False, highlight=False)
        style = Style.of(width, encoding, colour=coloured and terminal.color_system in ("256", "truecolor"))
        with terminal.capture() as capture:
            terminal.print(plot_curves(self.runs, self.axis, style), soft_wrap=True)
        blocks = [capture.get().rstrip("\n")]
        if models := models_in_turn(self.runs):
            names = [visible(record.name, 40) for record in self.runs]
            rows = [(row.name, *(value or "" for value in row.values)) for row in models]
            title = "models that the run trains in turn: steps, lowest validation loss"
            blocks.append(f"{title}\n{table([('', *names), *rows])}")
        every = groups_of(self.runs)
        letters = {group.mean.places: letter_of(group.rank) for group in every if group.rank < MOST_DRAWN}
        if len(letters) < len(every):
            blocks.append(f"the best {len(letters)} of {len(every)} curves are drawn")
        if repeated(self.means):
            head, *rows = rows_of_means(self.means, self.unit)
            rows = [(letters.get(mean.places, ""), *row) for mean, row in zip(self.means, rows, strict=True)]
            blocks.append(table([("", *head), *rows]))
        elif differing := differing_settings(self.runs):
            rows = [(row.name, *(visible(row.values[first] or "", 40) for first, *_ in letters)) for row in differing]
            blocks.append(table([("settings that differ", *letters.values()), *rows]))
        return "\n\n".join(blocks)

    def as_coloured_text(self, width: int = WIDTH) -> str:
        """Return the text of `as_text`, coloured if the terminal that TERM names has at least 256 colours."""
        return self.as_text(width, coloured=True)

    def show(self, screen: Screen) -> None:
        """Show the curves in characters that stdout can encode; show nothing if they were written to a file."""
        if self.out is None:
            encoding = getattr(sys.stdout, "encoding", None) or "ascii"
            screen.result(self.as_text(screen.width, encoding, coloured=screen.coloured))

    def as_page(self) -> str:
        """Return an HTML page with curves, samples, settings and attention of the best runs, at most MOST_ON_A_PAGE."""
        return report_page(self.on_the_page(), self.axis, self.attention).decode()

    def on_the_page(self) -> Sequence[RunRecord]:
        """Return the runs that the page shows: at most the best MOST_ON_A_PAGE, in the order of `runs`."""
        order = [index for mean in self.means for index in mean.places][:MOST_ON_A_PAGE]
        return [self.runs[index] for index in sorted(order)]

    def as_picture(self, kind: str = "png", notice: Notify = ignored) -> bytes | None:
        """Return a picture of the curves against `axis` and, for a sweep, of losses against settings.

        Returns None if nothing was logged. `kind` is png, svg or pdf. `notice` receives a line if fonts lack letters.
        """
        if not any(len(record.metrics["step"]) for record in self.runs):
            return None
        from gpt_cli.tools.reports.curves_picture import draw_curves

        return draw_curves(self.runs, self.axis, kind, notice)


def report(request: ReportRequest, paths: Sequence[Path], host: Host) -> RunReport:
    """Return a report on the runs at `paths`, and write it to `request.out`, if set.

    Raises CheckpointError for a run that cannot be read, UsageError for a picture without curves, DataError for a
    prompt that a model cannot read, EnvironmentFailure if memory is short or the file cannot be written.
    """
    with host.working("reading runs"):
        records = tuple(map(read_record, paths))
    for note in dict.fromkeys(note for record in records for note in record.notes):
        host.warn(note)
    if not by_token(records):
        host.notice("the tokenizers of these runs differ, so the report compares bits per byte, not losses per token")
    attention = {} if request.prompt is None else _attention(records, request.prompt, host)
    run_report = RunReport(records, request.axis, attention, request.out and str(request.out))
    if (out := request.out) is not None:
        with host.working(f"writing {visible(out)}"):
            ending = out.suffix.lower()
            picture = run_report.as_picture(ending[1:], host.notice) if ending in PICTURES else None
            if ending in PICTURES and picture is None:
                sentence = "there are no curves to draw, since no step was logged, for example in an imported run"
                raise UsageError("‹out›", sentence, hint="‹out=report.html› shows the rest")
            write_durably(out, [picture or run_report.as_page().encode()])
        shown = len(records) if picture else len(run_report.on_the_page())
        which = "" if shown == len(records) else f"the best {shown} of "
        host.notice(f"wrote {visible(out)}: {which}{counted(len(records), 'run')}")
    return run_report


def _attention(records: Sequence[RunRecord], prompt: str, host: Host) -> dict[str, AttentionDump]:
    """Map the path of each run with a checkpoint to its attention on `prompt`; warn of runs without a checkpoint.

    Raises DataError for a prompt that a model cannot read, CheckpointError if no run has a checkpoint, and
    EnvironmentFailure if memory is short.
    """
    with host.importing():
        from gpt_cli.attention_maps.patterns import dump_attention, require_room_for_dump
        from gpt_cli.checkpoints.load import load
    dumps: dict[str, AttentionDump] = {}
    missing: list[CheckpointError] = []
    with host.working("computing attention"):
        for record in records:
            try:
                loaded = load(record.path, warn=host.warn)
            except CheckpointError as error:
                missing.append(error)
                continue
            sizes = loaded.config.model
            ids = loaded.tokenizer.begin(encode_text(loaded.tokenizer, prompt, "‹prompt›"))
            if len(ids) > (most := sizes.context_length):
                sentence = f"it has {counted(len(ids), 'token')}, but the model of {shown(record.path)} sees {most}"
                raise DataError("‹prompt›", sentence)
            origin = Origin(str(loaded.path), loaded.step, prompt)
            all_heads: dict[str, Any] = {"layers": range(sizes.num_blocks), "heads": range(sizes.num_heads)}
            require_room_for_dump("report", loaded.model, len(ids), **all_heads, ending=None, out=None)
            dumps[str(record.path)] = dump_attention(loaded.model, loaded.tokenizer, ids, **all_heads, origin=origin)
    if missing and not dumps:
        raise missing[0]
    for error in missing:
        host.warn(f"{error}; the report leaves out its attention")
    return dumps
