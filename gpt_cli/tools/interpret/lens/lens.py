"""`gpt lens`: what the final norm and the output layer predict from the residual stream after each block."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpt_cli.attention_maps.head_metrics import Row
from gpt_cli.checkpoints.load import load_for
from gpt_cli.common.host import Host
from gpt_cli.common.machine.devices import choose_device
from gpt_cli.evaluation.nll import LOGITS_AT_ONCE, log_probabilities, standard_error
from gpt_cli.model import GPT
from gpt_cli.text.sources import source_names
from gpt_cli.text.tokenizers import Tokenizer
from gpt_cli.tools.interpret.figure import Figure, Scale
from gpt_cli.tools.interpret.finding import Finding, stack
from gpt_cli.tools.interpret.lens.request import GAINS, MEASURES, UNITS, LensRequest
from gpt_cli.tools.interpret.lens.tuned_lens import Maps, divergence, tuned_maps
from gpt_cli.tools.interpret.lens.view import LensFinding
from gpt_cli.tools.interpret.request import ToInspect, step_files
from gpt_cli.tools.interpret.text_windows import Text, each_checkpoint, encode_prompt_of, read_text

_SCALES: Mapping[str, Scale] = {"rank": "rank", "probability": "share", "token_probability": "share"}


@dataclass(frozen=True)
class Seen:
    """Predictions of L layers on T tokens: the likeliest token, its probability, and divergence from the last layer.

    Loss (nats), rank (from 1) and probability are those of the true next token, known for the first N tokens.
    """

    tokens: np.ndarray  # [L, T]
    token_probability: np.ndarray  # [L, T]
    divergence: np.ndarray  # [L, T], in nats
    loss: np.ndarray  # [L, N]
    rank: np.ndarray  # [L, N]
    probability: np.ndarray  # [L, N]


def lens(request: LensRequest, target: ToInspect, host: Host) -> Finding:
    """Measure what each layer predicts, in one model or in each checkpoint of a run; write it to `request.out`, if set.

    Raises CheckpointError (damage, NaN), DataError or UsageError (unusable text), EnvironmentFailure (memory, disk).
    """
    device = choose_device(request.device or "auto")
    loaded = load_for(host, request.run, request.checkpoint, target.header)
    of_prompt = target.prompt is not None
    loaded.model.to(device)
    # a prompt is refused before maps train
    prompt = encode_prompt_of(target, loaded, truncate=request.truncate) if of_prompt else None
    tuned = tuned_maps(request, target, loaded, host) if request.tuned else None
    names = source_names(tuned.text) if tuned and tuned.of_data else ()
    of_maps, of_request = ({*map(os.path.realpath, sources)} for sources in (names, request.data))
    if (rest := not of_maps.isdisjoint(of_request)) and of_maps != of_request:
        host.notice("the maps have learned a part of this text, so the gain may be too high")
    text = prompt or read_text(request, target, loaded, host, rest=rest)
    about: dict[str, Any] = {"text": text.about, "tokens": text.num_tokens}
    if request.over_training:
        paths, steps = step_files(target.header.run), list[Finding]()
        with host.counting("reading checkpoints", len(paths) * text.num_tokens, "tokens") as count:
            for each in each_checkpoint(paths, loaded, device, host):  # one is in memory at a time
                seen = read_layers(each.model, text, target.layers, count)
                steps.append(LensFinding({"step": each.step}, lens_figures(target.layers, seen, of_prompt=of_prompt)))
        finding = stack(steps, {"run": str(target.header.run.path), **about})
        return finding.saved(host, request.out, (len(steps), "checkpoint"), (len(target.layers), "layer"))
    lenses = [None, tuned.maps] if tuned else [None]
    with host.counting("reading layers", text.num_tokens * len(lenses), "tokens") as count:
        seen, *mapped = (read_layers(loaded.model, text, target.layers, count, maps) for maps in lenses)
    about = {"checkpoint": str(loaded.path), "step": loaded.step, **about}
    about |= {} if text.training_share is None else {"training_share": text.training_share}
    about |= {"tuned": {"text": tuned.text, "steps": tuned.steps, "kept": tuned.path}} if tuned else {}
    lists = {}
    if of_prompt:
        lists["positions"] = by_position(loaded.tokenizer, text.ids[:].tolist(), target.layers, seen[0], *mapped)
    finding = LensFinding(about, lens_figures(target.layers, seen, *mapped, of_prompt=of_prompt), lists)
    return finding.saved(host, request.out, (len(target.layers), "layer"))


def read_layers(
    model: GPT, text: Text, layers: Sequence[int], count: Callable[[int], object], maps: Maps | None = None
) -> list[Seen]:
    """Return predictions of `layers` on each window of a text, by the logit lens or, with `maps`, by a tuned lens.

    After each window, `count` receives the window's number of tokens.
    """
    seen, device = [], model.output_weight.device
    for start, end in text.windows:
        window = np.asarray(text.ids[start : end + 1]).astype(np.int64)  # with the id after it
        ids = torch.from_numpy(window).to(device)
        seen.append(look(model, ids[: end - start], ids[1:], layers, maps))
        count(end - start)
    return seen


@torch.no_grad()
def look(model: GPT, ids: Tensor, following: Tensor, layers: Sequence[int], maps: Maps | None = None) -> Seen:
    """Return the predictions of layers after each of the ids [T]; `following` [N] are the true ids after the first N.

    The model's output layer reads the residual stream (logit lens, nostalgebraist 2020) or, with `maps`, the mapped
    stream (tuned lens). The divergence of a layer is KL(p || q) in nats, where the last layer predicts p and this
    layer predicts q. Raises CheckpointError for logits that are not finite.
    """
    streams = [stream[0] for stream in model.residual_streams(ids[None])]
    T, N, at_once = len(ids), len(following), max(1, LOGITS_AT_ONCE // model.vocab_size)
    parts = list[list[tuple[Tensor, ...]]]()
    for start in range(0, T, at_once):
        chunk, num_known = slice(start, start + at_once), max(0, min(at_once, N - start))
        targets = following[start : start + num_known, None]
        last = log_probabilities(model, streams[-1][chunk])
        rows = []
        for layer in layers:
            stream = streams[layer][chunk] if maps is None else maps(layer, streams[layer][chunk])
            log_probs = last if layer == len(streams) - 1 else log_probabilities(model, stream)
            best, token = log_probs.max(dim=-1)
            apart = divergence(log_probs, last).clamp(min=0)
            target_log_probs = log_probs[:num_known].gather(-1, targets)
            rank = (log_probs[:num_known] > target_log_probs).sum(dim=-1) + 1
            rows.append((token, best.exp(), apart, -target_log_probs[:, 0], rank, target_log_probs[:, 0].exp()))
        parts.append(rows)
    kinds = ([torch.cat([rows[n][kind] for rows in parts]) for n in range(len(layers))] for kind in range(6))
    return Seen(*(torch.stack(kind).cpu().numpy() for kind in kinds))


def lens_figures(
    layers: Sequence[int], seen: Sequence[Seen], mapped: Sequence[Seen] = (), *, of_prompt: bool = False
) -> tuple[Figure, ...]:
    """Return figures (measured arrays) by layer: mean loss, rank, probability and divergence, with standard errors.

    `seen` has the logit lens's predictions on each window. `mapped` has those of a tuned lens, if any: they add figures
    such as tuned_loss, and loss_gain, by which the loss falls. `of_prompt` adds arrays [layer, position] of a prompt.
    """
    windows = {name: [getattr(each, name) for each in seen] for name in MEASURES}
    if mapped:
        behind = {name: [getattr(each, name) for each in mapped] for name in MEASURES}
        pairs = {name: zip(windows[name], behind[name], strict=True) for name in GAINS}
        windows |= {f"tuned_{name}": parts for name, parts in behind.items()}
        windows |= {f"{name}_gain": [before - after for before, after in pairs[name]] for name in GAINS}
    figures = [_mean(name, layers, parts) for name, parts in windows.items()]
    prompts = [*zip(("position_", "tuned_position_"), (*seen, *mapped), strict=False)] if of_prompt else []
    for prefix, window in prompts:
        T = window.tokens.shape[1]
        places = {"layer": layers, "position": range(T)}
        for name in (*MEASURES, "token_probability"):
            padded = np.full((len(layers), T), np.nan)
            numbers = getattr(window, name)
            padded[:, : numbers.shape[1]] = numbers
            scale = _SCALES.get(name, "amount")
            figures.append(Figure(prefix + name, places, padded, None, UNITS.get(name, ""), scale))
    return (*figures,)


def _mean(name: str, layers: Sequence[int], windows: Sequence[np.ndarray]) -> Figure:
    """Return the mean of `windows`, [L, N] each, over tokens, as a Figure by layer; errors are NaN for one window."""
    sums = np.array([each.sum(axis=1) for each in windows], float).T.copy()  # [layers, windows]
    sizes = np.array([each.shape[1] for each in windows], float)
    means = [of_layer.sum() / sizes.sum() if sizes.sum() else np.nan for of_layer in sums]
    errors = np.array([standard_error(of_layer, sizes) for of_layer in sums], float)  # None is NaN
    measure = name.removeprefix("tuned_").removesuffix("_gain")
    scale = "change" if name.endswith("_gain") else _SCALES.get(measure, "amount")
    return Figure(name, {"layer": layers}, np.array(means), errors, UNITS.get(measure, ""), scale)


def by_position(
    tokenizer: Tokenizer, ids: Sequence[int], layers: Sequence[int], seen: Seen, mapped: Sequence[Seen] = ()
) -> list[Row]:
    """Return a row for each token: each layer's prediction by the logit lens (`seen`) and any tuned lens (`mapped`)."""
    say = tokenizer.token_text
    rows = []
    for position, token in enumerate(ids):
        has_next = position < seen.loss.shape[1]
        of_layers = []
        for row, layer in enumerate(layers):
            entry: Row = {"layer": layer}
            for prefix, each in (("", seen), *(("tuned_", one) for one in mapped)):
                best = int(each.tokens[row, position])
                entry[f"{prefix}token"], entry[f"{prefix}id"] = say(best), best
                entry[f"{prefix}token_probability"] = float(each.token_probability[row, position])
                for name in ("loss", "rank", "probability"):
                    entry[prefix + name] = getattr(each, name)[row, position].item() if has_next else None
                entry[f"{prefix}divergence"] = float(each.divergence[row, position])
            of_layers.append(entry)
        following = say(ids[position + 1]) if has_next else None
        rows.append({"position": position, "token": say(token), "next": following, "layers": of_layers})
    return rows


def lens_of_ids(model: GPT, tokenizer: Tokenizer, ids: Sequence[int], layers: Sequence[int]) -> list[Row]:
    """Return a row of layer predictions for each id, as in `gpt lens --json`; raises CheckpointError for NaN or inf."""
    token_ids = torch.tensor([*ids], device=model.token_embedding.weight.device)
    return by_position(tokenizer, ids, layers, look(model, token_ids, token_ids[1:], layers))
