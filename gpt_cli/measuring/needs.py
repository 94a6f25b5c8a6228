"""About what memory each kind of `gpt bench` takes, counted before it builds a model."""

from __future__ import annotations

from collections.abc import Mapping

from gpt_cli.config import Config
from gpt_cli.machine.memory import PROCESS_BYTES
from gpt_cli.measuring.bench import NUM_SAMPLES, PROMPT, vocab_size_of
from gpt_cli.model.costs import Estimate, estimate, rank_costs


def training_bytes(config: Config, num_sequences: int) -> int:
    """What `training_variants` take, the plain ones of which compute so many sequences at once."""
    found = _estimate(config, num_sequences)
    return found.training_bytes + 2 * 16 * found.parameters  # weights, gradients and moments of the other two


def sampling_bytes(config: Config, num_tokens: int) -> int:
    """What `sampling_variants` take: a model, and of each dtype a decoder of one sequence and one of 32.

    Each decoder has weights of its own and keeps its cache; with transformers come a model of theirs for each number.
    """
    found = _estimate(config, 1)
    embedding = vocab_size_of(config) * config.model.d_model
    weights = (4 + 2 * (4 + 2 + 2) + 2 * 2 + 4) * found.parameters + 6 * 4 * embedding
    slots = min(2 * config.model.context_length, len(PROMPT) + num_tokens)
    caches = 3 * (1 + NUM_SAMPLES) * found.cache_bytes_per_token * slots
    return weights + caches + 72 * NUM_SAMPLES * vocab_size_of(config)  # as row_bytes of decoder.py counts the choice


def plain_bytes(config: Config, num_tokens: int) -> int:
    """What `gpt bench` takes without more flags: models to train, then models to sample from."""
    return max(training_bytes(config, config.train.batch_size), sampling_bytes(config, num_tokens))


def beside_bytes(config: Config, num_tokens: int) -> int:
    """What `--busy` takes: a training as `gpt train` does it, and decoders, at once."""
    return _estimate(config, config.train.sequences_at_once).training_bytes + sampling_bytes(config, num_tokens)


def attention_bytes(config: Config, configs: Mapping[str, Config]) -> int:
    """What `--attention` takes: of each of `with_forms` two trainings, a model and a decoder, and what one step keeps.

    Before that comes one layer of each form, by itself, in float32, on a whole batch; afterwards an evaluation of one.
    """
    found = [_estimate(each, config.train.sequences_at_once, each.train.dtype) for each in configs.values()]
    embedding = vocab_size_of(config) * config.model.d_model
    held = sum((2 * (4 + 8) + 4 + 4) * each.parameters + 4 * embedding for each in found)
    layer = _estimate(config.changed(model={"num_blocks": 1}), config.train.batch_size).training_bytes
    return max(held + max(each.training_bytes - 12 * each.parameters for each in found), held + layer)


def together_bytes(config: Config, num_processes: int) -> int:
    """What `--processes` takes: one process that trains alone, and so many that train together and with torch's means.

    Each imports torch; to train with DistributedDataParallel it has a second model, and buckets for its gradients.
    """
    settings, sizes = config.train, config.model
    micro = settings.sequences_at_once

    def held(size: int) -> int:
        costs = rank_costs(
            sizes,
            vocab_size_of(config),
            size,
            micro_batch_size=micro,
            dtype=settings.dtype,
            num_lanes=settings.batch_size // micro,
        )
        return costs["replicate"].bytes_held

    parameters = _estimate(config, 1).parameters
    each = held(num_processes) + (16 + 4 + 8) * parameters
    return PROCESS_BYTES * (num_processes + 1) + num_processes * each + held(1)


def _estimate(config: Config, num_sequences: int, dtype: str = "float32") -> Estimate:
    return estimate(config.model, vocab_size_of(config), micro_batch_size=num_sequences, dtype=dtype)
