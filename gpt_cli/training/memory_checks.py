"""Check that memory and disk are large enough for a training."""

import contextlib
from collections.abc import Iterator

from gpt_cli.common.machine.failures import is_lack_of_device_memory
from gpt_cli.config import Config
from gpt_cli.distributed.collectives import Ranks
from gpt_cli.errors import EnvironmentFailure, counted
from gpt_cli.training.advice.sizes import narrower
from gpt_cli.training.prompts import watched_ids
from gpt_cli.training.run import Run
from gpt_cli.training.state import training_costs

_BESIDE_WEIGHTS = 4000  # bytes of a small snapshot's scores, prompt and header, generously


def require_memory(config: Config, free: int | None, ranks: Ranks, *, may_change: bool) -> None:
    """Raise EnvironmentFailure if main memory cannot hold a training, even with the smallest possible vocabulary.

    `free` is the free memory in bytes, for all ranks of this machine together. Checks nothing if `free` is None or
    the device is not a CPU. `may_change` is true if the model is new, so that the hint may propose a smaller model.
    """
    settings = config.train
    if settings.device != "cpu" or free is None:
        return
    num_tokens = 1 if config.tokenizer.kind in ("char", "imported") else 257  # of the vocabulary at least

    def needs(num_sequences: int, width: int = config.model.d_model) -> int:
        other = config.changed(model={"d_model": width}, train={"micro_batch_size": num_sequences})
        # the estimate is a tenth above what was measured
        return ranks.local_size * training_costs(other, num_tokens, ranks.size).training_bytes * 4 // 5

    at_once = settings.sequences_at_once
    if (needed := needs(at_once)) <= free:
        return
    shared = [n for n in range(1, at_once + 1) if settings.batch_size % (n * ranks.size) == 0]
    hint = "close other programs, or continue on a machine with more memory"
    if may_change:
        hint = "lower model.d_model, model.num_blocks or model.context_length"
    for width in (config.model.d_model, *(narrower(config.model) if may_change else ())):
        if fitting := [n for n in shared if needs(n, width) <= free]:
            flags = [] if width == config.model.d_model else [f"‹model.d_model={width}›"]
            flags += [] if fitting[-1] == at_once else [f"‹train.micro_batch_size={fitting[-1]}›"]
            hint = " ".join(flags)
            break
    among = f" in {ranks.local_size} processes" if ranks.local_size > 1 else ""
    takes = f"the model and {counted(at_once, 'sequence')} of its batch take at least {needed / 1e6:,.0f} MB{among}"
    raise EnvironmentFailure("memory", f"{takes}, but only {free / 1e6:,.0f} MB are free", hint=hint)


@contextlib.contextmanager
def fitting_device(config: Config, num_ranks: int = 1, *, recorded: bool = False) -> Iterator[None]:
    """Turn an out-of-memory error of the device into an EnvironmentFailure with a hint: smaller micro-batches or model.

    `recorded` is true if steps replay a CUDA graph, which reserves memory; the hint then also names `train.graph=off`.
    """
    try:
        yield
    except Exception as error:
        if not is_lack_of_device_memory(error):
            raise
        settings = config.train
        at_once, unit = settings.sequences_at_once, settings.batch_size // num_ranks
        smaller = next((n for n in range(at_once // 2, 0, -1) if unit % n == 0), None)
        hint = f"‹train.micro_batch_size={smaller}›" if smaller else "choose a smaller model"
        hint = f"{hint}, or ‹train.graph=off›" if recorded else hint
        sentence = f"{settings.device} has too little memory for this model and {counted(at_once, 'sequence')} at once"
        raise EnvironmentFailure(settings.device, sentence, hint=f"{hint}; or ‹device=cpu›") from error


def require_space(run: Run) -> None:
    """Raise EnvironmentFailure if the disk cannot hold the checkpoints and attention snapshots of a run."""
    settings, costs = run.config.train, run.state.costs
    weights = 4 * costs.parameters
    to_continue = weights + 4 * settings.stored_per_weight * costs.num_trained
    num_saved = len(run.directory.steps()) if run.progress.step else 0
    snapshots = 0
    # the new one is written before the oldest is removed
    at_once = settings.keep_checkpoints + settings.num_teachers + 1
    if settings.max_steps is not None:
        done, last, begins = run.progress.step, settings.max_steps, not run.progress.step

        def num_due(period: int) -> int:
            """Return how many of the remaining steps are the last step or a multiple of `period`."""
            return -(-last // period) - done // period

        # the weights of another model are saved at step 0, and each teacher at its last step
        others = settings.num_teachers + (begins and run.progress.began_from is not None)
        at_once = min(num_saved + num_due(settings.save_every) + others, at_once)
        snapshots = snapshot_size(run) * (num_due(run.config.inspect.every) + begins)  # step 1 has one too
    # a new best checkpoint is written beside the old one
    needed = at_once * to_continue + 2 * weights + snapshots
    run.directory.require_space(needed, keeps_several=settings.keep_checkpoints > 1)


def snapshot_size(run: Run) -> int:
    """Estimate the size of one attention snapshot file in bytes; return 0 if the run takes no snapshots."""
    T, sizes = len(watched_ids(run.config, run.tokenizer)), run.config.model
    return sizes.num_blocks * sizes.num_heads * T * (T + 1) + _BESIDE_WEIGHTS if T else 0
