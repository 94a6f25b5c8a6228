"""What a training knows before its first step, without one."""

from pathlib import Path

from gpt_cli.config.load import read_config
from gpt_cli.model.costs import estimate
from gpt_cli.training.events import Prepared


def prepared(name: str, *settings: str, vocab_size: int, tokens: int, documents: int = 79) -> Prepared:
    """Of a run of a shipped config with settings over it; a tenth as many tokens are for validation."""
    config = read_config(name, settings)
    train = config.train
    steps = train.max_steps or 0
    costs = estimate(config.model, vocab_size, micro_batch_size=train.sequences_at_once, dtype="float32")
    return Prepared(
        directory=Path("run"),
        config=config,
        step=0,
        elapsed=0.0,
        costs=costs,
        num_processes=1,
        num_documents=documents,
        num_characters=4 * tokens,
        num_training_tokens=tokens,
        num_validation_tokens=tokens // 10,
        vocab_size=vocab_size,
        steps_left=steps,
        epochs_left=steps * config.tokens_per_step / tokens,
        seconds_left=60.0,
        closing_seconds=1.0,
        prompt="The",
    )
