"""About what memory `gpt bench` takes, counted before it builds a model."""

from __future__ import annotations

from gpt_cli.config import Config
from gpt_cli.errors import counted
from gpt_cli.machine.memory import available_memory
from gpt_cli.machine.room import require_room
from gpt_cli.model.costs import Estimate, estimate

PROMPT = list(range(8))
NUM_SAMPLES = 32


def vocab_size_of(config: Config) -> int:
    """The vocabulary size that a config asks for, or a likely one where the text would decide."""
    published = {"cl100k_base": 100_277, "o200k_base": 200_019}.get(config.tokenizer.name, 50_257)
    return {"bpe": config.tokenizer.vocab_size, "byte": 257, "char": 66, "tiktoken": published}[config.tokenizer.kind]


def require_batch(config: Config, num_tokens: int) -> None:
    """Raise EnvironmentFailure for a batch for which main memory is too small, and name one that it can hold."""
    free, settings = available_memory(), config.train
    smaller = (n for n in (2**k for k in range(16, -1, -1)) if n < settings.batch_size)
    if settings.micro_batch_size is not None:
        smaller = (n for n in smaller if n % settings.sequences_at_once == 0)
    fitting = (n for n in smaller if plain_bytes(config.changed(train={"batch_size": n}), num_tokens) <= (free or 0))
    needed = plain_bytes(config, num_tokens)
    size = next(fitting, None) if needed > (free or 0) else None
    hint = "choose a smaller model" if size is None else f"--set train.batch_size={size}"
    about = f"{counted(settings.batch_size, 'sequence')} of {counted(config.model.context_length, 'token')}"
    require_room("bench", about, needed, free, what="memory", hint=hint)


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
    """What `gpt bench` takes: models to train, then models to sample from."""
    return max(training_bytes(config, config.train.batch_size), sampling_bytes(config, num_tokens))


def _estimate(config: Config, num_sequences: int) -> Estimate:
    return estimate(config.model, vocab_size_of(config), micro_batch_size=num_sequences, dtype="float32")
