"""`gpt compare`: two models on the same text, by tokens, or by stretches of equal size if their tokenizers differ."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from gpt_cli.attention_maps.head_metrics import Row
from gpt_cli.attention_maps.head_scores import BYTES_PER_WEIGHT
from gpt_cli.checkpoints.load import Loaded, load
from gpt_cli.common.host import Host
from gpt_cli.common.limits import HEADS_TOKENS
from gpt_cli.common.machine.devices import choose_device, restored_threads, use_threads
from gpt_cli.common.machine.memory import available_memory, require_available, reuse_memory
from gpt_cli.errors import DataError, blaming, counted, shown, visible
from gpt_cli.evaluation.nll import (
    LOGITS_AT_ONCE,
    Stretches,
    byte_lengths_on,
    in_stretches,
    score,
    standard_error,
    surprisals,
)
from gpt_cli.evaluation.texts import BYTES_PER_TOKEN, beginning
from gpt_cli.sampling.windows import window_length
from gpt_cli.text.corpus import Corpus
from gpt_cli.text.encode import encode
from gpt_cli.tools.interpret.compare.differences import (
    PASSAGE,
    Window,
    compare_window,
    have_same_heads,
    head_changes,
    most_apart,
    weight_changes,
)
from gpt_cli.tools.interpret.compare.request import CompareRequest, ToCompare
from gpt_cli.tools.interpret.compare.view import COMPARE, comparison_figures
from gpt_cli.tools.interpret.finding import Finding
from gpt_cli.tools.interpret.text_windows import open_text, spaced_windows

Both = tuple[Loaded, Loaded]


@restored_threads()
def compare(request: CompareRequest, target: ToCompare, host: Host) -> Finding:
    """Compare two models and return the finding; write it to `request.out`, if set.

    Raises CheckpointError, DataError, UsageError and EnvironmentFailure.
    """
    use_threads(request.threads)
    device = choose_device(request.device or "auto")
    pairs = zip(target.paths, target.headers, strict=True)
    reuse_memory()
    first, second = (load(path, None, host.warn, header) for path, header in pairs)
    models = [(str(path), loaded) for path, loaded in zip(target.paths, (first, second), strict=True)]
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
    for run, share in zip(runs, shares, strict=False):  # of --data alone there are any
        run["training_share"] = share
    comparison |= {"runs": runs, "weights": weights}
    return Finding(COMPARE, {"text": about}, comparison_figures(comparison), comparison).saved(host, request.out)


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
    """Compare models with one tokenizer on windows of ids; return losses, divergence, heads and passages by name."""
    tokenizer = both[0].tokenizer
    with host.counting("tokenizing", corpus.num_bytes, "B") as count:
        ids = encode(corpus, tokenizer, count, host.notice)
    if len(ids) < 3:
        raise DataError("text", f"the text has {counted(len(ids), 'token')}; use at least 3")
    longest = min(loaded.config.model.context_length for loaded in both)
    windows = spaced_windows(len(ids), longest, request.max_tokens, host)
    num_heads, longest = sum(loaded.config.model.num_heads for loaded in both), max(b - a for a, b in windows)
    logits = 8 * min(sum(loaded.model.vocab_size for loaded in both) * longest, 2 * LOGITS_AT_ONCE)
    # of the attention of a layer of both models, and of their logits
    num_bytes = BYTES_PER_WEIGHT * num_heads * longest**2 + logits
    about = f"{counted(num_heads, 'head')} on {counted(longest, 'token')}"
    require_available("compare", about, num_bytes, available_memory(), hint="use fewer ‹max_tokens›")
    models, wheres = [loaded.model for loaded in both], [shown(loaded.path) for loaded in both]
    device, seen, texts = models[0].output_weight.device, list[Window](), list[np.ndarray]()
    num_tokens = sum(end - start for start, end in windows)
    with host.counting("comparing", num_tokens, "tokens") as count:
        for start, end in windows:
            window = np.asarray(ids[start : end + 1]).astype(np.int64)
            texts.append(window)
            on_device = torch.from_numpy(window).to(device)
            seen.append(compare_window(models, on_device[:-1], on_device[1:], wheres))
            count(end - start)
    sizes = np.array([len(each.divergence) for each in seen], dtype=float)
    sums = np.array([each.nats.sum(axis=1) for each in seen])  # [windows, 2]
    apart = np.array([each.divergence.sum() for each in seen])
    lengths = byte_lengths_on(corpus, ids, tokenizer)
    num_bytes = sum(float(lengths[window[1:]].sum()) for window in texts)
    runs = [
        {
            "tokens": num_tokens,
            "loss": float(nats.sum() / sizes.sum()),
            "loss_error": standard_error(nats, sizes),
            "bits_per_byte": float(nats.sum() / math.log(2) / max(1.0, num_bytes)),
        }
        for nats in sums.T
    ]
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


def _passage(loaded: Loaded, window: np.ndarray, seen: Window, offset: int, start: int, end: int) -> Row:
    """Return tokens `start` + 1 to `end` of a window at `offset` in the text as a row: surprisals, text before."""
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


def _on_stretches(both: Both, corpus: Corpus, request: CompareRequest, host: Host) -> dict[str, Any]:
    """Compare models with different tokenizers on stretches of equal bytes; return losses and passages by name."""
    corpus = beginning(corpus, request.max_tokens or HEADS_TOKENS)
    size = BYTES_PER_TOKEN * max(window_length(loaded.config.model) for loaded in both)
    paired, scores = list[Stretches](), list[Row]()
    for path, loaded in zip(request.runs, both, strict=True):
        with blaming(visible(path), instead_of="text"):  # of two models, the one that lacks its characters
            ids = encode(corpus, loaded.tokenizer)
        if len(ids) < 2:
            raise DataError("text", "the text is one token long, so there is nothing to predict")
        lengths = byte_lengths_on(corpus, ids, loaded.tokenizer)
        paired.append(Stretches(size, ids, lengths))
        windows = Stretches(length := window_length(loaded.config.model), ids)
        with host.counting("comparing", len(ids) - 1, "tokens") as count:
            parts = surprisals(loaded.model, ids, stride=length, count=count)
            mean = score(in_stretches(parts, ids, (windows, paired[-1])), ids, lengths, shown(loaded.path))
        figures: Row = {"tokens": mean.num_tokens, "loss": mean.loss, "loss_error": windows.standard_error()}
        scores.append(figures | {"bits_per_byte": mean.bits_per_byte})
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
