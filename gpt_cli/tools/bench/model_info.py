"""`gpt info`: parameters, operations and memory of a config, a run or a checkpoint."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpt_cli.checkpoints.checkpoint import Checkpoint, read_checkpoint
from gpt_cli.checkpoints.run_directory import RunDirectory
from gpt_cli.common.host import Host
from gpt_cli.common.machine.devices import choose_device, choose_dtype
from gpt_cli.common.results import Result
from gpt_cli.common.tables import Rows
from gpt_cli.common.units import size
from gpt_cli.config import Config
from gpt_cli.distributed.launch import fitting_sizes, require_fitting
from gpt_cli.errors import CheckpointError, UsageError, inert, visible
from gpt_cli.model.costs import CostEstimate, cache_bytes_by_attention
from gpt_cli.text.encode import both_examples, encode
from gpt_cli.text.load import read_data, split_of
from gpt_cli.text.sft_examples import ConversationCorpus
from gpt_cli.text.train_tokenizer import learn_tokenizer
from gpt_cli.tools.bench.request import InfoRequest
from gpt_cli.training.state import training_costs


@dataclass(frozen=True)
class Info(Result):
    """Costs of a model and of each training process (`of_ranks`); `stored` describes a checkpoint ({} for a config)."""

    costs: CostEstimate
    vocab_size: int
    training_tokens: int | None  # None, like all figures of a training, if another program trained the model
    cache_bytes_by_attention: dict[str, int]
    of_ranks: dict[str, Any]  # memory of each of several processes that train together; empty without --ranks
    stored: dict[str, Any]  # empty for a config

    _repr_keys = ("checkpoint", "step", "parameters", "vocab_size", "tokens_per_parameter")

    def as_dict(self) -> dict[str, Any]:
        """Return the object that `gpt info --json` prints."""
        costs, tokens = self.costs, self.training_tokens
        figures = {
            "vocab_size": self.vocab_size,
            "parameters": costs.parameters,
            "parameters_by_part": costs.parameters_by_part,
            "training_tokens": tokens,
            "tokens_per_parameter": tokens and tokens / costs.parameters,
            "training_flops_per_token": costs.training_flops_per_token,
            "sampling_flops_per_token": costs.sampling_flops_per_token,
            "training_bytes": tokens and costs.training_bytes,
            "sampling_bytes": costs.sampling_bytes,
            "cache_bytes_per_token": costs.cache_bytes_per_token,
            "cache_bytes_by_attention": self.cache_bytes_by_attention,
        }
        return {**self.stored, **figures, **self.of_ranks}

    def parts(self) -> list[Rows]:
        """Return a table of the names and values in `as_dict`."""
        rows: list[tuple[str, str]] = [("", "")]
        for key, value in self.as_dict().items():
            name = key.replace("_bytes", "_memory").replace("_", " ")
            if isinstance(value, dict):
                rows += [(name, ""), *((f"  {part}", _cell(key, number)) for part, number in value.items())]
            elif value is not None:
                rows.append((name, _cell(key, value)))
        return [rows]


def _cell(key: str, value: Any) -> str:
    if isinstance(value, str):
        return inert(value)
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if value is True:
        return "every byte"
    if "bytes" in key:
        return size(round(value))
    return f"{value:.4g}" if isinstance(value, float) and value < 1000 else f"{round(value):,}"


def info(request: InfoRequest, target: tuple[Path, Path | Config], host: Host) -> Info:
    """Describe a config, or verify and describe a checkpoint; for a run, also report which checkpoints are intact.

    `target` is the result of `request.find`. If `request.ranks` is N, also estimate what each of N processes that train
    together needs. Raises UsageError if N processes cannot share the training, CheckpointError if the checkpoint is
    damaged, DataError if a config's training text is unusable.
    """
    path, chosen = target
    num_ranks = request.ranks
    if isinstance(chosen, Config):  # whose training text gives the vocabulary and the number of tokens
        training, validation = split_of(read_data(chosen.data, host), chosen.data, host)
        tokenizer = learn_tokenizer(chosen.tokenizer, training, validation, host)
        if isinstance(training, ConversationCorpus) and isinstance(validation, ConversationCorpus):
            num_tokens = len(both_examples(training, validation, chosen, tokenizer, host)[0])
        else:
            with host.counting("tokenizing", training.num_bytes, "B") as count:
                num_tokens = len(encode(training, tokenizer, count, host.notice))
        return _info(chosen, tokenizer.vocab_size, num_tokens, num_ranks, {})
    directory, files = RunDirectory(path), [chosen]
    if path.is_dir():
        files = [file for file in (*directory.steps().values(), directory.best) if file.exists()]
    with host.started("verifying", len(files), "checkpoints") as count:
        stored = read_checkpoint(chosen, everything=True, keep=False)
        states = {}
        for file in files:
            with suppress(FileNotFoundError):  # a training has removed it meanwhile
                states[file.name] = _state(file, stored if file == chosen else None)
            count(1)
    if num_ranks is not None:
        if stored.progress.imported:
            raise UsageError("‹ranks›", "this model was imported, so gpt has no training settings for it")
        require_fitting(num_ranks, stored.config, "‹ranks›", fixed=True)
    progress = stored.progress
    facts: dict[str, Any] = {"checkpoint": str(chosen), "verified": True, "step": progress.step}
    if path.is_dir():
        facts["checkpoints"] = states
    if progress.began_from is not None:
        facts["began_from"] = visible(progress.began_from)
    if progress.imported:
        facts["state"] = "imported"
    else:
        facts |= {"best_validation_loss": progress.best_loss, "training_seconds": round(progress.seconds, 3)}
    stored.build_model()
    types = {str(weight.dtype).removeprefix("torch.") for weight in stored.weights.values()}
    facts["weights"] = ", ".join(sorted(types))
    return _info(stored.config, stored.tokenizer.vocab_size, progress.num_training_tokens, num_ranks, facts)


def _state(file: Path, stored: Checkpoint | None) -> str:
    """Describe whether a checkpoint is intact and resumable; read `file` if `stored`, the file's content, is None."""
    num_bytes = file.stat().st_size
    try:
        stored = stored or read_checkpoint(file, everything=True, keep=False)
    except CheckpointError as error:
        return f"damaged ({error})"
    return f"intact, {size(num_bytes)}" + (", resumable" if stored.optimizer_state else "")


def _info(config: Config, vocab_size: int, num_tokens: int, num_ranks: int | None, stored: dict[str, Any]) -> Info:
    device = choose_device("auto")
    dtype = choose_dtype(config.train.dtype, device, config.model.d_model)
    config = config.changed(train={"dtype": dtype, "device": device.type})
    costs, of_ranks = training_costs(config, vocab_size), dict[str, Any]()
    if num_ranks is not None:
        of_rank = training_costs(config, vocab_size, num_ranks)
        of_ranks = {
            "ranks": num_ranks,
            "fitting_ranks": fitting_sizes(config.train.num_micro_batches),
            "rank_training_bytes": of_rank.training_bytes,
            "first_rank_saving_bytes": of_rank.gathered_bytes,
            "bytes_sent_by_rank_per_step": of_rank.sent_bytes_per_step,
        }
    return Info(costs, vocab_size, num_tokens or None, cache_bytes_by_attention(config.model), of_ranks, stored)
