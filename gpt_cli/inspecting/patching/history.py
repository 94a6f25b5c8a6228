"""`gpt patch --over-training`: what patches recover at the checkpoints of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpt_cli.callbacks import Host
from gpt_cli.checkpoints.load import load
from gpt_cli.inspecting.computed import each_checkpoint
from gpt_cli.inspecting.heads.columns import Row, name_of
from gpt_cli.inspecting.patching.page import patch_page
from gpt_cli.inspecting.patching.pairs import read_tasks
from gpt_cli.inspecting.patching.patch import LEAST, describe, measure, part_rows, tell_metric, to_patch
from gpt_cli.inspecting.patching.request import PatchRequest, ToPatch
from gpt_cli.inspecting.patching.words import Patched, parts_by_step, rows_by_step, share_of
from gpt_cli.inspecting.reports import MAX_ROWS, evenly, steps_shown, written
from gpt_cli.inspecting.watched import step_files
from gpt_cli.machine.devices import choose_device, threads_kept, use_threads
from gpt_cli.results import WIDTH
from gpt_cli.tables import Rows


@dataclass(frozen=True)
class PatchHistory(Patched):
    """What patches recover by step. A share is None at a step whose metric is the same on clean and corrupt prompts."""

    run: str
    steps: list[dict[str, Any]]  # step, clean_metric, corrupt_metric, rows
    out: str | None = None
    drawn_by = "patching.picture.draw_history"

    def as_dict(self) -> dict[str, Any]:
        """What `gpt patch --over-training --json` prints."""
        return {"run": self.run, **self.compared, "tokens": self.tokens, "steps": self.steps}

    def parts(self, width: int = WIDTH) -> list[Rows]:
        """At most 20 steps: the metric on both prompts, and of each part the place with the largest share."""
        kinds = parts_by_step(self.steps[-1]["rows"])
        found = [("step", "clean", "corrupt", *kinds)]
        for at in evenly(self.steps, MAX_ROWS):
            best = (strongest(at["rows"], part) for part in kinds)
            cells = (
                "-" if row is None else f"{name_of(row)} {share_of(row['recovered'], row['recovered_error'])}"
                for row in best
            )
            found.append((str(at["step"]), f"{at['clean_metric']:.3f}", f"{at['corrupt_metric']:.3f}", *cells))
        return [found]

    def legend(self) -> list[str]:
        """What was compared, and how much of it is shown, in lines."""
        about = [
            f"{self.run}; metric: {self.metric_words}",
            "of each part, the place with the largest share, above or below 0, at all positions together",
        ]
        if "residual" in parts_by_step(self.steps[-1]["rows"]):
            about.append("residual: the first layer after which the last position alone recovers half")
        return about + steps_shown(self.steps, "checkpoint")

    def as_page(self) -> str:
        """The maps of the report, with a slider over the steps."""
        return patch_page({"checkpoint": self.run, **self.as_dict()}).decode()

    def csv_rows(self) -> list[Row]:
        """A row for each step and place."""
        own = ("step", "clean_metric", "corrupt_metric")
        return [{name: at[name] for name in own} | row for at in self.steps for row in at["rows"]]


def strongest(rows: Sequence[Row], part: str) -> Row | None:
    """The row of a part with the largest share, above or below 0; None where there is no share.

    Of the residual stream the first layer that recovers half, as the last one always recovers all.
    """
    shares = [row for row in rows_by_step(rows, part) if row["recovered"] is not None]
    if part == "residual":
        return next((row for row in shares if row["recovered"] >= 0.5), None)
    return max(shares, key=lambda row: abs(row["recovered"]), default=None)


@threads_kept()
def patch_history(request: PatchRequest, asked: ToPatch, host: Host) -> PatchHistory:
    """What patches recover by step, written to the file of the request.

    Where no answer is named, the newest checkpoint names it for all. Raises errors as `patch` does, and CheckpointError
    for a run without checkpoints.
    """
    use_threads(request.threads)
    paths, device = step_files(asked.run), choose_device(request.device or "auto")
    newest = load(paths[-1], None, host.warn)
    newest.model.to(device)
    tasks = read_tasks(asked.pairs, newest, device, host)
    tell_metric(newest, asked, tasks, host)
    chosen, places = to_patch(newest, request, asked, tasks, host)
    steps = []
    with host.counting("patching", len(paths) * len(tasks) * len(places), "positions") as count:
        for loaded in each_checkpoint(paths, newest, device, host):
            found = measure(loaded, tasks, asked, chosen, places, request, count)
            if abs(found.gaps.mean()) < LEAST:
                found = found._replace(changes=None)  # there is nothing to share
            rows = part_rows(asked.layers, chosen, places, found)
            metrics = {"clean_metric": float(found.clean.mean()), "corrupt_metric": float(found.corrupt.mean())}
            steps.append({"step": loaded.step, **metrics, "rows": rows})
    out = request.out and str(request.out)
    about = describe(newest, request, asked, tasks)
    history = PatchHistory(run=str(asked.run.path), **about, steps=steps, out=out)
    return written(history, host, (len(steps), "checkpoint"))
