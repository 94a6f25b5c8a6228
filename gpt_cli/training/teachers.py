"""Train several models in one run, one after another; earlier models teach later models.

Furlanello et al. 2018, "Born-Again Neural Networks", arXiv 1805.04770: a model of the same size, with other random
weights, learns from the text and from the predictions of the first model. In a run of more than two models, the last
learns from the mean of the predictions of all earlier models but the first (Hinton et al. 2015, arXiv 1503.02531).
Targets are drawn from a teacher's probabilities, and some from n-gram counts of the text (`TaughtTargets`).
"""

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np
import torch

from gpt_cli.checkpoints.checkpoint import read_checkpoint
from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.common.host import Host, both
from gpt_cli.common.machine.devices import autocast
from gpt_cli.common.rng import random_words, stream_key
from gpt_cli.config import TrainConfig
from gpt_cli.errors import EnvironmentFailure
from gpt_cli.model import GPT
from gpt_cli.text.token_files import token_windows
from gpt_cli.training.batches import Batches
from gpt_cli.training.intervals import is_last_of_several
from gpt_cli.training.state import TrainingState
from gpt_cli.training.taught_targets import CERTAIN, FROM_TAIL, num_stored
from gpt_cli.training.validation import evaluation_batch_size


def teach(
    state: TrainingState,
    teachers: Sequence[int],
    directory: RunDirectory,
    host: Host,
    watch: Callable[[], object] = lambda: None,
) -> None:
    """Compute the probabilities that teach the next model, and store them in `state.batches.taught_targets`.

    `teachers` has the last step of every earlier model of the run; `directory` has the checkpoints of these steps. The
    teacher is the first model; for the last of three or more models, the mean of all earlier models except the first.
    `watch` is called between batches. Raises EnvironmentFailure if ranks compute different probabilities.
    """
    assert isinstance(state.batches, Batches)
    taught = state.batches.taught_targets
    assert taught is not None
    is_last = is_last_of_several(len(teachers), state.config.train)
    chosen = teachers[1:] if is_last else teachers[:1]
    with host.counting("drawing the targets of the teacher", len(taught.ids), "tokens") as count:
        models = [read_checkpoint(directory.step_file(step)).build_model().to(state.device) for step in chosen]
        settings, watched = state.config.train, both(count, watch)
        likely, cumulative = mean_probabilities(models, taught.ids, settings, teachers[-1], watched)
    taught.likely, taught.cumulative, taught.is_last = likely, cumulative, is_last
    if state.ranks.any_differ(int(likely.sum()), int(cumulative.sum())):
        sentence = "the processes draw different targets from the same model, so this machine has a fault"
        raise EnvironmentFailure(f"step {teachers[-1]:,}", sentence)


def mean_probabilities(
    models: Sequence[GPT], ids: np.ndarray, settings: TrainConfig, step: int, count: Callable[[int], object]
) -> tuple[np.ndarray, np.ndarray]:
    """Predict every token of `ids` [N] from the tokens before it, by the mean of the models' probabilities.

    Returns the k most probable tokens, [N, k], and their cumulative probabilities times CERTAIN, uint16 [N, k].
    Row i predicts ids[i]; row 0 has no meaning. k is at most MOST_LIKELY, and less for a long text. If the vocabulary
    has more than k tokens, the last FROM_TAIL columns have tokens drawn from all less probable tokens (seed: `step`),
    each with an equal share of the probability of all less probable tokens. A prediction uses at least half a context,
    or all earlier tokens if there are fewer. `count` receives the number of tokens done since its last call.
    """
    C, V = models[0].config.context_length, models[0].vocab_size
    device, number = models[0].token_embedding.weight.device, len(ids) - 1
    length, new, k = min(C, number), max(1, C // 2), num_stored(V, len(ids))
    likely = np.zeros((len(ids), k), np.uint16 if V <= 2**16 else np.int32)
    cumulative = np.full((len(ids), k), CERTAIN, np.uint16)
    starts = np.array([*range(0, number - length, new), number - length])
    key, at_once = stream_key(settings.seed, "teacher", step), evaluation_batch_size(C, V, device)
    for first in range(0, len(starts), at_once):
        chosen = starts[first : first + at_once]
        batch = torch.from_numpy(token_windows(ids, chosen, length).astype(np.int64)).to(device)
        with torch.inference_mode(), autocast(device, settings.dtype):
            mean = reduce(torch.add, (torch.softmax(model(batch).float(), dim=-1) for model in models)) / len(models)
        top, tokens = mean.topk(k if k == V else k - FROM_TAIL, dim=-1)
        if k < V:
            numbers = random_words(stream_key(key, first), 0, batch.numel() * FROM_TAIL) / 2.0**32
            uniform = torch.from_numpy(numbers.astype(np.float32)).to(device).view(*batch.shape, FROM_TAIL)
            tail = mean.scatter(-1, tokens, 0.0).cumsum(dim=-1)
            drawn = torch.searchsorted(tail, uniform * tail[..., -1:]).clamp(max=V - 1)
            top = torch.cat((top, (tail[..., -1:] / FROM_TAIL).expand(drawn.shape)), dim=-1)
            tokens = torch.cat((tokens, drawn), dim=-1)
        sums = top.cumsum(dim=-1)
        scaled = (sums / sums[..., -1:] * CERTAIN).round().int()
        for start, *rows in zip(chosen.tolist(), tokens.cpu().numpy(), scaled.cpu().numpy(), strict=True):
            skipped = 0 if start == 0 else length - new
            for array, row in zip((likely, cumulative), rows, strict=True):
                array[start + 1 + skipped : start + 1 + length] = row[skipped:]
        count(new * len(chosen))
    return likely, cumulative
