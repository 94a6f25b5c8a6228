"""The tuned lens: an affine map of the residual stream after each block, trained to predict what the model predicts.

Belrose et al. 2023, "Eliciting Latent Predictions from Transformers with the Tuned Lens". `tuned_maps` trains the maps
of a checkpoint and stores them in a file of the run, which it reads at the next call.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim.adam import adam

from gpt_cli.checkpoints.array_file import ArrayFile
from gpt_cli.checkpoints.checkpoint import bytes_of
from gpt_cli.checkpoints.load import Loaded
from gpt_cli.checkpoints.lock import sole_trainer
from gpt_cli.checkpoints.run_paths import RunFiles, run_of_checkpoint
from gpt_cli.checkpoints.training_text import config_with_text
from gpt_cli.common.files import make_directory, write_durably
from gpt_cli.common.host import Host
from gpt_cli.common.limits import HEADS_WINDOW
from gpt_cli.common.machine.devices import to_device
from gpt_cli.common.machine.memory import available_memory, require_available
from gpt_cli.common.rng import permutation, random_words, stream_key
from gpt_cli.common.safetensors_header import MALFORMED
from gpt_cli.common.units import size
from gpt_cli.errors import CheckpointError, DataError, EnvironmentFailure, GptError, counted, shown, visible
from gpt_cli.evaluation.nll import LOGITS_AT_ONCE, log_probabilities
from gpt_cli.evaluation.texts import gives_same_ids, read_named_text, read_run_text
from gpt_cli.model import GPT
from gpt_cli.text.corpus import Corpus
from gpt_cli.text.sources import source_names
from gpt_cli.text.token_files import Ids, token_windows
from gpt_cli.tools.interpret.request import ReadingRequest, ToInspect
from gpt_cli.tools.interpret.text_windows import DATA_TO_TRAIN, ids_of

BATCH_TOKENS = 1024  # that the model reads in a step
POSITIONS = 512  # of them, at which the maps of all layers learn
MOST_STEPS, FEWEST_STEPS = 500, 50
OPERATIONS = 5e12  # of a training, about: below two minutes on two cores
LEARNING_RATE = 0.4  # divided by d_model, in the first step; it falls linearly to zero

_FILE = ArrayFile("gpt-cli tuned lens 1", "a tuned lens")
_ADVICE = "‹data=FILE› in place of ‹prompt› trains maps on that text; of a run, ‹prompt› then uses them"


@dataclass(frozen=True)
class Maps:
    """A tuned lens: a map x + W x + b of the stream x after each block but the last; W [L - 1, D, D], b [L - 1, D]."""

    weights: Tensor
    biases: Tensor

    @classmethod
    def identity(cls, model: GPT) -> Maps:
        """Return maps with W and b of zeros, which leave the residual stream unchanged."""
        D, like = model.config.d_model, model.output_weight
        return cls(like.new_zeros(len(model.blocks) - 1, D, D), like.new_zeros(len(model.blocks) - 1, D))

    def __call__(self, layer: int, x: Tensor) -> Tensor:
        """Map the residual stream after block `layer`, [..., D] -> [..., D]; after the last block, do not change it."""
        return x if layer == len(self.weights) else _mapped(x, self.weights[layer], self.biases[layer])


@dataclass(frozen=True)
class Tuned:
    """Trained maps of a tuned lens; `text` names their training text: --data if `of_data`, else the run's own text."""

    maps: Maps
    text: str | list[str]
    of_data: bool
    steps: int  # of the training
    path: str | None = None  # of the file that stores the maps


def tuned_maps(request: ReadingRequest, target: ToInspect, loaded: Loaded, host: Host) -> Tuned:
    """Return a tuned lens, with a map for each layer but the last: read it from the run, or train and try to store it.

    The maps are trained on the run's training text, or, if gpt cannot read it, on the first nine tenths of --data.
    Raises UsageError or DataError for unreadable text, CheckpointError for NaN, EnvironmentFailure if memory is short.
    """
    run, identity = run_of_checkpoint(loaded.path), identity_of(loaded)
    if run is not None and (path := run.maps_file(loaded.step)).exists():
        try:
            if cached := read_maps(path, identity, loaded):
                return cached
            run = run if host.loaded is None else None  # a loaded model may have other weights than the run
            host.notice(f"{visible(path)} belongs to other weights, so new maps are trained")
        except CheckpointError as error:
            host.warn(f"{error.where}: {error.sentence}; new maps are trained")
    corpus, about, of_data, is_same = _training_text(request, target, loaded, host)
    ids = ids_of(corpus, loaded, host)
    end = round(len(ids) * DATA_TO_TRAIN) if of_data else len(ids)
    if end < 2 or (of_data and len(ids) - end < 3):  # the rest is read
        raise DataError("‹tuned›", f"the text has {counted(len(ids), 'token')}, which are too few to train maps on")
    steps = num_steps(loaded.model)
    D = loaded.config.model.d_model
    numbers = (len(loaded.model.blocks) - 1) * (D * D + D)
    require_available("lens", "the maps of all layers", 20 * numbers, available_memory(), hint="leave out ‹tuned›")
    text = visible(", ".join(source_names(about)))
    host.notice(f"training the maps of {counted(len(loaded.model.blocks) - 1, 'layer')} on {text}")
    with host.counting("training maps", steps, "steps") as count:
        maps = train_maps(loaded.model, ids[:end] if of_data else ids, loaded.config.train.seed, count, steps=steps)
    tuned = Tuned(maps, about, of_data, steps)
    if run is None:
        host.notice("the maps are not kept, because these weights are in no checkpoint of a run")
        return tuned
    if not is_same:
        host.warn(f"{text} has changed since this run was trained on it, so the maps are not kept")
        return tuned
    return _keep(tuned, run, run.maps_file(loaded.step), identity, host)


def _training_text(
    request: ReadingRequest, target: ToInspect, loaded: Loaded, host: Host
) -> tuple[Corpus, str | list[str], bool, bool]:
    """Return the run's text, or else --data; its sources; whether it is --data; whether it is unchanged."""
    try:
        data = config_with_text(target.header, _ADVICE).data
        parts = read_run_text(str(loaded.header.run.path), data, host, _ADVICE)
    except GptError:
        if not request.data:
            raise
        assert target.text
        named = read_named_text(request.data, target.text, host)
        return named.with_template(target.text.template), [*request.data], True, True
    return parts[0], data.source, False, gives_same_ids(*parts, loaded, host)


def num_steps(model: GPT) -> int:
    """Number of steps to train a tuned lens; it depends on the model's sizes alone, so a training can be repeated."""
    D, V, num_maps = model.config.d_model, model.vocab_size, len(model.blocks) - 1
    of_blocks = sum(parameter.numel() for parameter in model.blocks[0].parameters()) * len(model.blocks)
    # the stream of all tokens; then logits and their gradient, the map and its two gradients
    operations = 2 * of_blocks * BATCH_TOKENS + num_maps * POSITIONS * (4 * D * V + 6 * D * D)
    return min(MOST_STEPS, max(FEWEST_STEPS, int(OPERATIONS // operations)))


def train_maps(model: GPT, ids: Ids, seed: int, count: Callable[[int], object], *, steps: int) -> Maps:
    """Train a tuned lens: a map for each layer but the last, at first the identity, on random windows of ids (`seed`).

    The loss of a map is the KL divergence from the model's prediction p to the map's prediction q, sum p log (p / q),
    averaged over positions drawn from the windows. `count` receives 1 after each of `steps` steps. Only one batch of
    residual streams is in memory. Raises CheckpointError for logits that are not finite.
    """
    maps = Maps.identity(model)
    averages, squares = ([torch.zeros_like(part) for part in (maps.weights, maps.biases)] for _ in range(2))
    done = [torch.zeros((), device=maps.weights.device) for _ in range(2)]
    for step in range(steps):
        streams = _streams(model, ids, stream_key(seed, "tuned lens", step))
        gradients = _gradients(model, maps, streams)
        rate = LEARNING_RATE / model.config.d_model * (1 - step / steps)
        how = {"amsgrad": False, "maximize": False, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0, "eps": 1e-8}
        adam([maps.weights, maps.biases], gradients, averages, squares, [], done, lr=rate, **how)
        count(1)
    return maps


@torch.no_grad()
def _streams(model: GPT, ids: Ids, key: int) -> list[Tensor]:
    """Return the residual stream after each block, [positions, D] each, at random positions; `key` is their seed."""
    C = min(model.config.context_length, HEADS_WINDOW, len(ids))
    num_windows = max(1, BATCH_TOKENS // C)
    starts = random_words(key, 0, num_windows).astype(np.int64) % (len(ids) - C + 1)
    most = min(POSITIONS, max(1, LOGITS_AT_ONCE // (4 * model.vocab_size)))  # of predictions and temporary tensors
    chosen = np.sort(permutation(key, num_windows * C)[:most])
    device = model.output_weight.device
    batch = to_device(torch.from_numpy(token_windows(ids, starts, C).astype(np.int64)), device)
    places = to_device(torch.from_numpy(chosen), device)
    return [stream.flatten(0, 1)[places] for stream in model.residual_streams(batch)]


def divergence(log_q: Tensor, log_p: Tensor) -> Tensor:
    """KL(p || q) = sum p log (p / q) in nats, from log-probabilities of q and p: [..., V], [..., V] -> [...]."""
    return F.kl_div(log_q, log_p, reduction="none", log_target=True).sum(dim=-1)


def _gradients(model: GPT, maps: Maps, streams: list[Tensor]) -> list[Tensor]:
    """Return gradients of W [L - 1, D, D] and b [L - 1, D]; a map's loss is its mean KL divergence from the model."""
    with torch.no_grad():
        log_p = log_probabilities(model, streams[-1])
    parts = []
    for layer, stream in enumerate(streams[:-1]):
        parameters = [part[layer].detach().requires_grad_() for part in (maps.weights, maps.biases)]
        log_q = model.logits(_mapped(stream, *parameters)).log_softmax(dim=-1)
        parts.append(torch.autograd.grad(divergence(log_q, log_p).mean(), parameters))
    return [torch.stack(part) for part in zip(*parts, strict=True)]


def _mapped(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x + F.linear(x, weight, bias)


def identity_of(loaded: Loaded) -> str:
    """SHA-256, in hexadecimal, of a model's settings and weights, by which `read_maps` recognises the model's maps."""
    digest = hashlib.sha256(loaded.config.model.model_dump_json().encode())
    for name, tensor in loaded.model.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(bytes_of(tensor.detach().cpu().contiguous()))
    return digest.hexdigest()


def read_maps(path: Path, identity: str, loaded: Loaded) -> Tuned | None:
    """Read a tuned lens from a file; return None if the file belongs to a model with another `identity`, a SHA-256.

    Raises CheckpointError for a damaged or missing file.
    """
    like = vars(Maps.identity(loaded.model))
    about, arrays = _FILE.read(path, 4 * sum(part.numel() for part in like.values()) + 2**20)
    try:
        text, of_data, steps = about["text"], bool(about["of_data"]), int(about["steps"])
        if {*map(type, source_names(text))} != {str}:
            raise _FILE.refusal(path)
        if about["model"] != identity:
            return None
    except MALFORMED:
        raise _FILE.refusal(path) from None
    shapes = {name: (np.dtype(np.float32), tuple(part.shape)) for name, part in like.items()}
    fit = {name: (part.dtype, part.shape) for name, part in arrays.items()} == shapes
    if not fit or not all(np.isfinite(part).all() for part in arrays.values()):
        raise _FILE.refusal(path)
    maps = Maps(*(torch.from_numpy(arrays[name]).to(part.device) for name, part in like.items()))
    return Tuned(maps, text, of_data, steps, str(path))


def maps_bytes(tuned: Tuned, identity: str) -> bytes:
    """Encode maps as a safetensors file: arrays `weights`, `biases`; `identity` and other fields as JSON metadata."""
    about = {"model": identity, "text": tuned.text, "of_data": tuned.of_data, "steps": tuned.steps}
    return _FILE.to_bytes(about, {name: part.cpu().numpy() for name, part in vars(tuned.maps).items()})


def _keep(tuned: Tuned, run: RunFiles, path: Path, identity: str, host: Host) -> Tuned:
    """Store the maps in `path`; return `tuned` with this path, or unchanged, after a warning, if that is impossible."""
    try:
        with sole_trainer(run.path, host.warn):  # which makes a missing directory
            if not run.exists():
                raise EnvironmentFailure(shown(run.path), "this run was removed while the maps trained")
            make_directory(path.parent)
            write_durably(path, [maps_bytes(tuned, identity)])
    except EnvironmentFailure as error:
        host.warn(f"{error.where}: {error.sentence}; the maps are not kept, so the next call trains them again")
        return tuned
    host.notice(f"wrote {visible(path)}: {size(path.stat().st_size)}")
    return replace(tuned, path=str(path))
