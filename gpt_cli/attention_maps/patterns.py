"""Compute a model's attention on one prompt, as NumPy arrays; check beforehand that memory and disk space suffice."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from gpt_cli.attention_maps.file_formats import num_dots, writing_bytes, written_bytes
from gpt_cli.attention_maps.head_metrics import HeadScores, Row
from gpt_cli.attention_maps.head_scores import BYTES_PER_WEIGHT, num_repeats, repeated_length, sequences_at_once
from gpt_cli.attention_maps.logit_attribution import Writes, head_writes_bytes
from gpt_cli.common.drawing.token_labels import Origin
from gpt_cli.common.machine.devices import float64_device
from gpt_cli.common.machine.memory import available_memory, require_available
from gpt_cli.config import ModelConfig
from gpt_cli.errors import UsageError, counted
from gpt_cli.model import GPT
from gpt_cli.model.gpt import require_finite
from gpt_cli.text.tokenizers import Tokenizer


@dataclass(frozen=True)
class Prediction:
    """The probability (0 to 1) and the rank (1: most probable) of a token that the model generated."""

    probability: float
    rank: int


@dataclass(frozen=True, eq=False)
class AttentionDump:
    """Attention weights, and on request other tensors of attention, of `heads` in each of `layers` on one prompt.

    `stages` maps a tensor's name to its array: weights and scores are [layers, heads, T, T], with queries as rows and
    keys as columns; queries, keys, values and heads (outputs) are [layers, heads, T, K], but queries and keys of latent
    attention are wider. `predictions` has an entry for each token at the end of `tokens` that the model generated.
    """

    tokens: tuple[str, ...]
    token_ids: tuple[int, ...]
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    stages: Mapping[str, np.ndarray]
    origin: Origin
    predictions: tuple[Prediction, ...] = ()
    # for an HTML page, of `layers` and `heads`: scores, tokens whose logits heads change most, texts of these tokens,
    # and what each layer would predict at each position, as `gpt lens` reports it
    scores: HeadScores | None = None
    writes: Writes | None = None
    texts: Mapping[int, str] = field(default_factory=dict)
    lens: Sequence[Row] = ()

    @property
    def weights(self) -> np.ndarray:
        return self.stages["weights"]


def dump_attention(
    model: GPT,
    tokenizer: Tokenizer,
    ids: Sequence[int],
    *,
    layers: Sequence[int],
    heads: Sequence[int],
    origin: Origin,
    stages: Sequence[str] = ("weights",),
    file_dtype: str = "float32",
    num_generated: int = 0,
) -> AttentionDump:
    """Run a model on ids [T], and return the tensors `stages` (such as weights) of `heads` in each of `layers`.

    `file_dtype` is the type of the arrays, float32 or float16. The model generated the last `num_generated` ids; the
    result has the probability and rank of each. `origin` becomes part of the result. Raises CheckpointError for NaN or
    infinity, UsageError for a value that is too large for float16.
    """
    batch = torch.tensor([list(ids)], device=model.token_embedding.weight.device)
    arrays: dict[str, np.ndarray] = {}
    for row, (layer, of_layer) in enumerate(zip(layers, model.attention_stages(batch, layers, heads), strict=True)):
        for stage in stages:
            tensor = getattr(of_layer, stage)[0]
            require_finite(tensor, f"{stage} in layer {layer}", model.where)
            array = tensor.cpu().numpy()
            if file_dtype == "float16" and np.abs(array).max() > np.finfo(np.float16).max:
                wrong = f"float16 cannot hold {stage} of {np.abs(array).max():g}"
                raise UsageError("‹file_dtype›", wrong, hint="‹file_dtype=float32›")
            if row == 0:
                arrays[stage] = np.empty((len(layers), *array.shape), file_dtype)
            arrays[stage][row] = array
    tokens = tuple(tokenizer.token_text(token) for token in ids)
    predictions = _predictions(model, batch, num_generated)
    return AttentionDump(tokens, tuple(ids), tuple(layers), tuple(heads), arrays, origin, predictions)


@torch.inference_mode()
def _predictions(model: GPT, batch: torch.Tensor, num_generated: int) -> tuple[Prediction, ...]:
    """Return the probability and rank of each of the last `num_generated` tokens of a batch [1, T]."""
    if not num_generated:
        return ()
    logits = model.logits(model.last_residual(batch)[0, -num_generated - 1 : -1])
    logits = logits.to(float64_device(logits.device)).double()
    chosen = logits.gather(1, batch[0, -num_generated:, None].to(logits.device))
    probabilities = (chosen - logits.logsumexp(dim=1, keepdim=True)).exp()[:, 0]
    ranks = 1 + (logits > chosen).sum(dim=1)
    return tuple(Prediction(p, r) for p, r in zip(probabilities.tolist(), ranks.tolist(), strict=True))


def require_room_for_dump(
    command: str,
    model: GPT,
    num_tokens: int,
    *,
    layers: Sequence[int],
    heads: Sequence[int],
    stages: Sequence[str] = ("weights",),
    ending: str | None,
    out: Path | None,
    shorter: str = "use a shorter prompt",
) -> None:
    """Raise EnvironmentFailure if memory or disk cannot hold the attention that `command` is about to compute.

    `ending` is the ending of the file to write, such as .png (None: no file), and `out` is its path (None: do not check
    the disk). The hint of the error is `shorter`, or, for `command` attn-dump, to choose one head if one head fits.
    """
    numbers = count_numbers(stages, num_tokens, model.config)

    def needs(num_layers: int, num_heads: int) -> tuple[int, int]:
        """Return the bytes of memory and of disk that the attention of some layers and heads needs."""
        count, on_page, writing, file_size = num_layers * num_heads, 0, 0, 0
        if ending is not None:
            writing, file_size = writing_bytes(ending, numbers, num_dots(num_tokens, num_layers, num_heads))
        if ending == ".html":
            more_memory, more_disk = written_bytes(count, num_tokens)
            writing, file_size = writing + more_memory, file_size + more_disk
            on_page = _bytes_of_heads(model, num_heads, num_tokens)
        # one layer is computed at a time, but the arrays of all layers are kept
        of_layer = BYTES_PER_WEIGHT * num_tokens**2 * num_heads
        return max(of_layer, on_page) + (4 * numbers + writing) * count, file_size * count

    free = [(available_memory(), "memory")]
    if out is not None:
        folder = next(parent for parent in out.absolute().parents if parent.is_dir())
        free.append((shutil.disk_usage(folder).free, "disk"))
    count = len(layers) * len(heads)
    about = f"{counted(count, 'head')} on {counted(num_tokens, 'token')}"
    for need, of_one, (left, what) in zip(needs(len(layers), len(heads)), needs(1, 1), free, strict=False):
        fits = command == "attn-dump" and count > 1 and of_one <= (left or 0)
        hint = f"‹layers={layers[0]}› ‹heads={heads[0]}›" if fits else shorter
        require_available(command, about, need, left, what=what, hint=hint)


def _bytes_of_heads(model: GPT, num_heads: int, num_tokens: int) -> int:
    """Estimate the temporary memory, in bytes, to score a layer's heads and find the tokens whose logits they raise."""
    sizes, T = model.config, repeated_length(model)
    scoring = BYTES_PER_WEIGHT * num_heads * T**2 * min(num_repeats(model), sequences_at_once(sizes.num_heads, T))
    writing = BYTES_PER_WEIGHT * sizes.num_heads * num_tokens**2  # to compute outputs of heads
    return max(scoring, writing, head_writes_bytes(model, num_tokens))


def count_numbers(stages: Sequence[str], num_tokens: int, sizes: ModelConfig) -> int:
    """Return the total number of values in the tensors `stages` (weights, queries, ...) of one head."""
    widths = {"weights": num_tokens, "scores": num_tokens, "queries": sizes.query_size, "keys": sizes.query_size}
    return sum(num_tokens * widths.get(stage, sizes.value_size) for stage in stages)
