"""`gpt patch`: the share of a metric that activations of a clean prompt recover in a corrupt prompt, also by step."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpt_cli.attention_maps.head_metrics import Row
from gpt_cli.checkpoints.load import Loaded, load, load_for
from gpt_cli.checkpoints.run_paths import run_of_checkpoint
from gpt_cli.common.drawing.token_labels import quoted
from gpt_cli.common.host import Host
from gpt_cli.common.machine.devices import choose_device
from gpt_cli.common.machine.memory import available_memory, require_available
from gpt_cli.common.tables import table
from gpt_cli.errors import DataError, UsageError, blaming, counted, shown
from gpt_cli.evaluation.nll import standard_error
from gpt_cli.model.gpt import require_finite
from gpt_cli.sampling.prompts import encode_prompt, encode_text
from gpt_cli.text.tokenizers import Tokenizer
from gpt_cli.tools.interpret.figure import Figure
from gpt_cli.tools.interpret.finding import Finding, stack
from gpt_cli.tools.interpret.patching.activation_patching import (
    INPUTS,
    PatchMeasurement,
    Positions,
    Task,
    Unit,
    measure_patches,
    units,
)
from gpt_cli.tools.interpret.patching.request import Pair, PatchRequest, ToPatch
from gpt_cli.tools.interpret.patching.view import LABEL, PLACES, PatchFinding
from gpt_cli.tools.interpret.request import step_files
from gpt_cli.tools.interpret.text_windows import each_checkpoint

_SMALL = 0.1  # of the metric, in nats: a tenth of what one patch often changes
LEAST = 1e-3  # of the metric between two prompts, in nats: the rounding of float32 is a thousandth of it


def patch(request: PatchRequest, target: ToPatch, host: Host) -> Finding:
    """Measure the share of a metric that each patch recovers, and write it to `request.out`, if set.

    With `request.over_training`, measure each checkpoint of the run. If the pairs name no answer, the metric compares
    the model's likeliest tokens after the two prompts; for several checkpoints, those of the newest model. Raises
    CheckpointError (damage, NaN), DataError (unfit pairs), UsageError (unfit parts), EnvironmentFailure (memory).
    """
    device = choose_device(request.device or "auto")
    if paths := step_files(target.header.run) if request.over_training else []:
        loaded = load(paths[-1], None, host.warn)
    else:
        loaded = load_for(host, request.run, request.checkpoint, target.header)
    loaded.model.to(device)
    tasks = _read_tasks(target.pairs, loaded, device, host)
    _tell_metric(loaded, target, tasks, host)
    chosen, positions = _to_patch(loaded, request, target, tasks, host)
    models = each_checkpoint(paths, loaded, device, host) if paths else [loaded]
    total = max(1, len(paths)) * len(tasks) * len(positions) if request.exact and not target.edge else None
    with host.counting("patching", total, "positions") as count:
        seen = [(each.step, measure_patches(each, tasks, target, chosen, positions, request, count)) for each in models]
    about = _describe(loaded, request, target, tasks)
    steps = [PatchFinding({"step": step}, _patch_figures(each, target, chosen, positions)) for step, each in seen]
    if paths:
        finding = stack(steps, {"run": str(target.header.run.path), **about})
        return finding.saved(host, request.out, (len(steps), "checkpoint"))
    _require_gap(seen[0][1], target, host)
    about = {"checkpoint": str(loaded.path), "step": loaded.step, **about}
    about |= {} if request.path is None else {"path": request.path}
    rows = replace(steps[0], about=about).rows_along(*PLACES)
    finding = replace(steps[0], about={**about, "correlation": _correlation(rows)})
    return finding.saved(host, request.out, (len(rows), "row"))


def _read_tasks(pairs: Sequence[Pair], loaded: Loaded, device: torch.device, host: Host) -> list[Task]:
    """Return the pairs of prompts as tasks, with token ids on `device`.

    Without an answer, the metric compares the model's likeliest tokens after the clean and after the corrupt prompt.
    Raises DataError for prompts of different lengths, for equal ones, and for an answer of more than one token.
    """
    tasks = []
    for pair in pairs:
        clean, corrupt = (_encode(loaded, pair, key) for key in ("clean", "corrupt"))
        if len(clean) != len(corrupt):
            raise _of_other_length(loaded, pair, clean, corrupt, host)
        first = next((at for at, two in enumerate(zip(clean, corrupt, strict=True)) if two[0] != two[1]), None)
        if first is None:
            hint = "change a token of the prompt that the answer depends on"
            raise DataError(pair.named("corrupt"), "it has the same tokens as the clean prompt", hint=hint)
        both = torch.tensor([clean, corrupt], device=device)
        if pair.answer is None:
            answer, against = _likeliest(loaded, both, pair)
        else:
            answer = _next_token(loaded.tokenizer, pair, "answer", host)
            against = None if pair.against is None else _next_token(loaded.tokenizer, pair, "against", host)
            if answer == against:
                raise DataError(pair.named("against"), "it is the same token as the answer")
        tasks.append(Task(both[0], both[1], first, answer, against))
    return tasks


def _encode(loaded: Loaded, pair: Pair, key: str) -> list[int]:
    text, longest = getattr(pair, key), loaded.config.model.context_length
    with blaming(pair.named(key)):  # not `prompt`, where it is too long
        return encode_prompt(loaded.tokenizer, text, longest, source=pair.named(key), truncate=None)


def _of_other_length(loaded: Loaded, pair: Pair, clean: Sequence[int], corrupt: Sequence[int], host: Host) -> DataError:
    """Return the error for prompts of different lengths; notices show the corrupt tokens below the clean tokens."""
    text, prompts = loaded.tokenizer.token_text, (("clean", clean), ("corrupt", corrupt))
    rows = [(name, *(quoted(text(token), LABEL) for token in ids)) for name, ids in prompts]
    columns = zip_longest(*rows, fillvalue="")
    host.notices(table([*zip(*columns, strict=True)]).split("\n"))
    sentence = f"it has {counted(len(corrupt), 'token')}, but the clean prompt has {len(clean)}; use equal numbers"
    run = run_of_checkpoint(loaded.path)
    name = shlex.quote(str(loaded.path if run is None else run.path))
    hint = f"gpt tokens --run {name} TEXT shows how a text is cut into tokens"
    return DataError(pair.named("corrupt"), sentence, hint=hint)


def _likeliest(loaded: Loaded, both: Tensor, pair: Pair) -> tuple[int, int]:
    """Return the likeliest tokens after the clean and after the corrupt prompt; raises DataError if they are equal."""
    with torch.no_grad():
        logits = loaded.model.next_logits(both)
    require_finite(logits, "logits", loaded.model.where)
    answer, against = logits.argmax(dim=-1).tolist()
    if answer == against:
        said = shown(loaded.tokenizer.token_text(answer))
        wrong = f"the most probable next token is {said} after both prompts, so gpt cannot choose two tokens to compare"
        hint = "‹answer=TEXT› ‹against=TEXT›" if pair.where is None else "name answer and against on each line"
        raise DataError("‹corrupt›" if pair.where is None else pair.where, wrong, hint=hint)
    return answer, against


def _next_token(tokenizer: Tokenizer, pair: Pair, key: str, host: Host) -> int:
    """Return the id of a pair's answer or against (`key`); DataError unless it is one token, equal for both prompts."""
    text, source, token_ids = getattr(pair, key), pair.named(key), set[int]()
    for prompt in (pair.clean, pair.corrupt):
        token = _added(tokenizer, prompt, text, source)
        if isinstance(token, list):
            parts = ", ".join(shown(tokenizer.token_text(piece)) for piece in token)
            wrong = f"{shown(text)} is not one token after {shown(prompt)}: it is cut into {parts}"
            hint = "most words begin with their space, as in ' Paris'"
            if tokenizer.kind == "char":
                hint = "a token of this model is a single character"
                hint += f", as in ‹{key}={text[0]}›" if pair.where is None else ""
            elif pair.where is None and _is_one_with_space(tokenizer, prompt, text):
                hint = f"‹{key}= {text}›, with the space before the word"
            raise DataError(source, wrong, hint=hint)
        token_ids.add(token)
    if pair.where is None and text[:1].isalnum() and _is_one_with_space(tokenizer, pair.clean, text):
        host.notice(f"{source} {shown(text)} has no space before it; with a space it is the token {shown(' ' + text)}")
    if len(token_ids) > 1:
        raise DataError(source, f"{shown(text)} is another token after the other prompt")
    return token_ids.pop()


def _is_one_with_space(tokenizer: Tokenizer, prompt: str, text: str) -> bool:
    """Return whether `text` with a space in front is one token after a prompt."""
    try:
        return isinstance(_added(tokenizer, prompt, " " + text, ""), int)
    except DataError:  # a vocabulary of characters may lack the space
        return False


def _added(tokenizer: Tokenizer, prompt: str, text: str, source: str) -> int | list[int]:
    """Return the one id that `text` adds to a prompt's ids; if more change, a list of ids from the first change on."""
    encode_text(tokenizer, text, source)  # so that an error counts characters from where the text begins
    before, after = encode_text(tokenizer, prompt, source), encode_text(tokenizer, prompt + text, source)
    if after[:-1] == before:
        return after[-1]
    same = next((at for at, two in enumerate(zip(before, after, strict=False)) if two[0] != two[1]), len(before))
    return after[same:]


def _tell_metric(loaded: Loaded, target: ToPatch, tasks: Sequence[Task], host: Host) -> None:
    """Tell the user which tokens the metric compares, if the user has named none."""
    if target.pairs[0].answer is not None:
        return
    if len(tasks) > 1:
        host.notice("no answer is named: gpt compares each pair's most probable tokens after clean and corrupt")
        return
    answer, against = (shown(loaded.tokenizer.token_text(token or 0)) for token in (tasks[0].answer, tasks[0].against))
    host.notice(f"no answer is named: gpt compares {answer}, most probable after clean, with {against}, after corrupt")


def _to_patch(
    loaded: Loaded, request: PatchRequest, target: ToPatch, tasks: Sequence[Task], host: Host
) -> tuple[list[Unit], list[int | None]]:
    """Return (part, head) pairs to patch in each layer; and positions: None (all), then each if lengths are equal.

    Raises UsageError if prompt lengths differ and the residual stream is the only part, because its patch at all
    positions recovers everything; EnvironmentFailure if memory cannot hold the streams of all patches of a position.
    """
    chosen, lengths = units(request.chosen, target.heads), {len(task.clean) for task in tasks}
    num_patches, longest = len(chosen) * len(target.layers), max(lengths)
    hint = "fewer ‹layers›, ‹parts› or ‹heads› take less memory"
    if target.edge:  # at all positions and at each, and again for each input of a head
        num_patches = (longest + 1) * (1 + len(INPUTS) if isinstance(target.edge.to, int) else 1)
        hint = "use a shorter prompt"
    about = f"{counted(num_patches, 'changed run')} of {counted(longest, 'token')}"
    num_bytes = 3 * 4 * num_patches * longest * loaded.config.model.d_model
    require_available("patch", about, num_bytes, available_memory(), hint=hint)
    if len(lengths) > 1:
        if request.chosen == ("residual",) and not target.edge:
            wrong = (
                "the pairs have different numbers of tokens, so all positions are patched together, where the residual "
                "stream recovers everything"
            )
            raise UsageError("‹parts›", wrong, hint="‹parts=attention,feed_forward,head›")
        host.notice(
            f"the pairs have from {min(lengths)} to {max(lengths)} tokens, so their positions do not correspond; "
            "the shares are of all positions together"
        )
        return chosen, [None]
    return chosen, [None, *range(longest)]


def _describe(loaded: Loaded, request: PatchRequest, target: ToPatch, tasks: Sequence[Task]) -> Row:
    """Return a report's fields: prompts (or file of pairs), metric, the tokens that it compares, tokens by position.

    The tokens at a position are None unless all pairs have the same clean token and the same corrupt token there.
    """
    say, one = loaded.tokenizer.token_text, request.pairs is None

    def shared(ids: Iterable[int | None]) -> str | None:
        (token, *others) = {*ids}
        return None if others or token is None else say(token)

    pairs, lengths = {"file": str(request.pairs), "number": len(tasks)}, {len(task.clean) for task in tasks}
    sides = [[getattr(task, prompt).tolist() for task in tasks] for prompt in ("clean", "corrupt")]
    tokens = list[Row]()
    for at in range(lengths.pop()) if len(lengths) == 1 else ():
        clean, corrupt = (shared(ids[at] for ids in of_side) for of_side in sides)
        both = (clean, corrupt) if clean is not None and corrupt is not None else (None, None)
        tokens.append({"position": at, "clean": both[0], "corrupt": both[1]})
    return {
        **({"clean": target.pairs[0].clean, "corrupt": target.pairs[0].corrupt} if one else {"pairs": pairs}),
        "metric": "log_probability" if tasks[0].against is None else "logit_difference",
        "answer": shared(task.answer for task in tasks),
        "against": shared(task.against for task in tasks),
        "tokens": tokens,
    }


def _patch_figures(
    measured: PatchMeasurement, target: ToPatch, chosen: Sequence[Unit], positions: Positions
) -> tuple[Figure, ...]:
    """Return the clean and the corrupt metric, and the share that each patch recovers (NaN if both are equal)."""
    if target.edge:
        inputs = INPUTS if isinstance(target.edge.to, int) else INPUTS[:1]  # a head reads queries, keys and values
        coords: dict[str, Sequence[Any]] = {"input": inputs, "position": positions}
    else:
        parts = [part if head is None else f"H{head}" for part, head in chosen]
        coords = {"layer": target.layers, "part": parts, "position": positions}
    sides = (("clean_metric", measured.clean), ("corrupt_metric", measured.corrupt))
    figures = [Figure(name, {}, values.mean(), unit="nats") for name, values in sides]
    for name, changes in (("recovered", measured.changes), ("estimate", measured.estimates)):
        if changes is not None:
            differs = abs(measured.gaps.mean()) >= LEAST
            numbers, error = shares(changes, measured.gaps) if differs else np.full((2, *changes.shape[1:]), np.nan)
            figure = Figure(name, coords, numbers, error if name == "recovered" else None, scale="signed share")
            figures.append(figure if target.edge else figure.over("part", "layer", "position"))
    return (*figures,)


def shares(changes: np.ndarray, gaps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of `changes` [P, ...] divided by the mean of `gaps` [P], and the standard error: [...] each.

    `gaps` are clean minus corrupt metric of P pairs, and the quotient is the share recovered. Errors are NaN for P = 1.
    """
    errors = np.array([standard_error(row, gaps) for row in changes.reshape(len(gaps), -1).T], float)  # None is NaN
    return changes.sum(0) / gaps.sum() + 0.0, abs(errors).reshape(changes.shape[1:])


def _require_gap(measured: PatchMeasurement, target: ToPatch, host: Host) -> None:
    """Raise DataError if the metric is equal on clean and corrupt prompts; notify of a small or negative difference."""
    gaps, where = measured.gaps, target.pairs[0].named("corrupt") if len(target.pairs) == 1 else "‹pairs›"
    clean, gap = measured.clean.mean(), gaps.mean()
    if abs(gap) < LEAST:
        wrong = f"the metric is {clean:.4f} on clean and on corrupt prompts, so there is nothing to recover"
        raise DataError(where, wrong, hint="name another answer, or prompts on which the model answers differently")
    if len(gaps) == 1 and abs(gap) < _SMALL:
        host.notice(f"the metric differs by {gap:.4f} nats between the two prompts, too little for meaningful shares")
    if gap < 0:
        host.notice(
            "the metric is lower on clean than on corrupt prompts, which is unusual; swap them if you mixed them up"
        )
    if len(gaps) > 1 and abs(gap) < 2 * (error := float(gaps.std(ddof=1) / len(gaps) ** 0.5)):
        host.notice(
            f"the clean and the corrupt metric differ by {gap:.4f} ± {error:.4f} on average, too little for "
            "reliable shares; choose pairs that the model tells apart"
        )


def _correlation(rows: Sequence[Row]) -> float | None:
    """Correlate exact and estimated shares that are not both 0; None for fewer than 3 rows, or for constant shares."""
    both = [(row["recovered"], row.get("estimate")) for row in rows]
    two: np.ndarray = np.empty(0) if None in both[0] else np.array([pair for pair in both if any(pair)]).T
    return float(np.corrcoef(two)[0, 1]) if two.size > 4 and two.std(axis=1).all() else None
