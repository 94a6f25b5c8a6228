"""`gpt heads --over-training`: the scores of heads by step, from the snapshots that a run has kept. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpt_cli.attention_maps.head_metrics import SHARES, HeadScores, Row, head_label
from gpt_cli.attention_maps.selection import parse_selection
from gpt_cli.attention_maps.snapshots import Losses, Snapshot
from gpt_cli.common.drawing.token_labels import label_of
from gpt_cli.common.host import Host, Notify, ignored
from gpt_cli.common.results import WIDTH
from gpt_cli.common.tables import Rows
from gpt_cli.errors import counted
from gpt_cli.tools.interpret.by_step import steps_of
from gpt_cli.tools.interpret.heads.report import head_rows, sort_rows
from gpt_cli.tools.interpret.heads.request import HeadsRequest
from gpt_cli.tools.interpret.reports import MAX_ROWS, Report, evenly, steps_shown, written
from gpt_cli.tools.interpret.run_steps import Watched

MAX_HEADS = 6  # beside each other in 80 columns
_HEADINGS = {"previous_token": "previous", "duplicate_token": "duplicate", "first_token": "first token"}

Step = Mapping[str, Any]


@dataclass(frozen=True)
class HeadHistory(Report):
    """The chosen heads of a run by step.

    A step has the loss of its batch, or if `computed` from a checkpoint of the prompt, a validation loss where it was
    evaluated, in nats per token, and the rows of its heads.
    """

    run: str
    prompt: str
    tokens: list[str]
    steps: list[dict[str, Any]]
    losses: Losses  # (step, loss) and (step, validation_loss) of the metrics
    sort: str | None = None
    computed: bool = False

    @property
    def noun(self) -> str:
        """What a step is."""
        return "checkpoint" if self.computed else "snapshot"

    def as_dict(self) -> dict[str, Any]:
        """What `gpt heads --over-training --json` prints."""
        return {"run": self.run, "prompt": self.prompt, "tokens": self.tokens, "steps": self.steps}

    def parts(self, width: int = WIDTH) -> list[Rows]:
        """At most 20 steps: the strongest head in each share of attention, or with `sort` the heads of that column."""
        steps = evenly(self.steps, MAX_ROWS)
        return [_by_column(steps) if self.sort is None else _by_head(steps, self.sort)]

    def legend(self) -> list[str]:
        """What the table is about, and how much of it, in lines."""
        about = [f"{self.run}, the attention to “{label_of(self.prompt, 60)}”"]
        if self.computed:
            about.append("computed from checkpoints; the loss is that of this prompt")
        return about + steps_shown(self.steps, self.noun)

    def csv_rows(self) -> list[Row]:
        """A row for each step and head; the validation loss is empty where the step was not evaluated."""
        return [
            {"step": at["step"], "loss": at["loss"], "validation_loss": at.get("validation_loss"), **row}
            for at in self.steps
            for row in at["heads"]
        ]

    def as_picture(self, kind: str = "png", notice: Notify = ignored) -> bytes:
        """The scores below the loss; `notice` hears of characters that no font has."""
        from gpt_cli.tools.interpret.heads.picture import draw_history

        return draw_history(self.as_dict(), None if self.computed else self.losses, notice, kind=kind)


def head_history(request: HeadsRequest, watched: Watched, host: Host) -> HeadHistory:
    """The scores of a run by step, written to the file of the request.

    Raises CheckpointError for a damaged snapshot or checkpoint, UsageError for layers the model does not have.
    """
    with steps_of(watched, request.device, host) as found:
        num_layers, num_heads = found.newest.weights.shape[:2]
        layers = parse_selection(request.layers, num_layers, "layers")
        heads = parse_selection(request.heads, num_heads, "heads")
        history = history_of(found.run, found.read(1), found.losses, layers, heads, request.sort)
    history = replace(history, computed=found.computed)
    if others := found.number - len(history.steps):
        host.notice(f"left out: {counted(others, 'snapshot')} of another text, which the run watched before")
    numbers = ((len(history.steps), history.noun), (len(layers), "layer"), (len(heads), "head"))
    return written(history, host, request.out, *numbers)


def history_of(
    run: str,
    snapshots: Iterable[Snapshot],
    losses: Losses,
    layers: Sequence[int],
    heads: Sequence[int],
    sort: str | None = None,
) -> HeadHistory:
    """The history of the chosen heads; the snapshots, of one prompt, come one at a time, as their weights are large."""
    validation = dict(losses["validation_loss"])
    prompt, tokens, steps = "", [], []
    for snapshot in snapshots:
        prompt, tokens = snapshot.prompt, [*snapshot.tokens]
        columns = {name: found[list(layers)][:, list(heads)] for name, found in snapshot.scores.columns.items()}
        rows = sort_rows(head_rows(HeadScores(tuple(layers), tuple(heads), columns), len(tokens)), sort)
        evaluated = {"validation_loss": validation[snapshot.step]} if snapshot.step in validation else {}
        steps.append({"step": snapshot.step, "loss": snapshot.loss, **evaluated, "heads": rows})
    return HeadHistory(run, prompt, tokens, steps, losses, sort)


def strongest(rows: Sequence[Mapping[str, Any]], column: str) -> Mapping[str, Any] | None:
    """The row of the head that scores highest in a column; None where no head has a score."""
    scored = [row for row in rows if row[column] is not None]
    return max(scored, key=lambda row: row[column], default=None)


def _by_column(steps: Sequence[Step]) -> list[tuple[str, ...]]:
    """A row for each step: its loss, and the head that scores highest in each share, with its score."""
    rows = [("step", "loss", *(_HEADINGS.get(name, name) for name in SHARES))]
    for at in steps:
        best = [(name, strongest(at["heads"], name)) for name in SHARES]
        cells = ["-" if row is None else f"{head_label(row)} {row[name]:.2f}" for name, row in best]
        rows.append((str(at["step"]), f"{at['loss']:.3f}", *cells))
    return rows


def _by_head(steps: Sequence[Step], column: str) -> list[tuple[str, ...]]:
    """A row for each step: its loss, and the scores in one column of the heads that end with the highest."""
    last = sort_rows(steps[-1]["heads"], column)[:MAX_HEADS]
    rows = [("step", "loss", *map(head_label, last))]
    for at in steps:
        scores = {head_label(row): row[column] for row in at["heads"]}
        found = [scores[head_label(row)] for row in last]
        rows.append((str(at["step"]), f"{at['loss']:.3f}", *("-" if x is None else f"{x:.2f}" for x in found)))
    return rows
