"""The scores of heads by step of a training, as rows: what JSON and CSV contain. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpt_cli.inspecting.heads.columns import HeadScores
from gpt_cli.inspecting.heads.report import as_csv, head_rows, sort_rows
from gpt_cli.inspecting.snapshots import Snapshot

SHARES = ("induction", "previous_token", "duplicate_token", "first_token", "self")  # of attention, from 0 to 1

Losses = Mapping[str, Sequence[tuple[int, float]]]


def history_of(
    run: str,
    snapshots: Iterable[Snapshot],
    losses: Losses,
    layers: Sequence[int],
    heads: Sequence[int],
    sort: str | None = None,
) -> dict[str, Any]:
    """The chosen heads of a run by step, as `gpt heads --over-training --json` prints them; `losses` are of metrics.

    The snapshots, of one prompt, may come one at a time, because their weights are large. A step has the loss of its
    batch, and a validation loss where it was evaluated, in nats per token.
    """
    validation = dict(losses["validation_loss"])
    about: dict[str, Any] = {"run": run}
    steps = []
    for snapshot in snapshots:
        about |= {"prompt": snapshot.prompt, "tokens": list(snapshot.tokens)}
        rows = sort_rows(head_rows(_chosen(snapshot.scores, layers, heads)), sort)
        evaluated = {"validation_loss": validation[snapshot.step]} if snapshot.step in validation else {}
        steps.append({"step": snapshot.step, "loss": snapshot.loss, **evaluated, "heads": rows})
    return {**about, "steps": steps}


def history_csv(history: Mapping[str, Any]) -> bytes:
    """A row for each step and head; the validation loss is empty where the step was not evaluated."""
    rows = [
        {"step": at["step"], "loss": at["loss"], "validation_loss": at.get("validation_loss"), **row}
        for at in history["steps"]
        for row in at["heads"]
    ]
    return as_csv(rows)


def strongest(rows: Sequence[Mapping[str, Any]], column: str) -> Mapping[str, Any] | None:
    """The row of the head that scores highest in a column; None where no head has a score."""
    scored = [row for row in rows if row[column] is not None]
    return max(scored, key=lambda row: row[column], default=None)


def _chosen(scores: HeadScores, layers: Sequence[int], heads: Sequence[int]) -> HeadScores:
    columns = {name: found[list(layers)][:, list(heads)] for name, found in scores.columns.items()}
    return HeadScores(tuple(layers), tuple(heads), columns)
