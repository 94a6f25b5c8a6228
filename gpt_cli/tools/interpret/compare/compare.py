"""`gpt compare`: compare two models on one text, by token, or, if their tokenizers differ, by equally many bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpt_cli.attention_maps.activations import head_results, walk
from gpt_cli.attention_maps.head_metrics import Row
from gpt_cli.attention_maps.head_scores import BYTES_PER_WEIGHT
from gpt_cli.checkpoints.load import Loaded, load_for
from gpt_cli.common.host import Host
from gpt_cli.common.limits import HEADS_TOKENS
from gpt_cli.common.machine.devices import choose_device, float64_device
from gpt_cli.common.machine.memory import available_memory, require_available
from gpt_cli.errors import DataError, blaming, counted, visible
from gpt_cli.evaluation.nll import (
    LOGITS_AT_ONCE,
    Score,
    Stretches,
    byte_lengths_on,
    in_stretches,
    log_probabilities,
    score,
    score_of,
    standard_error,
    surprisals,
)
from gpt_cli.evaluation.texts import BYTES_PER_TOKEN, beginning
from gpt_cli.model import GPT
from gpt_cli.text.corpus import Corpus
from gpt_cli.text.encode import TOKENIZING, encode
from gpt_cli.tools.interpret.compare.request import CompareRequest, ToCompare
from gpt_cli.tools.interpret.compare.view import CompareFinding, comparison_figures
from gpt_cli.tools.interpret.finding import Finding
from gpt_cli.tools.interpret.lens.tuned_lens import divergence
from gpt_cli.tools.interpret.text_windows import ids_of, open_text, spaced_windows

Both = tuple[Loaded, Loaded]
PASSAGE = 16  # tokens
_PARTS = {"attention": "attention", "feed_forward": "feed-forward"}  # of a block; all else are its norms


def compare(request: CompareRequest, target: ToCompare, host: Host) -> Finding:
    """Return a Finding of the differences of two models on one text; write it to `request.out`, if set.

    Raises CheckpointError (damage, NaN), DataError or UsageError (unusable text), EnvironmentFailure (memory, disk).
    """
    device = choose_device(request.device or "auto")
    pairs = zip(target.paths, target.headers, strict=True)
    models = [(str(path), load_for(host, path, None, header)) for path, header in pairs]
    (_, first), (_, second) = models
    corpus, about, shares = open_text(request.data, target.text, models, host)
    for loaded in (first, second):
        loaded.model.to(device)
    comparison = (_on_tokens if target.one_tokenizer else _on_stretches)((first, second), corpus, request, host)
    weights = weight_changes(first.model, second.model)
    _say_what_is_left_out((first, second), target, weights, host)
    runs: list[Row] = [
        {"run": name, "checkpoint": str(loaded.path), "step": loaded.step, **figures}
        for (name, loaded), figures in zip(models, comparison.pop("runs"), strict=True)
    ]
    for run, share in zip(runs, shares, strict=False):  # without --data, there are no shares
        run["training_share"] = share
    comparison |= {"runs": runs, "weights": weights}
    return CompareFinding({"text": about}, comparison_figures(comparison), comparison).saved(host, request.out)


def _say_what_is_left_out(both: Both, target: ToCompare, weights: list[Row], host: Host) -> None:
    first, second = (loaded.model for loaded in both)
    if not target.one_tokenizer:
        host.notice("the tokenizers differ, so bits per byte are compared, and no heads")
    elif not have_same_heads(first, second):
        host.notice("the models differ in blocks or heads, so no heads are compared")
    elif first.config.d_model != second.config.d_model:
        host.notice("the models differ in width, so what heads write is not compared")
    shapes = [{name: tensor.shape for name, tensor in model.state_dict().items()} for model in (first, second)]
    if shapes[0] != shapes[1]:
        some = f"{counted(len(weights), 'part')} of the weights have the same shapes in both models"
        none = "no part of the weights has the same shapes in both models, so none is compared"
        host.notice(some if weights else none)


def _on_tokens(both: Both, corpus: Corpus, request: CompareRequest, host: Host) -> dict[str, Any]:
    """Compare models with one tokenizer on windows of ids; return losses, divergence, changes of heads, passages."""
    tokenizer, ids = both[0].tokenizer, ids_of(corpus, both[0], host)
    if len(ids) < 3:
        where = "‹data›" if request.data else visible(request.runs[0])
        raise DataError(where, f"the text has {counted(len(ids), 'token')}; use at least 3")
    longest = min(loaded.config.model.context_length for loaded in both)
    windows = spaced_windows(len(ids), longest, request.max_tokens, host)
    num_heads, longest = sum(loaded.config.model.num_heads for loaded in both), max(b - a for a, b in windows)
    logits = 8 * min(sum(loaded.model.vocab_size for loaded in both) * longest, 2 * LOGITS_AT_ONCE)
    # of the attention of a layer of both models, and of their logits
    num_bytes = BYTES_PER_WEIGHT * num_heads * longest**2 + logits
    about = f"{counted(num_heads, 'head')} on {counted(longest, 'token')}"
    require_available("compare", about, num_bytes, available_memory(), hint="use fewer ‹max_tokens›")
    models = [loaded.model for loaded in both]
    device, num_tokens = models[0].output_weight.device, sum(end - start for start, end in windows)
    texts = [np.asarray(ids[start : end + 1]).astype(np.int64) for start, end in windows]
    seen = list[Window]()
    with host.counting("comparing", num_tokens, "tokens") as count:
        for window in texts:
            seen.append(compare_window(models, torch.from_numpy(window).to(device)))
            count(len(window) - 1)
    sizes = np.array([len(each.divergence) for each in seen], dtype=float)
    sums = np.array([each.nats.sum(axis=1) for each in seen])  # [windows, 2]
    apart = np.array([each.divergence.sum() for each in seen])
    lengths = byte_lengths_on(corpus, ids, tokenizer)
    num_bytes = sum(float(lengths[window[1:]].sum()) for window in texts)
    means = [score_of(float(nats.sum()), num_tokens, num_bytes) for nats in sums.T]
    runs = [_figures(mean, standard_error(nats, sizes)) for mean, nats in zip(means, sums.T, strict=True)]
    error = standard_error(sums[:, 1] - sums[:, 0], sizes)
    chosen = most_apart([each.divergence for each in seen], request.passages)
    return {
        "runs": runs,
        "difference": {"value": runs[1]["loss"] - runs[0]["loss"], "error": error, "unit": "nats/token"},
        "divergence": {"mean": float(apart.sum() / sizes.sum()), "error": standard_error(apart, sizes)},
        "heads": head_changes(seen),
        "passages": [
            _passage(both[0], texts[window], seen[window], windows[window][0], start, end)
            for window, start, end in chosen
        ],
    }


def _figures(mean: Score, error: float | None) -> Row:
    return {"tokens": mean.num_tokens, "loss": mean.loss, "loss_error": error, "bits_per_byte": mean.bits_per_byte}


def _passage(loaded: Loaded, window: np.ndarray, seen: Window, offset: int, start: int, end: int) -> Row:
    """Return text, losses, divergence of a passage: tokens `start` + 1 to `end` of a window that begins at `offset`."""
    say, ids = loaded.tokenizer.token_text, window.tolist()
    nats, apart = seen.nats[:, start:end], seen.divergence[start:end]
    before = loaded.tokenizer.decode(ids[max(0, start + 1 - PASSAGE) : start + 1])
    text = loaded.tokenizer.decode(ids[start + 1 : end + 1])
    tokens = [
        {"token": say(token), "id": token, "first": first, "second": second, "divergence": far}
        for token, first, second, far in zip(ids[start + 1 : end + 1], *nats.tolist(), apart.tolist(), strict=True)
    ]
    first, second = nats.mean(axis=1).tolist()
    figures = {"first": first, "second": second, "divergence": float(apart.mean())}
    return {"position": offset + start + 1, "before": before, "text": text, **figures, "tokens": tokens}


@dataclass(frozen=True)
class Window:
    """Comparison of two models on N tokens: surprisals of both, and KL(first || second) of their predictions, in nats.

    `attention` sums the total variation distances of a head's attention rows in the two models. `write_squares` sums
    ||b - a||^2 and ||a||^2 over tokens, where a head adds a to the residual stream in the first model, b in the second.
    If numbers of blocks or heads differ, `attention` and `write_squares` are None; if d_model differs, `write_squares`.
    """

    nats: np.ndarray  # [2, N]
    divergence: np.ndarray  # [N]: sum p log (p / q) over the vocabulary, p of the first
    attention: np.ndarray | None = None  # [L, H]
    write_squares: np.ndarray | None = None  # [2, L, H]


@torch.no_grad()
def compare_window(models: Sequence[GPT], window: Tensor) -> Window:
    """Compare how two models predict ids 1 to N of `window`; raise CheckpointError for NaN."""
    first, second = models
    ids, following = window[:-1], window[1:]
    heads = have_same_heads(first, second)
    writes = heads and first.config.d_model == second.config.d_model
    streams, attention, of_heads = list[Tensor](), list[Tensor](), list[Tensor]()
    if heads:
        for a, b in zip(*(walk(model, *model.embed(ids[None])) for model in models), strict=True):
            attention.append((a.weights - b.weights).abs().sum(dim=(0, 2, 3)) / 2)
            if writes:
                before, after = (head_results(each.block, each.heads, range(first.config.num_heads)) for each in (a, b))
                parts = (part.to(float64_device(part.device)).double() for part in (after - before, before))
                of_heads.append(torch.stack([part.square().sum(dim=(1, 2, 3)) for part in parts]))
            streams = [a.resid_post, b.resid_post]
    else:
        streams = [model.last_residual(ids[None]) for model in models]
    at_once, parts = max(1, LOGITS_AT_ONCE // first.vocab_size), list[tuple[Tensor, Tensor]]()
    for start in range(0, len(ids), at_once):
        rows = slice(start, start + at_once)
        log_probs = [log_probabilities(model, stream[0, rows]) for model, stream in zip(models, streams, strict=True)]
        nats = torch.stack([-each.gather(-1, following[rows, None])[:, 0] for each in log_probs])
        parts.append((nats, divergence(log_probs[1], log_probs[0]).clamp(min=0)))
    return Window(
        nats=torch.cat([nats for nats, _ in parts], dim=1).cpu().double().numpy(),
        divergence=torch.cat([apart for _, apart in parts]).cpu().double().numpy(),
        attention=torch.stack(attention).cpu().double().numpy() if heads else None,
        write_squares=torch.stack(of_heads, dim=1).cpu().double().numpy() if writes else None,
    )


def have_same_heads(first: GPT, second: GPT) -> bool:
    """Return whether two models have equal numbers of blocks, and equal numbers of heads per block."""
    return all(getattr(first.config, key) == getattr(second.config, key) for key in ("num_blocks", "num_heads"))


def head_changes(windows: Sequence[Window]) -> list[Row]:
    """Return a row for each head with its differences between two models, the largest `attention_change` first.

    `attention_change` is the mean total variation distance of a head's attention rows, 0 to 1; `write_change` is
    ||b - a|| / ||a||, where a and b are the head's outputs in the first and the second model, None if a is 0 or d_model
    differs. Standard errors are None for one window. If numbers of blocks or heads differ, there are no rows.
    """
    if not windows or windows[0].attention is None:
        return []
    sizes = np.array([len(each.divergence) for each in windows], dtype=float)
    distances = np.array([each.attention for each in windows])  # [windows, L, H]
    # [windows, 2, L, H]
    squares = None if windows[0].write_squares is None else np.array([each.write_squares for each in windows])
    rows = list[Row]()
    for layer, head in np.ndindex(distances.shape[1:]):
        apart, change, error = distances[:, layer, head], None, None
        if squares is not None and squares[:, 1, layer, head].sum():
            of_change, of_first = squares[:, :, layer, head].T
            change, error = float(np.sqrt(of_change.sum() / of_first.sum())), standard_error(of_change, of_first)
            # the error of a square root, from the error of its argument
            error = error / (2 * change) if error and change else error
        row: Row = {"layer": layer, "head": head, "attention_change": float(apart.sum() / sizes.sum())}
        row["attention_change_error"] = standard_error(apart, sizes)
        rows.append(row | {"write_change": change, "write_change_error": error})
    return sorted(rows, key=lambda row: -row["attention_change"])


def most_apart(divergences: Sequence[np.ndarray], number: int, length: int = PASSAGE) -> list[tuple[int, int, int]]:
    """Return up to `number` passages with the largest mean divergence, each as (index of its window, start, end).

    `divergences` has an array [N] for each window. Passages do not overlap; each has `length` tokens, or all tokens of
    a shorter window. Passages whose divergence is 0 are left out.
    """
    spans = list[tuple[float, int, int, int]]()
    for window, apart in enumerate(divergences):
        size = min(length, len(apart))
        sums = np.convolve(apart, np.ones(size), "valid") if size else np.empty(0)
        spans += [(-total / size, window, start, start + size) for start, total in enumerate(sums.tolist()) if total]
    chosen = list[tuple[int, int, int]]()
    for _, window, start, end in sorted(spans):
        if len(chosen) == number:
            break
        if all(window != other or end <= a or b <= start for other, a, b in chosen):
            chosen.append((window, start, end))
    return chosen


def _on_stretches(both: Both, corpus: Corpus, request: CompareRequest, host: Host) -> dict[str, Any]:
    """Compare models with different tokenizers on pieces of equally many bytes; return losses and passages."""
    corpus = beginning(corpus, request.max_tokens or HEADS_TOKENS)
    size = BYTES_PER_TOKEN * max(loaded.config.model.evaluation_window for loaded in both)
    paired, scores = list[Stretches](), list[Row]()
    for path, loaded in zip(request.runs, both, strict=True):
        with (
            blaming(visible(path), instead_of="text"),  # names the model that lacks a character
            host.counting(TOKENIZING, corpus.num_bytes, "B") as count,
        ):
            ids = encode(corpus, loaded.tokenizer, count, host.notice)
        if len(ids) < 2:
            where = "‹data›" if request.data else visible(path)
            raise DataError(where, "the text is one token long, so there is nothing to predict")
        lengths = byte_lengths_on(corpus, ids, loaded.tokenizer)
        paired.append(Stretches(size, ids, lengths))
        windows = Stretches(length := loaded.config.model.evaluation_window, ids)
        with host.counting("comparing", len(ids) - 1, "tokens") as count:
            parts = surprisals(loaded.model, ids, stride=length, count=count)
            mean = score(in_stretches(parts, ids, (windows, paired[-1])), ids, lengths, loaded.model.where)
        scores.append(_figures(mean, windows.standard_error()))
    error = paired[1].error_of_difference(paired[0])
    value = scores[1]["bits_per_byte"] - scores[0]["bits_per_byte"]
    difference = {"value": value, "error": error and error / math.log(2), "unit": "bits/byte"}
    content = b"".join(block.content for block in corpus.blocks())
    bits = [one.nats / math.log(2) / np.maximum(1, one.amounts) for one in paired]
    apart = np.abs(bits[1] - bits[0])
    passages: list[Row] = [
        {
            "position": int(index * size),
            # without the parts of characters at its ends
            "text": content[index * size : (index + 1) * size].decode("utf-8", "ignore"),
            "first": float(bits[0][index]),
            "second": float(bits[1][index]),
        }
        for index in np.argsort(-apart, kind="stable")[: request.passages]
    ]
    return {"runs": scores, "difference": difference, "divergence": None, "heads": [], "passages": passages}


def weight_changes(first: GPT, second: GPT) -> list[Row]:
    """Return a row for each part of the weights, such as the attention of a block, with its relative `change`.

    `change` is ||b - a|| / ||a||, where `first` has the weights a and `second` b; None where a is zero and b is not.
    Parts with different shapes are left out. `layer` is None for embeddings and output, which are not in a block.
    """
    theirs = dict(second.named_parameters())
    parts: dict[tuple[int | None, str], list[tuple[Tensor, Tensor | None]]] = {}
    for name, parameter in first.named_parameters():
        parts.setdefault(_part_of(name), []).append((parameter.detach(), theirs.pop(name, None)))
    more = {_part_of(name) for name in theirs}  # parts in which the second has more weights
    rows = list[Row]()
    for (layer, part), pairs in parts.items():
        equal = [
            (a.cpu().double(), b.detach().cpu().double()) for a, b in pairs if b is not None and a.shape == b.shape
        ]
        if len(equal) < len(pairs) or (layer, part) in more:
            continue
        apart = sum(float((b - a).square().sum()) for a, b in equal)
        size = sum(float(a.square().sum()) for a, _ in equal)
        change = float(np.sqrt(apart / size)) if size else None if apart else 0.0
        rows.append({"layer": layer, "part": part, "change": change, "parameters": sum(a.numel() for a, _ in equal)})
    return rows


def _part_of(name: str) -> tuple[int | None, str]:
    """Return the layer (None outside of blocks) and the part of a model to which a parameter belongs."""
    if not name.startswith("blocks."):
        return None, name.partition(".")[0].replace("_", " ")
    _, layer, module, *_ = name.split(".")
    return int(layer), _PARTS.get(module, "norms")
