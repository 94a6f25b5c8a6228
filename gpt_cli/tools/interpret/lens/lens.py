"""`gpt lens`: the predictions that the final norm and the output layer make of the residual stream after each block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpt_cli.attention_maps.head_metrics import Row
from gpt_cli.checkpoints.load import Loaded, load_for
from gpt_cli.checkpoints.run_paths import RunFiles
from gpt_cli.common.host import Host
from gpt_cli.common.machine.devices import choose_device, restored_threads, use_threads
from gpt_cli.errors import shown
from gpt_cli.evaluation.nll import LOGITS_AT_ONCE, standard_error
from gpt_cli.model import GPT
from gpt_cli.model.gpt import require_finite
from gpt_cli.text.tokenizers import Tokenizer
from gpt_cli.tools.interpret.figure import Figure, Scale
from gpt_cli.tools.interpret.finding import Finding, stack
from gpt_cli.tools.interpret.lens.request import GAINS, MEASURES, UNITS, LensRequest
from gpt_cli.tools.interpret.lens.tuned_lens import Maps, divergence
from gpt_cli.tools.interpret.lens.tuned_lens_files import tuned_maps
from gpt_cli.tools.interpret.lens.view import LENS
from gpt_cli.tools.interpret.request import ToInspect
from gpt_cli.tools.interpret.run_steps import step_files
from gpt_cli.tools.interpret.text_windows import Text, each_checkpoint, encode_prompt_of, read_text

_SCALES: Mapping[str, Scale] = {"rank": "rank", "probability": "share", "token_probability": "share"}


@dataclass(frozen=True)
class Seen:
    """Of L layers and T tokens: the likeliest next token and its probability, and how far from the last layer.

    Of the first N tokens, whose next one is known, the loss of it in nats, its rank from 1 and its probability.
    """

    tokens: np.ndarray  # [L, T]
    chances: np.ndarray  # [L, T]
    divergence: np.ndarray  # [L, T], in nats
    loss: np.ndarray  # [L, N]
    rank: np.ndarray  # [L, N]
    probability: np.ndarray  # [L, N]


@restored_threads()
def lens(request: LensRequest, asked: ToInspect, host: Host) -> Finding:
    """Report on the layers of a model, or of all checkpoints of a run, and write the file of the request.

    Raises CheckpointError, DataError, UsageError and EnvironmentFailure.
    """
    use_threads(request.threads)
    device = choose_device(request.device or "auto")
    loaded = load_for(host, request.run, request.checkpoint, asked.header)
    of_prompt = asked.prompt is not None
    loaded.model.to(device)
    tuned = tuned_maps(request, asked, loaded, host) if request.tuned else None
    rest = tuned is not None and tuned.of_data and bool(request.data)
    if of_prompt:
        text = encode_prompt_of(asked, loaded, truncate=request.truncate)
    else:
        text = read_text(request, asked, loaded, host, rest=rest)
    about: dict[str, Any] = {"text": text.about, "tokens": text.num_tokens}
    if request.over_training:
        run, steps = RunFiles(asked.header.path.parent.parent), list[Finding]()
        paths = step_files(run)
        with host.counting("reading checkpoints", len(paths) * text.num_tokens, "tokens") as count:
            for each in each_checkpoint(paths, loaded, device, host):  # one is in memory at a time
                seen = read_layers(each, text, asked.layers, device, count)
                steps.append(Finding(LENS, {"step": each.step}, lens_figures(asked.layers, seen, of_prompt=of_prompt)))
        finding = stack(steps, {"run": str(run.path), **about})
        return finding.saved(host, request.out, (len(steps), "checkpoint"), (len(asked.layers), "layer"))
    ways = [None, tuned.maps] if tuned else [None]
    with host.counting("reading layers", text.num_tokens * len(ways), "tokens") as count:
        seen, *mapped = (read_layers(loaded, text, asked.layers, device, count, maps) for maps in ways)
    about = {"checkpoint": str(loaded.path), "step": loaded.step, **about}
    about |= {} if text.training_share is None else {"training_share": text.training_share}
    about |= {"tuned": tuned.as_dict()} if tuned else {}
    lists = {}
    if of_prompt:
        both = seen[0], *mapped[:1]
        lists["positions"] = by_position(loaded.tokenizer, text.ids[:].tolist(), asked.layers, *both)
    finding = Finding(LENS, about, lens_figures(asked.layers, seen, *mapped, of_prompt=of_prompt), lists)
    return finding.saved(host, request.out, (len(asked.layers), "layer"))


def read_layers(
    loaded: Loaded,
    text: Text,
    layers: Sequence[int],
    device: torch.device,
    count: Callable[[int], object],
    maps: Maps | None = None,
) -> list[Seen]:
    """What layers would predict in each window of a text; `count` receives the tokens of each that is done."""
    found = []
    for (start, end), (first, last) in zip(text.windows, text.targets, strict=True):
        ids, following = (
            torch.from_numpy(np.asarray(text.ids[a:b]).astype(np.int64)).to(device)
            for a, b in ((start, end), (first + 1, last + 1))
        )
        found.append(look(loaded.model, ids, following, layers, shown(loaded.path), maps))
        count(end - start)
    return found


@torch.no_grad()
def look(
    model: GPT,
    ids: Tensor,
    following: Tensor,
    layers: Sequence[int],
    where: str = "checkpoint",
    maps: Maps | None = None,
) -> Seen:
    """What layers would predict after each of the ids [T]; `following` [N] are the next ones, as far as they are known.

    With `maps` they predict behind these (tuned lens), without them from the stream as it is (logit lens).

    nostalgebraist 2020. The divergence is sum p log (p / q) over the vocabulary, p being the prediction of the last
    layer and q that of the layer. Raises CheckpointError, at `where`, for logits that are not finite.
    """
    streams = [stream[0] for stream in model.residual_streams(ids[None])]
    T, N, at_once = len(ids), len(following), max(1, LOGITS_AT_ONCE // model.vocab_size)
    parts = list[list[tuple[Tensor, ...]]]()
    for start in range(0, T, at_once):
        place, known = slice(start, start + at_once), max(0, min(at_once, N - start))
        goals = following[start : start + known, None]
        last = _predictions(model, streams[-1][place], where)
        rows = []
        for layer in layers:
            found = (
                last if layer == len(streams) - 1 else _predictions(model, streams[layer][place], where, maps, layer)
            )
            best, token = found.max(dim=-1)
            apart = divergence(found, last).clamp(min=0)
            own = found[:known].gather(-1, goals)
            rank = (found[:known] > own).sum(dim=-1) + 1
            rows.append((token, best.exp(), apart, -own[:, 0], rank, own[:, 0].exp()))
        parts.append(rows)
    kinds = ([torch.cat([rows[n][kind] for rows in parts]) for n in range(len(layers))] for kind in range(6))
    return Seen(*(torch.stack(kind).cpu().numpy() for kind in kinds))


def _predictions(model: GPT, stream: Tensor, where: str, maps: Maps | None = None, layer: int = 0) -> Tensor:
    """Log probabilities of the next token: [T, D] -> [T, V]."""
    logits = model.logits(stream if maps is None else maps(layer, stream))
    require_finite(logits, "logits", where)
    return logits.log_softmax(dim=-1)


def lens_figures(
    layers: Sequence[int], seen: Sequence[Seen], mapped: Sequence[Seen] = (), *, of_prompt: bool = False
) -> tuple[Figure, ...]:
    """Means over tokens [layer], and their standard errors where there are several windows; of a prompt also positions.

    With what layers predict behind maps, the same of these, and by how much they lower loss and divergence: the error
    of that is of the differences in each window.
    """
    windows = {name: [getattr(each, name) for each in seen] for name in MEASURES}
    if mapped:
        behind = {name: [getattr(each, name) for each in mapped] for name in MEASURES}
        pairs = {name: zip(windows[name], behind[name], strict=True) for name in GAINS}
        windows |= {f"tuned_{name}": parts for name, parts in behind.items()}
        windows |= {f"{name}_gain": [before - after for before, after in pairs[name]] for name in GAINS}
    figures = [_mean(name, layers, parts) for name, parts in windows.items()]
    for prefix, (found, *_) in (
        (("position_", seen), *((("tuned_position_", mapped),) if mapped else ())) if of_prompt else ()
    ):
        T = found.tokens.shape[1]
        places = {"layer": layers, "position": range(T)}
        for name in (*MEASURES, "token_probability"):
            numbers = found.chances if name == "token_probability" else getattr(found, name)
            known = np.full((len(layers), T), np.nan)
            known[:, : numbers.shape[1]] = numbers
            figures.append(
                Figure(prefix + name, places, known, unit=UNITS.get(name, ""), scale=_SCALES.get(name, "amount"))
            )
    return (*figures,)


def _mean(name: str, layers: Sequence[int], windows: Sequence[np.ndarray]) -> Figure:
    """The mean of a measure over the tokens of all windows [L, N], and its standard error; NaN where there is none."""
    means, errors = list[float](), list[float]()
    for row in range(len(layers)):
        sums, sizes = (np.array([part(each[row]) for each in windows], dtype=float) for part in (np.sum, len))
        error = standard_error(sums, sizes)
        means.append(float(sums.sum() / sizes.sum()) if sizes.sum() else np.nan)
        errors.append(np.nan if error is None else error)
    measure = name.removeprefix("tuned_").removesuffix("_gain")
    scale = "change" if name.endswith("_gain") else _SCALES.get(measure, "amount")
    return Figure(name, {"layer": layers}, np.array(means), np.array(errors), UNITS.get(measure, ""), scale)


def by_position(
    tokenizer: Tokenizer, ids: Sequence[int], layers: Sequence[int], seen: Seen, mapped: Sequence[Seen] = ()
) -> list[Row]:
    """A row for each token of a prompt, with what each layer predicts after it, perhaps also behind its map."""
    say = tokenizer.token_text
    rows = []
    for place, token in enumerate(ids):
        known = place < seen.loss.shape[1]
        of_layers = []
        for row, layer in enumerate(layers):
            own: Row = {"layer": layer}
            for prefix, each in (("", seen), *(("tuned_", one) for one in mapped)):
                best = int(each.tokens[row, place])
                own[f"{prefix}token"], own[f"{prefix}id"] = say(best), best
                own[f"{prefix}token_probability"] = float(each.chances[row, place])
                for name in ("loss", "rank", "probability"):
                    own[prefix + name] = getattr(each, name)[row, place].item() if known else None
                own[f"{prefix}divergence"] = float(each.divergence[row, place])
            of_layers.append(own)
        following = say(ids[place + 1]) if known else None
        rows.append({"position": place, "token": say(token), "next": following, "layers": of_layers})
    return rows


def lens_of_ids(
    model: GPT, tokenizer: Tokenizer, ids: Sequence[int], layers: Sequence[int], where: str = "checkpoint"
) -> list[Row]:
    """A row for each of the ids [T], as `gpt lens --json` has them; raises CheckpointError as `look` does."""
    found = torch.tensor([*ids], device=model.token_embedding.weight.device)
    return by_position(tokenizer, ids, layers, look(model, found, found[1:], layers, where))
