"""What a config may ask for that came with a model, whose maker may be a stranger."""

from __future__ import annotations

from gpt_cli.config.schema import Config

# how a model learned: no texts, nothing that runs or connects, no limits, nothing of a machine
_LEARNING = {
    "data": ("text_field", "separator", "validation_fraction", "validation_tokens", "loss", "template"),
    "train": (
        "batch_size",
        "micro_batch_size",
        "max_steps",
        "max_time",
        "optimizer",
        "learning_rate",
        "muon_learning_rate",
        "warmup_steps",
        "schedule",
        "weight_decay",
        "gradient_clip",
        "rank",
        "freeze",
        "seed",
        "log_every",
        "eval_every",
        "eval_tokens",
        "sample_every",
        "save_every",
        "keep_checkpoints",
        "patience",
    ),
}


def of_a_stranger(config: Config) -> Config:
    """The config of a model from elsewhere, with the defaults in the place of all that leads beyond the model."""
    kept = {
        section: {key: getattr(getattr(config, section), key) for key in keys} for section, keys in _LEARNING.items()
    }
    default = Config().changed(**kept)
    return default.model_copy(update={"model": config.model, "tokenizer": config.tokenizer})
