"""What `gpt info` does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpt_cli.checkpoints.checkpoint import Checkpoint, read_checkpoint
from gpt_cli.checkpoints.finding import find_checkpoint, newest_run
from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.cli.terminal import Console, size, table
from gpt_cli.config import Config
from gpt_cli.config.reading import read_config
from gpt_cli.errors import CheckpointError, UsageError
from gpt_cli.machine import choose_device, choose_dtype
from gpt_cli.model.costs import cache_bytes_by_attention, estimate
from gpt_cli.text.corpus import read_split
from gpt_cli.text.tokenizer import make_tokenizer
from gpt_cli.text.tokens import encode_documents


def info(*, path: str | None, checkpoint: str | None, json: bool, quiet: bool) -> None:
    """Print the facts of a config, a run or a checkpoint."""
    console = Console(quiet)
    if path is None:
        path = str(newest_run())
        console.notice(path)
    target = Path(path)
    # a path with a folder that does not end like a config names a run
    names_a_run = target.suffix == ".safetensors" or ("/" in path and target.suffix not in (".yaml", ".yml"))
    if target.is_dir() or names_a_run:
        facts = _of_run(target, checkpoint)
    elif checkpoint is not None:
        raise UsageError("--checkpoint", f"{path} is a config, and only runs have checkpoints")
    else:
        facts = _of_config(read_config(path), console)
    if json:
        console.json(facts)
    else:
        console.result(_as_table(facts))


def _of_run(path: Path, which: str | None) -> dict[str, Any]:
    """The facts of a checkpoint, of which every byte is verified; of a run also which checkpoints are intact."""
    chosen = find_checkpoint(path, which)
    stored = read_checkpoint(chosen, everything=True)
    facts: dict[str, Any] = {"checkpoint": str(chosen), "verified": True, "step": stored.progress.step}
    if path.is_dir():
        directory = RunDirectory(path)
        facts["checkpoints"] = {
            file.name: _state(file, stored if file == chosen else None)
            for file in (*directory.steps().values(), directory.best)
            if file.exists()
        }
    facts["best_validation_loss"] = stored.progress.best_loss
    facts["training_seconds"] = round(stored.progress.seconds, 3)
    stored.build_model()
    return facts | _costs(stored.config, stored.tokenizer.vocab_size, stored.progress.num_training_tokens)


def _state(file: Path, read: Checkpoint | None) -> str:
    """How a checkpoint is, which may have been read already."""
    try:
        read = read or read_checkpoint(file, everything=True)
    except CheckpointError as error:
        return f"damaged ({error})"
    return f"intact, {size(file.stat().st_size)}" + (", resumable" if read.moments else "")


def _of_config(config: Config, console: Console) -> dict[str, Any]:
    """The facts of a config; its text is read for the vocabulary and the number of tokens."""
    training, validation = read_split(config.data)
    tokenizer = make_tokenizer(config.tokenizer, training.documents, validation.documents)
    with console.counting("tokenizing", training.num_characters, "characters") as count:
        num_tokens = len(encode_documents(training.documents, tokenizer, count))
    return _costs(config, tokenizer.vocab_size, num_tokens)


def _costs(config: Config, vocab_size: int, num_tokens: int) -> dict[str, Any]:
    settings = config.train
    dtype = choose_dtype(settings.dtype, choose_device("auto"), config.model.d_model)
    costs = estimate(
        config.model,
        vocab_size,
        micro_batch_size=settings.sequences_at_once,
        dtype=dtype,
    )
    return {
        "vocab_size": vocab_size,
        "parameters": costs.parameters,
        "parameters_by_part": costs.parameters_by_part,
        "training_tokens": num_tokens,
        "tokens_per_parameter": num_tokens / costs.parameters,
        "training_flops_per_token": costs.training_flops_per_token,
        "sampling_flops_per_token": costs.sampling_flops_per_token,
        "training_bytes": costs.training_bytes,
        "sampling_bytes": costs.sampling_bytes,
        "cache_bytes_per_token": costs.cache_bytes_per_token,
        "cache_bytes_by_attention": cache_bytes_by_attention(config.model),
    }


def _as_table(facts: dict[str, Any]) -> str:
    rows: list[tuple[str, str]] = []
    for key, value in facts.items():
        name = key.replace("_bytes", "_memory").replace("_", " ")
        if isinstance(value, dict):
            rows.append((name, ""))
            rows += [(f"  {part}", _written(key, number)) for part, number in value.items()]
        elif value is None:
            rows.append((name, "none"))
        elif value is True:
            rows.append((name, "every byte"))
        elif isinstance(value, float) and "bytes" not in key:
            rows.append((name, f"{value:.4g}"))
        else:
            rows.append((name, _written(key, value)))
    return table(rows)


def _written(key: str, value: float | str) -> str:
    if isinstance(value, str):
        return value
    return size(round(value)) if "bytes" in key else f"{value:,}"
