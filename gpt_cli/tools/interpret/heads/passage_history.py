"""`gpt heads --passages N --over-training`: the passages of heads, and what they wrote at their last ones, by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpt_cli.attention_maps.head_metrics import Row, head_label
from gpt_cli.attention_maps.head_scores import window_batches
from gpt_cli.checkpoints.load import load
from gpt_cli.checkpoints.run_paths import RunFiles
from gpt_cli.common.host import Host
from gpt_cli.common.machine.devices import choose_device
from gpt_cli.common.machine.memory import reuse_memory
from gpt_cli.common.results import WIDTH
from gpt_cli.common.tables import Rows
from gpt_cli.errors import DataError, counted, shown
from gpt_cli.tools.interpret.heads.heads import require_room_for_heads
from gpt_cli.tools.interpret.heads.history import MAX_HEADS
from gpt_cli.tools.interpret.heads.max_activating import Passages
from gpt_cli.tools.interpret.heads.report_page import heads_page
from gpt_cli.tools.interpret.heads.report_tables import BRACKETS, of_passages
from gpt_cli.tools.interpret.heads.request import HeadsRequest
from gpt_cli.tools.interpret.reports import MAX_ROWS, Report, evenly, written
from gpt_cli.tools.interpret.request import ToInspect
from gpt_cli.tools.interpret.run_steps import step_files
from gpt_cli.tools.interpret.text_windows import each_checkpoint, read_prompt, read_text


@dataclass(frozen=True)
class PassageHistory(Report):
    """The passages of each head at all checkpoints of a run, and what it wrote at the peaks of the last ones."""

    run: str
    text: str | list[str]
    tokens: int
    heads: list[Row]  # layer, head, mean_size, passages
    # step; of each head the mean size, its passages, and as `values` the sizes at the peaks of the last passages
    steps: list[dict[str, Any]]

    def as_dict(self) -> dict[str, Any]:
        """What `gpt heads --passages N --over-training --json` prints."""
        found = {"run": self.run, "text": self.text, "tokens": self.tokens}
        return found | {"heads": self.heads, "steps": self.steps}

    def parts(self, width: int = WIDTH) -> list[Rows]:
        """At most 20 steps of the 6 heads whose sizes at their passages end largest beside their mean; the passages."""
        ratios = [ratio(row) for row in self.steps[-1]["heads"]]
        order = sorted(range(len(ratios)), key=lambda place: -(ratios[place] or 0.0))[:MAX_HEADS]
        rows = [("step", *(head_label(self.heads[place]) for place in order))]
        for at in evenly(self.steps, MAX_ROWS):
            found = [ratio(at["heads"][place]) for place in order]
            rows.append((str(at["step"]), *("-" if number is None else f"{number:.2f}" for number in found)))
        return [rows, of_passages([self.heads[place] for place in order], width, BRACKETS)]

    def legend(self) -> list[str]:
        """What the tables are about."""
        return [
            f"{self.run}, {counted(self.tokens, 'token')}: how much more a head writes at its passages than on average",
            "the passages are those of the last checkpoint; ‹json› and ‹out› have all heads and steps",
        ]

    def as_page(self) -> str:
        """The passages of each head, with a slider over the steps."""
        rows = [[row | {"ratio": ratio(row)} for row in at["heads"]] for at in self.steps]
        steps = [{"step": at["step"], "heads": found} for at, found in zip(self.steps, rows, strict=True)]
        return heads_page({"checkpoint": self.run, **self.as_dict(), "steps": steps}).decode()

    def csv_rows(self) -> list[Row]:
        """A row for each step and head."""
        return [
            {"step": at["step"], "layer": row["layer"], "head": row["head"], "mean_size": row["mean_size"]}
            | {
                "passages": [
                    {"place": passage["place"] + passage["peak"], "value": value}
                    for passage, value in zip(last["passages"], row["values"], strict=True)
                ]
            }
            for at in self.steps
            for last, row in zip(self.heads, at["heads"], strict=True)
        ]


def passage_history(request: HeadsRequest, asked: ToInspect, host: Host) -> PassageHistory:
    """The history, written to the file of the request; one checkpoint more than the last is in memory at a time.

    Raises CheckpointError for a run without checkpoints of steps, DataError for a text that does not fit.
    """
    assert request.passages
    run = RunFiles(asked.header.path.parent.parent)
    paths, device, layers, heads = step_files(run), choose_device(request.device or "auto"), asked.layers, asked.heads
    reuse_memory()
    loaded = load(paths[-1], None, host.warn, asked.header)
    if asked.prompt is None:
        text = read_text(request, asked, loaded, host)
    else:
        text = read_prompt(asked, loaded, truncate=None)
    if text.num_tokens < 2:
        raise DataError("prompt", "it has 1 token, which can only look at itself; use at least 2")
    require_room_for_heads(max(end - start for start, end in text.windows), heads, may_choose=True)
    last: Passages | None = None
    found, steps = list[Row](), list[Row]()
    with host.counting("reading checkpoints", len(paths) * text.num_tokens, "tokens") as count:
        # the last one first, whose peaks are looked for in the others
        for at in each_checkpoint((paths[-1], *paths[:-1]), loaded, device, host):
            model = at.model
            own = Passages(model, layers, heads, request.passages, shown(at.path), last)
            for starts, _, batch in window_batches(model, text.ids, text.windows):
                for row, stages in enumerate(model.attention_stages(batch, layers, heads)):
                    own.add(row, stages, starts)
                count(batch.numel())
            places: list[Row] = [{"layer": layer, "head": head} for layer in layers for head in heads]
            rows = [place | row for place, row in zip(places, own.rows(text.ids, loaded.tokenizer), strict=True)]
            if last is None:
                last, found = own, rows
                values = [[passage["value"] for passage in row["passages"]] for row in rows]
            else:
                values = [of_head for of_layer in own.values for of_head in of_layer]
            of_heads = [row | {"values": sizes} for row, sizes in zip(rows, values, strict=True)]
            steps.append({"step": at.step, "heads": of_heads})
    result = PassageHistory(str(run.path), text.about, text.num_tokens, found, [*steps[1:], steps[0]])
    return written(result, host, request.out, (len(steps), "checkpoint"), (len(found), "head"))


def ratio(row: Row) -> float | None:
    """How much larger a head's sizes at its passages are than its mean; None where it writes nothing."""
    values, mean = row["values"], row["mean_size"]
    return sum(values) / len(values) / mean if values and mean else None
