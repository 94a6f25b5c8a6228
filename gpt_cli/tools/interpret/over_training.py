"""Attention of a run by training step, shown by a film (a page with a frame for each step) or by head scores.

`--over-training` reads snapshots of attention, which `gpt train --watch` writes; with a prompt, it reads checkpoints.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gpt_cli.attention_maps.head_metrics import COLUMNS, HeadScores
from gpt_cli.attention_maps.snapshots import Losses, Snapshot, Steps, kept_steps
from gpt_cli.common.drawing.token_labels import Origin
from gpt_cli.common.files import write_durably
from gpt_cli.common.host import Host, Notify, ignored
from gpt_cli.common.results import WIDTH, Result
from gpt_cli.errors import counted, visible
from gpt_cli.tools.interpret.attention_files import quantise, scores_content, weights_content
from gpt_cli.tools.interpret.figure import Figure
from gpt_cli.tools.interpret.finding import Finding, stack
from gpt_cli.tools.interpret.heads.request import HeadsRequest
from gpt_cli.tools.interpret.heads.view import HeadsFinding, head_figures, labels_of
from gpt_cli.tools.interpret.lens.view import CELL_BYTES, lens_content
from gpt_cli.tools.interpret.request import AttentionRequest, ToInspect, parse_selection
from gpt_cli.tools.pages.html_page import ATTENTION, build_page

MOST_BYTES = 24_000_000  # of weights and scores of all frames before they are compressed: a page of at most 32 MB
_LEVELS = 255
_MOST_POINTS = 2000  # of a curve, more than the page is wide


@dataclass(frozen=True)
class Film(Result):
    """A page of a run's attention by training step: one frame for each `every`-th snapshot, counted from the last."""

    run: str
    content: dict[str, object] = field(repr=False)  # of the page, with the weights of all frames
    layers: tuple[int, ...] = field(repr=False)
    heads: tuple[int, ...] = field(repr=False)  # of each layer
    tokens: tuple[str, ...]
    steps: tuple[int, ...]
    losses: tuple[float, ...]  # of the batches of these steps, in nats per token
    scores: tuple[HeadScores, ...]  # of each step
    every: int
    num_others: int  # snapshots that are left out because they have another prompt, tokens or shape
    out: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the object that `gpt attn-dump --over-training --json` prints."""
        content = {"layers": self.layers, "heads": self.heads, "tokens": self.tokens, "steps": self.steps}
        return {"run": self.run, "out": self.out} | {name: [*values] for name, values in content.items()}

    def as_text(self, width: int = WIDTH) -> str:
        """Return the numbers of steps, layers, heads and tokens that the film shows, in a line."""
        numbers = (("step", self.steps), ("layer", self.layers), ("head", self.heads), ("token", self.tokens))
        return ", ".join(counted(len(items), noun) for noun, items in numbers)

    def as_page(self) -> str:
        """Return the page as HTML, of at most 32 MB."""
        return build_page(ATTENTION, self.content).decode()


def film(request: AttentionRequest, target: ToInspect, host: Host) -> Film:
    """Make a film, a page of attention by training step, and write it to `request.out`, if set. Raises GptError."""
    steps = steps_of(target, request.device, host)
    with host.working(f"writing {visible(request.out)}" if request.out else "computing"):
        made = make_film(steps, request.layers, request.heads, notice=host.notice)
        if request.out:
            write_durably(request.out, [made.as_page().encode()])
            host.notice(f"wrote {visible(request.out)}: {made.as_text()}")
    return replace(made, out=request.out and str(request.out))


def steps_of(target: ToInspect, device: str | None, host: Host) -> Steps:
    """Return a run's attention snapshots, read from its directory, or, with a prompt, computed from its checkpoints.

    Raises CheckpointError or DataError.
    """
    if target.prompt is None:
        return kept_steps(target.header.run)
    with host.importing():
        from gpt_cli.common.machine.devices import choose_device
        from gpt_cli.tools.interpret.attention import computed_steps
    return computed_steps(target, choose_device(device or "auto"), host)


def make_film(
    run: Steps,
    layers: str | None = None,
    heads: str | None = None,
    name: str | None = None,
    title: str = "",
    notice: Notify = ignored,
) -> Film:
    """Make a film, a page of attention by training step, of `layers` and `heads`, such as `0,3-5` (None: all).

    The prompt is that of the newest snapshot. The page has the heading `title`, and the run's `name` (None: its path).
    `notice` receives how many snapshots are left out, and why. Raises CheckpointError for an invalid snapshot,
    UsageError for layers or heads that the model lacks.
    """
    frames = read_frames(run, MOST_BYTES, layers, heads, name)
    _tell_others(frames.num_others, notice)
    if frames.every > 1:
        notice(
            f"the film has one of every {frames.every} snapshots, since a page has no room for more with "
            f"{counted(len(frames.layers) * len(frames.heads), 'head')} on {counted(len(frames.tokens), 'token')}; "
            "fewer ‹layers› or ‹heads› allow more"
        )
    content = frames.content | {
        "title": title,
        "scores": scores_content(frames.scores),
        "writes": None,
        "frames": {"steps": frames.steps, "losses": frames.losses, "curves": _curves(run.losses, frames.steps)},
    }
    return replace(frames, content=content)


def read_frames(
    run: Steps, most_bytes: int, layers: str | None = None, heads: str | None = None, name: str | None = None
) -> Film:
    """Return a film of evenly spaced snapshots with the newest snapshot's prompt, as many as fit in `most_bytes`.

    `most_bytes` limits the film's arrays before compression, but the newest snapshot is always in it. The film calls
    the run `name`. Raises UsageError for layers or heads that the model lacks, CheckpointError for an invalid snapshot.
    """
    newest = run.newest
    num_layers, num_heads = newest.weights.shape[:2]
    places = parse_selection(layers, num_layers, "layers"), parse_selection(heads, num_heads, "heads")
    T = len(newest.tokens)
    num_cells = len(places[0]) * T if newest.lens else 0
    every = frames_apart(run.number, len(places[0]) * len(places[1]), T, most_bytes, num_cells)
    frames = list[Snapshot]()  # each with only the layers and heads of the film, and quantised weights
    for snapshot in run.read(every):
        triangles = snapshot.weights[np.ix_(*places)][..., *np.tril_indices(T)]
        scores = {name: values[np.ix_(*places)] for name, values in snapshot.scores.items()}
        lens = [each | {"layers": [each["layers"][n] for n in places[0]]} for each in snapshot.lens]
        frames.append(replace(snapshot, weights=quantise(triangles, _LEVELS), scores=scores, lens=lens))
    origin = Origin(name or run.run, newest.step, newest.prompt)
    # differences between successive frames, modulo 256: most are near 0, and compress well
    differences = np.diff(np.stack([each.weights for each in frames]), axis=0, prepend=np.uint8(0))
    content = weights_content(newest.tokens, *places, differences, origin)
    content["lens"] = lens_content([each.lens for each in frames]) if newest.lens else None
    steps, losses, scores = zip(*((each.step, each.loss, each.scores) for each in frames), strict=True)
    num_others = -(-run.number // every) - len(frames)
    return Film(run.run, content, *places, newest.tokens, steps, losses, scores, every, num_others)


def frames_apart(num_snapshots: int, num_heads: int, num_tokens: int, most_bytes: int, num_cells: int) -> int:
    """Return the least n such that a film with every n-th snapshot has at most `most_bytes` before compression.

    A snapshot has attention of `num_heads` heads (all layers together), and `num_cells` predictions (layers times T).
    """
    frame = num_heads * (num_tokens * (num_tokens + 1) // 2 + 4 * len(COLUMNS) + 1) + CELL_BYTES * num_cells
    return -(-num_snapshots // max(1, most_bytes // frame))


def _curves(losses: Losses | None, steps: tuple[int, ...]) -> dict[str, list[tuple[int, float]]]:
    """Return each loss curve over `steps` by name: finite (step, loss) pairs, thinned evenly to _MOST_POINTS."""
    curves = {}
    for name, points in (losses or {"loss": [], "validation_loss": []}).items():
        finite = [(step, loss) for step, loss in points if steps[0] <= step <= steps[-1] and np.isfinite(loss)]
        curves[name] = finite[:: -(-len(finite) // _MOST_POINTS) or 1]
    return curves


def _tell_others(number: int, notice: Notify) -> None:
    if number:
        notice(f"left out: {counted(number, 'snapshot')} of an earlier text or model")


def head_history(request: HeadsRequest, target: ToInspect, host: Host) -> Finding:
    """Return the head scores of a run by training step; write them to `request.out`, if set.

    Raises CheckpointError for damaged files, DataError for unfit prompts, UsageError for layers or heads out of range.
    """
    steps = steps_of(target, request.device, host)
    num_layers, num_heads = steps.newest.weights.shape[:2]
    layers = parse_selection(request.layers, num_layers, "layers")
    heads = parse_selection(request.heads, num_heads, "heads")
    finding = history_of(steps, layers, heads, request.sort)
    _tell_others(steps.number - len(finding.stacked), host.notice)
    noun = "checkpoint" if steps.losses is None else "snapshot"
    return finding.saved(host, request.out, (len(finding.stacked), noun), (len(layers), "layer"), (len(heads), "head"))


def history_of(snapshots: Steps, layers: tuple[int, ...], heads: tuple[int, ...], sort: str | None) -> Finding:
    """Return a Finding: scores of `heads` in `layers` by training step, from `snapshots`, which are read one at a time.

    `sort` names the score by which tables select heads (None: the best head of each score). The loss of a step, in
    nats per token, is that of its batch, or, for checkpoints, of the prompt. Unknown validation losses are NaN.
    """
    losses, newest, steps = snapshots.losses, snapshots.newest, list[Finding]()
    validation = dict(losses["validation_loss"] if losses else ())
    for snapshot in snapshots.read(1):
        scores = {name: values[np.ix_(layers, heads)] for name, values in snapshot.scores.items()}
        nats = {"loss": snapshot.loss, "validation_loss": validation.get(snapshot.step, np.nan)}
        figures = [Figure(name, {}, np.array(number), unit="nats/token") for name, number in nats.items()]
        figures += head_figures(scores, layers, heads)
        lists = {"heads": labels_of(scores, len(snapshot.tokens))}
        steps.append(HeadsFinding({"step": snapshot.step}, (*figures,), lists, sort=sort, losses=losses))
    return stack(steps, {"run": snapshots.run, "prompt": newest.prompt, "tokens": [*newest.tokens]})
