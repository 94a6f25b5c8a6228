"""`gpt lens`: the predictions that the final norm and the output layer make of the residual stream after each block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from gpt_cli.callbacks import Host
from gpt_cli.checkpoints.load import Loaded, load_for
from gpt_cli.errors import counted, shown, visible
from gpt_cli.files import write_durably
from gpt_cli.inspecting.heads.columns import Row
from gpt_cli.inspecting.lens.report import LensReport
from gpt_cli.inspecting.lens.request import MEASURES, LensRequest
from gpt_cli.inspecting.reading import Text, read_prompt, read_text
from gpt_cli.inspecting.request import ToInspect
from gpt_cli.machine.devices import choose_device, threads_kept, use_threads
from gpt_cli.model import GPT
from gpt_cli.model.gpt import require_finite
from gpt_cli.sampling.scoring import LOGITS_AT_ONCE, standard_error
from gpt_cli.text.tokenizer import Tokenizer


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


@threads_kept()
def lens(request: LensRequest, asked: ToInspect, host: Host) -> LensReport:
    """Report on the layers of a model, and write the file of the request.

    Raises CheckpointError, DataError, UsageError and EnvironmentFailure.
    """
    use_threads(request.threads)
    device = choose_device(request.device or "auto")
    loaded = load_for(host, request.run, request.checkpoint, asked.read, asked.header)
    of_prompt = asked.prompt is not None
    text = read_prompt(request, asked, loaded) if of_prompt else read_text(request, asked, loaded, host)
    loaded.model.to(device)
    with host.counting("reading layers", text.num_tokens, "tokens") as count:
        seen = _read(loaded, text, asked.layers, device, count)
    report = LensReport(
        checkpoint=str(loaded.path),
        step=loaded.step,
        text=text.about,
        tokens=text.num_tokens,
        layers=_means(asked.layers, seen),
        positions=by_position(loaded.tokenizer, text.ids[:].tolist(), asked.layers, seen[0]) if of_prompt else None,
        out=request.out and str(request.out),
    )
    if request.out is not None:
        with host.working(f"writing {visible(request.out)}"):
            write_durably(request.out, [report.as_file(request.out.suffix.lower(), host.notice)])
        host.notice(f"wrote {visible(request.out)}: {counted(len(asked.layers), 'layer')}")
    return report


def _read(
    loaded: Loaded, text: Text, layers: Sequence[int], device: torch.device, count: Callable[[int], object]
) -> list[Seen]:
    found = []
    for (start, end), (first, last) in zip(text.windows, text.targets, strict=True):
        ids, following = (
            torch.from_numpy(np.asarray(text.ids[a:b]).astype(np.int64)).to(device)
            for a, b in ((start, end), (first + 1, last + 1))
        )
        found.append(look(loaded.model, ids, following, layers, where=shown(loaded.path)))
        count(end - start)
    return found


@torch.no_grad()
def look(model: GPT, ids: Tensor, following: Tensor, layers: Sequence[int], where: str = "checkpoint") -> Seen:
    """What layers would predict after each of the ids [T]; `following` [N] are the next ones, as far as they are known.

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
            found = last if layer == len(streams) - 1 else _predictions(model, streams[layer][place], where)
            best, token = found.max(dim=-1)
            divergence = F.kl_div(found, last, reduction="none", log_target=True).sum(dim=-1).clamp(min=0)
            own = found[:known].gather(-1, goals)
            rank = (found[:known] > own).sum(dim=-1) + 1
            rows.append((token, best.exp(), divergence, -own[:, 0], rank, own[:, 0].exp()))
        parts.append(rows)
    kinds = ([torch.cat([rows[n][kind] for rows in parts]) for n in range(len(layers))] for kind in range(6))
    return Seen(*(torch.stack(kind).cpu().numpy() for kind in kinds))


def _predictions(model: GPT, stream: Tensor, where: str) -> Tensor:
    """Log probabilities of the next token: [T, D] -> [T, V]."""
    logits = model.logits(stream)
    require_finite(logits, "logits", where)
    return logits.log_softmax(dim=-1)


def _means(layers: Sequence[int], seen: Sequence[Seen]) -> list[Row]:
    """A row for each layer: means over tokens, and their standard errors where there are several windows."""
    rows = []
    for row, layer in enumerate(layers):
        means: Row = {"layer": layer}
        for name in MEASURES:
            windows = [getattr(each, name)[row] for each in seen]
            sums, sizes = (np.array([part(each) for each in windows], dtype=float) for part in (np.sum, len))
            means[name] = float(sums.sum() / sizes.sum()) if sizes.sum() else None
            means[f"{name}_error"] = standard_error(sums, sizes)
        rows.append(means)
    return rows


def by_position(tokenizer: Tokenizer, ids: Sequence[int], layers: Sequence[int], seen: Seen) -> list[Row]:
    """A row for each token of a prompt, with what each layer predicts after it."""
    say = tokenizer.token_text
    rows = []
    for place, token in enumerate(ids):
        known = place < seen.loss.shape[1]
        of_layers = []
        for row, layer in enumerate(layers):
            best = int(seen.tokens[row, place])
            own: Row = {
                "layer": layer,
                "token": say(best),
                "id": best,
                "token_probability": float(seen.chances[row, place]),
            }
            own |= {
                name: getattr(seen, name)[row, place].item() if known else None
                for name in ("loss", "rank", "probability")
            }
            of_layers.append({**own, "divergence": float(seen.divergence[row, place])})
        following = say(ids[place + 1]) if known else None
        rows.append({"position": place, "token": say(token), "next": following, "layers": of_layers})
    return rows


def lens_of_ids(
    model: GPT, tokenizer: Tokenizer, ids: Sequence[int], layers: Sequence[int], where: str = "checkpoint"
) -> list[Row]:
    """A row for each of the ids [T], as `gpt lens --json` has them; raises CheckpointError as `look` does."""
    found = torch.tensor([*ids], device=model.token_embedding.weight.device)
    return by_position(tokenizer, ids, layers, look(model, found, found[1:], layers, where))
