"""The attention of the best checkpoints of runs to a text, for their report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gpt_cli.attention_maps.patterns import AttentionDump, Origin, dump_attention
from gpt_cli.checkpoints.load import load
from gpt_cli.common.host import Notify
from gpt_cli.errors import CheckpointError, DataError, counted, shown
from gpt_cli.sampling.prompts import encode_text


def attention_of_runs(runs: Mapping[str, Path], prompt: str, warn: Notify) -> dict[str, AttentionDump]:
    """Compute the attention of each run that has a checkpoint, by the run's name; `warn` receives a line for others.

    Raises DataError for a text that a model cannot take, CheckpointError where no run has a checkpoint.
    """
    dumps: dict[str, AttentionDump] = {}
    missing: list[CheckpointError] = []
    for name, path in runs.items():
        try:
            loaded = load(path, warn=warn)
        except CheckpointError as error:
            missing.append(error)
            continue
        sizes = loaded.config.model
        ids = loaded.tokenizer.begin(encode_text(loaded.tokenizer, prompt, "‹prompt›"))
        if len(ids) > sizes.context_length:
            sentence = (
                f"it has {counted(len(ids), 'token')}, but the model of {shown(path)} sees {sizes.context_length}"
            )
            raise DataError("‹prompt›", sentence)
        origin = Origin(str(loaded.path), loaded.step, prompt)
        layers, heads = range(sizes.num_blocks), range(sizes.num_heads)
        dumps[name] = dump_attention(loaded.model, loaded.tokenizer, ids, layers=layers, heads=heads, origin=origin)
    if missing and not dumps:
        raise missing[0]
    for error in missing:
        warn(f"{error}; the report goes without its attention")
    return dumps
