"""`gpt heads --over-training`: the scores of heads by step, from the snapshots that a run has kept. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from gpt_cli.attention_maps.head_metrics import HeadScores
from gpt_cli.attention_maps.selection import parse_selection
from gpt_cli.attention_maps.snapshots import Losses, Snapshot
from gpt_cli.common.host import Host
from gpt_cli.errors import counted
from gpt_cli.tools.interpret.figure import Figure
from gpt_cli.tools.interpret.finding import Finding, stack
from gpt_cli.tools.interpret.heads.request import HeadsRequest
from gpt_cli.tools.interpret.heads.view import HeadsView, head_figures, labels_of
from gpt_cli.tools.interpret.request import ToInspect
from gpt_cli.tools.interpret.training_film import steps_of


def head_history(request: HeadsRequest, target: ToInspect, host: Host) -> Finding:
    """Return the head scores of a run by training step; write them to `request.out`, if set.

    Raises CheckpointError for a damaged snapshot or checkpoint, UsageError for layers the model does not have.
    """
    with steps_of(target, request.device, host) as steps:
        num_layers, num_heads = steps.newest.weights.shape[:2]
        layers = parse_selection(request.layers, num_layers, "layers")
        heads = parse_selection(request.heads, num_heads, "heads")
        finding = history_of(steps.run, steps.read(1), steps.losses, layers, heads, request.sort)
    if others := steps.number - len(finding.stacked):
        host.notice(f"left out: {counted(others, 'snapshot')} of another text, which the run watched before")
    noun = "checkpoint" if steps.losses is None else "snapshot"
    numbers = (len(finding.stacked), noun), (len(layers), "layer"), (len(heads), "head")
    return finding.saved(host, request.out, *numbers)


def history_of(
    run: str,
    snapshots: Iterable[Snapshot],
    losses: Losses | None,
    layers: Sequence[int],
    heads: Sequence[int],
    sort: str | None = None,
) -> Finding:
    """Stack the chosen heads' scores of all snapshots, read one at a time, since their attention weights are large.

    The snapshots have one prompt. A step's loss, in nats per token, is that of its training batch or, if `losses` is
    None, since checkpoints were read, that of the prompt. The validation loss is NaN where there was no evaluation.
    """
    validation, view = dict(losses["validation_loss"] if losses else ()), HeadsView(sort, losses=losses)
    about, steps = {}, list[Finding]()
    for snapshot in snapshots:
        about = {"run": run, "prompt": snapshot.prompt, "tokens": [*snapshot.tokens]}
        columns = {name: scores[list(layers)][:, list(heads)] for name, scores in snapshot.scores.columns.items()}
        scores = HeadScores(tuple(layers), tuple(heads), columns)
        nats = {"loss": snapshot.loss, "validation_loss": validation.get(snapshot.step, np.nan)}
        figures = [Figure(name, {}, np.array(number), unit="nats/token") for name, number in nats.items()]
        texts = labels_of(scores, len(snapshot.tokens))
        steps.append(Finding(view, {"step": snapshot.step}, (*figures, *head_figures(scores)), {"heads": texts}))
    return stack(steps, about)
