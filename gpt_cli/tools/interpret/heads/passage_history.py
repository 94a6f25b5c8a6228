"""`gpt heads --passages N --over-training`: the passages of heads, and what they wrote at their last ones, by step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpt_cli.attention_maps.head_scores import window_batches
from gpt_cli.checkpoints.load import load
from gpt_cli.checkpoints.run_paths import RunFiles
from gpt_cli.common.host import Host
from gpt_cli.common.machine.devices import choose_device
from gpt_cli.common.machine.memory import reuse_memory
from gpt_cli.errors import shown
from gpt_cli.tools.interpret.figure import Figure
from gpt_cli.tools.interpret.finding import Finding, stack
from gpt_cli.tools.interpret.heads.heads import passages_of, require_room_for_heads
from gpt_cli.tools.interpret.heads.max_activating import Passages
from gpt_cli.tools.interpret.heads.request import HeadsRequest
from gpt_cli.tools.interpret.heads.view import HeadsView
from gpt_cli.tools.interpret.request import ToInspect
from gpt_cli.tools.interpret.run_steps import step_files
from gpt_cli.tools.interpret.text_windows import each_checkpoint, encode_prompt_of, read_text


def passage_history(request: HeadsRequest, target: ToInspect, host: Host) -> Finding:
    """Compute the history, and write the file of the request; at most two checkpoints are in memory.

    Raises CheckpointError for a run without checkpoints of steps, DataError for a text that does not fit.
    """
    assert request.passages
    run = RunFiles(target.header.path.parent.parent)
    paths, device, layers, heads = step_files(run), choose_device(request.device or "auto"), target.layers, target.heads
    reuse_memory()
    loaded = load(paths[-1], None, host.warn, target.header)
    if target.prompt is None:
        text = read_text(request, target, loaded, host)
    else:
        text = encode_prompt_of(target, loaded, truncate=None, least=2)
    require_room_for_heads(max(end - start for start, end in text.windows), heads, may_choose=True)
    last: Passages | None = None
    steps, view = list[Finding](), HeadsView()
    with host.counting("reading checkpoints", len(paths) * text.num_tokens, "tokens") as count:
        # the last one first, whose peaks are looked for in the others
        for at in each_checkpoint((paths[-1], *paths[:-1]), loaded, device, host):
            model = at.model
            passages = Passages(model, layers, heads, request.passages, shown(at.path), last)
            for starts, _, batch in window_batches(model, text.ids, text.windows):
                for row, stages in enumerate(model.attention_stages(batch, layers, heads)):
                    passages.add(row, stages, starts)
                count(batch.numel())
            sizes, texts = passages_of(passages, text, loaded.tokenizer, layers, heads)
            last = last or passages
            of_heads = [each for of_layer in passages.values for each in of_layer]
            values = [[each["value"] for each in row["passages"]] for row in texts] if last is passages else of_heads
            of_step = [row | {"values": each} for row, each in zip(texts, values, strict=True)]
            ratios = np.array([*map(ratio, values, sizes.values.ravel().tolist())]).reshape(sizes.values.shape)
            figures = sizes, Figure("ratio", sizes.coords, ratios)
            steps.append(Finding(view, {"step": at.step}, figures, {"heads": of_step}))
    last_texts = [{"passages": row["passages"]} for row in steps[0].lists["heads"]]
    of_last = Finding(view, {}, steps[0].figures[:1], {"heads": last_texts})
    about = {"run": str(run.path), "text": text.about, "tokens": text.num_tokens}
    finding = stack([*steps[1:], steps[0]], about, {"heads": view.rows(of_last, "layer", "head")})
    return finding.saved(host, request.out, (len(steps), "checkpoint"), (len(last_texts), "head"))


def ratio(values: Sequence[float], mean: float) -> float:
    """Ratio of a head's mean size at its passages to its mean size; NaN where it writes nothing."""
    return sum(values) / len(values) / mean if values and mean > 0 else np.nan
