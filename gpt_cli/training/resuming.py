"""What may change when a run continues, and what must stay the same for it to be exact to the last bit."""

from __future__ import annotations

import torch

from gpt_cli.checkpoints.checkpoint import Checkpoint
from gpt_cli.config import Config
from gpt_cli.config.reading import differences
from gpt_cli.errors import CheckpointError, together
from gpt_cli.machine.devices import processor

# any other setting would make it another run
FREE_KEYS = frozenset(
    {
        "data.validation_tokens",
        "data.skip_bad",  # the text itself must be the same
        "data.max_expansion",
        "train.max_steps",
        "train.max_time",
        "train.micro_batch_size",
        "train.device",
        "train.threads",
        "train.compile",
        "train.parallel",
        "train.log_every",
        "train.eval_every",
        "train.eval_tokens",
        "train.sample_every",
        "train.sample_prompt",
        "train.save_every",
        "train.keep_checkpoints",
        "train.patience",
        "inspect.prompt",
        "inspect.every",
        "train.log_to",
    }
)
OTHER_CORPUS = "the corpus is not the one that this run began with"
RESTORE_CORPUS = "restore the text, or start anew with another --out"


def config_to_resume(stored: Config, asked: Config, run: Config | None) -> Config:
    """The asked config, in which `auto` means what the run chose; raises CheckpointError for every fixed setting.

    `stored` is of the checkpoint, `run` of config.yaml. A stranger's checkpoint in a run starts no compiler.
    """
    sources = {"dtype": stored, "device": run, "compile": run}
    chosen = {
        key: getattr(source.train, key)
        for key, source in sources.items()
        if source is not None and getattr(asked.train, key) == "auto"
    }
    asked = asked.changed(train=chosen)
    fixed = [
        CheckpointError("--resume", f"{key} was {old} in this run and is {new} now, and it may not change")
        for key, old, new in differences(stored, asked)
        if key not in FREE_KEYS
    ]
    if fixed:
        fixed[
            0
        ].hint = (
            "leave out what changes these settings (--config, --set, --seed, ...), or start anew with another --out"
        )
        raise together(fixed)
    return asked


def environment(config: Config) -> dict[str, str]:
    """What two runs must have in common to agree bit for bit."""
    # versions before the tree added micro-batches in their order, which for up to three is the same
    sums = {"sums": "tree"} if config.train.num_lanes > 3 and config.train.num_lanes % 2 == 0 else {}
    return sums | {
        "torch": torch.__version__,
        "threads": str(torch.get_num_threads()),
        "processor": processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "device": config.train.device,
        "dtype": config.train.dtype,
    }


def environment_changes(continued: Checkpoint, config: Config) -> list[str]:
    """What differs from the environment in which a checkpoint was written, such as "threads 2 -> 4"."""
    # a version without a compiler stored auto, and compiled nothing
    compiled, compiles = (settings.compile == "on" for settings in (continued.config.train, config.train))
    micro_batch_size = continued.config.train.micro_batch_size
    then = {**continued.progress.environment, "micro_batch_size": micro_batch_size, "compiled": compiled}
    now = {**environment(config), "micro_batch_size": config.train.micro_batch_size, "compiled": compiles}
    return [f"{name} {then.get(name)} -> {value}" for name, value in now.items() if then.get(name) != value]


def require_same_text(continued: Checkpoint, data_digest: str) -> None:
    """Raises CheckpointError where the text's ids are not those that the run was trained on."""
    if (then := continued.progress.data_digest) != data_digest:
        wrong = f"{OTHER_CORPUS}: its tokens have sha256 {data_digest[:16]}, and had {then[:16]} then"
        raise CheckpointError("--resume", wrong, hint=RESTORE_CORPUS)
