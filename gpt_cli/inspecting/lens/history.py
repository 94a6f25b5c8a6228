"""`gpt lens --over-training`: what each layer would predict at the steps of a run, from its checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpt_cli.callbacks import Host
from gpt_cli.checkpoints.load import load_for
from gpt_cli.checkpoints.run_files import RunFiles
from gpt_cli.errors import counted
from gpt_cli.inspecting.computed import each_checkpoint
from gpt_cli.inspecting.heads.columns import Row
from gpt_cli.inspecting.lens.lens import mean_rows, read_layers
from gpt_cli.inspecting.lens.report import cell_of
from gpt_cli.inspecting.lens.request import GAINS, LensRequest
from gpt_cli.inspecting.reading import read_prompt, read_text
from gpt_cli.inspecting.reports import MAX_ROWS, Report, evenly, spaced, steps_shown, written
from gpt_cli.inspecting.request import ToInspect
from gpt_cli.inspecting.watched import step_files
from gpt_cli.machine.devices import choose_device, threads_kept, use_threads
from gpt_cli.results import WIDTH
from gpt_cli.tables import Rows, table
from gpt_cli.text.sources import names_of

_CELL = 16  # columns of a mean with its error


@dataclass(frozen=True)
class LensHistory(Report):
    """What each layer would predict at the steps of a run, on the same prompt or text: means over its tokens."""

    run: str
    text: str | list[str]  # the prompt, or the sources of the text
    tokens: int
    steps: list[Row]  # step, layers: a row for each as in a LensReport
    of_prompt: bool = False
    out: str | None = None
    drawn_by = "lens.picture.draw_lens_history"

    def as_dict(self) -> dict[str, Any]:
        """What `gpt lens --over-training --json` prints."""
        return {"run": self.run, "text": self.text, "tokens": self.tokens, "steps": self.steps}

    def key_figures(self) -> dict[str, Any]:
        """The run, the text and the steps."""
        return {"run": self.run, "text": self.text, "steps": [at["step"] for at in self.steps]}

    def as_text(self, width: int = WIDTH) -> str:
        """Tables of loss and of divergence: a row for each step, a column for each layer."""
        return "\n\n".join(f"{name}\n{table(rows)}" for name, rows in zip(GAINS, self.parts(width), strict=True))

    def parts(self, width: int = WIDTH) -> list[Rows]:
        """The same as tables, of at most 20 steps; layers that do not fit are left out evenly, but for the last."""
        chosen = spaced(len(self.steps[-1]["layers"]), (width - 8) // _CELL)
        layers = [self.steps[-1]["layers"][n]["layer"] for n in chosen]
        steps = evenly(self.steps, MAX_ROWS)
        return [
            [
                ("step", *(f"L{layer}" for layer in layers)),
                *((str(at["step"]), *(cell_of(at["layers"][n], name, 3) for n in chosen)) for at in steps),
            ]
            for name in GAINS
        ]

    def legend(self) -> Iterator[str]:
        """What the tables are about, in lines."""
        source = "the prompt" if self.of_prompt else ", ".join(names_of(self.text))
        yield f"{self.run}, by step: {counted(self.tokens, 'token')} of {source}"
        yield "loss of the true next token after each layer, and divergence from the last layer of the same step (nats)"
        if not self.of_prompt:
            yield "±: standard error"
        yield from steps_shown(self.steps, "checkpoint")

    def csv_rows(self) -> list[Row]:
        """A row for each step and layer."""
        return [{"step": at["step"], **row} for at in self.steps for row in at["layers"]]


@threads_kept()
def lens_history(request: LensRequest, asked: ToInspect, host: Host) -> LensHistory:
    """Report on the layers of all checkpoints of a run, of which one is in memory at a time.

    Raises CheckpointError, DataError, UsageError and EnvironmentFailure.
    """
    use_threads(request.threads)
    device = choose_device(request.device or "auto")
    last = load_for(host, request.run, request.checkpoint, asked.read, asked.header)
    of_prompt, run = asked.prompt is not None, RunFiles(asked.header.path.parent.parent)
    text = read_prompt(asked, last, truncate=request.truncate) if of_prompt else read_text(request, asked, last, host)
    steps, paths = list[Row](), step_files(run)
    with host.counting("reading checkpoints", len(paths) * text.num_tokens, "tokens") as count:
        for loaded in each_checkpoint(paths, last, device, host):
            seen = read_layers(loaded, text, asked.layers, device, count)
            steps.append({"step": loaded.step, "layers": mean_rows(asked.layers, seen)})
    history = LensHistory(
        str(run.path), text.about, text.num_tokens, steps, of_prompt, request.out and str(request.out)
    )
    return written(history, host, (len(steps), "checkpoint"), (len(asked.layers), "layer"))
