"""Read the maps of a tuned lens from the file that a run has for its weights, or train maps and write that file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from gpt_cli.checkpoints.array_file import ArrayFile
from gpt_cli.checkpoints.checkpoint import bytes_of
from gpt_cli.checkpoints.load import Loaded
from gpt_cli.checkpoints.lock import sole_trainer
from gpt_cli.checkpoints.run_paths import RunFiles, run_of_checkpoint
from gpt_cli.checkpoints.training_text import config_with_text
from gpt_cli.common.files import make_directory, write_durably
from gpt_cli.common.host import Host
from gpt_cli.common.machine.memory import available_memory, require_available
from gpt_cli.common.safetensors_header import MALFORMED
from gpt_cli.common.units import size
from gpt_cli.errors import CheckpointError, DataError, EnvironmentFailure, GptError, counted, shown, visible
from gpt_cli.evaluation.texts import joined, read_named_text, read_run_text
from gpt_cli.text.corpus import Corpus
from gpt_cli.text.encode import encode
from gpt_cli.text.sources import source_names
from gpt_cli.tools.interpret.lens.tuned_lens import Maps, num_steps, train_maps
from gpt_cli.tools.interpret.request import ReadingRequest, ToInspect
from gpt_cli.tools.interpret.text_windows import DATA_TO_TRAIN

_FILE = ArrayFile("gpt-cli tuned lens 1", "a tuned lens")
_ADVICE = "gpt lens --tuned --data FILE trains maps on that text, and ‹prompt› uses them then"


@dataclass(frozen=True)
class Tuned:
    """Trained maps and their training text; `of_data`: the text is from --data; `path`: the maps' file, or None."""

    maps: Maps
    text: str | list[str]
    of_data: bool
    steps: int
    path: str | None = None


def tuned_maps(request: ReadingRequest, target: ToInspect, loaded: Loaded, host: Host) -> Tuned:
    """Return the maps that a run stores for a model's weights; without any, train maps and store them, if possible.

    If the training text of the run cannot be read, maps are trained on the first nine tenths of --data. Raises
    UsageError if there is neither text, and DataError, CheckpointError and EnvironmentFailure.
    """
    run, identity = run_of_checkpoint(loaded.path), identity_of(loaded)
    path = None if run is None else run.maps_file(loaded.step)
    if path is not None and path.exists():
        try:
            if cached := read_maps(path, identity, loaded):
                return cached
            host.notice(f"{visible(path)} belongs to other weights, so new maps are trained")
        except CheckpointError as error:
            host.warn(f"{error.where}: {error.sentence}; new maps are trained")
    corpus, about, of_data = _training_text(request, target, loaded, host)
    with host.counting("tokenizing", corpus.num_bytes, "B") as count:
        ids = encode(corpus, loaded.tokenizer, count, host.notice)
    end = round(len(ids) * DATA_TO_TRAIN) if of_data else len(ids)
    if end < 2:
        raise DataError("‹tuned›", f"the text has {counted(len(ids), 'token')}, which are too few to train maps on")
    steps = num_steps(loaded.model)
    numbers = sum(part.numel() for part in vars(Maps.identity(loaded.model)).values())
    require_available("lens", "the maps of all layers", 20 * numbers, available_memory(), hint="leave out ‹tuned›")
    host.notice(f"training the maps of {counted(len(loaded.model.blocks) - 1, 'layer')} on {visible(joined(about))}")
    with host.counting("training maps", steps, "steps") as count:
        seed, where = loaded.config.train.seed, shown(loaded.path)
        maps = train_maps(loaded.model, ids[:end], seed, where, count, steps=steps)
    tuned = Tuned(maps, about, of_data, steps)
    if run is None:
        host.notice("the maps are not kept, because this checkpoint lies in no run")
        return tuned
    return _keep(tuned, run, run.maps_file(loaded.step), identity, host)


def _training_text(
    request: ReadingRequest, target: ToInspect, loaded: Loaded, host: Host
) -> tuple[Corpus, str | list[str], bool]:
    """Return the run's training text, or else --data; also return the text's sources, and whether it is --data."""
    name = str(loaded.path.parent.parent)
    try:
        text = read_run_text(name, config_with_text(target.header, _ADVICE).data, host)
    except GptError:
        if not request.data:
            raise
        assert target.text
        return read_named_text(request.data, target.text, host), [*request.data], True
    return text.training, text.data.source, False


def identity_of(loaded: Loaded) -> str:
    """SHA-256 of a model's settings and of its weights in memory, in hexadecimal."""
    digest = hashlib.sha256(loaded.config.model.model_dump_json().encode())
    for name, tensor in loaded.model.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(bytes_of(tensor.detach().cpu().contiguous()))
    return digest.hexdigest()


def maps_bytes(tuned: Tuned, identity: str) -> bytes:
    """Encode maps as a safetensors file: `weights` and `biases`, with all else as JSON in the file's metadata."""
    about = {"model": identity, "text": tuned.text, "of_data": tuned.of_data, "steps": tuned.steps}
    return _FILE.to_bytes(about, {name: part.cpu().numpy() for name, part in vars(tuned.maps).items()})


def read_maps(path: Path, identity: str, loaded: Loaded) -> Tuned | None:
    """Return the maps in a file; None if they belong to other weights. Raises CheckpointError for a damaged file."""
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
    fit = {name: (part.dtype, part.shape) for name, part in arrays.items()} == {
        name: (np.dtype(np.float32), tuple(part.shape)) for name, part in like.items()
    }
    if not fit or not all(np.isfinite(part).all() for part in arrays.values()):
        raise _FILE.refusal(path)
    maps = Maps(*(torch.from_numpy(arrays[name]).to(part.device) for name, part in like.items()))
    return Tuned(maps, text, of_data, steps, str(path))


def _keep(tuned: Tuned, run: RunFiles, path: Path, identity: str, host: Host) -> Tuned:
    """Write maps to `path`, holding the run's lock; return `tuned` with `path`, or, on failure, warn and omit it."""
    try:
        with sole_trainer(run.path, host.warn):
            make_directory(path.parent)
            write_durably(path, [maps_bytes(tuned, identity)])
    except EnvironmentFailure as error:
        host.warn(f"{error.where}: {error.sentence}; the maps are not kept, so the next call trains them again")
        return tuned
    host.notice(f"wrote {visible(path)}: {size(path.stat().st_size)}")
    return replace(tuned, path=str(path))
