"""The attention of a model on one prompt, as NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from gpt_cli.attention_maps.head_metrics import HeadScores, Row
from gpt_cli.attention_maps.logit_attribution import Writes
from gpt_cli.common.drawing.token_labels import Origin
from gpt_cli.common.machine.devices import float64_device
from gpt_cli.errors import UsageError, shown
from gpt_cli.evaluation.nll import LOGITS_AT_ONCE
from gpt_cli.model import GPT
from gpt_cli.model.gpt import require_finite
from gpt_cli.text.tokenizers import Tokenizer


@dataclass(frozen=True)
class Prediction:
    """The probability (0 to 1) that the model gave a token it generated, and the token's rank (1: most probable)."""

    probability: float
    rank: int


@dataclass(frozen=True)
class AttentionDump:
    """Attention weights and other intermediate tensors of the chosen heads on one prompt.

    `stages` maps a name to [layers, heads, T, T] (weights, scores: rows are queries, columns keys) or [layers, heads,
    T, K] (all others; queries and keys of latent attention are wider than K). `predictions` has one entry for each of
    the last tokens, if the model itself generated them.
    """

    tokens: tuple[str, ...]
    token_ids: tuple[int, ...]
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    stages: Mapping[str, np.ndarray]
    predictions: tuple[Prediction, ...] = ()
    origin: Origin | None = None
    # for a page, of the same layers and heads: the scores of these, what they write, the texts of the tokens in that,
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
    stages: Sequence[str] = ("weights",),
    file_dtype: str = "float32",
    num_generated: int = 0,
    origin: Origin | None = None,
) -> AttentionDump:
    """Compute attention weights and other `stages` of the given heads on ids [T], as float32 or float16 arrays.

    The model wrote the last `num_generated` ids. Raises CheckpointError for NaN/inf, UsageError if float16 overflows.
    """
    device = model.token_embedding.weight.device
    batch = torch.tensor([list(ids)], device=device)
    arrays: dict[str, np.ndarray] = {}
    for row, (layer, of_layer) in enumerate(zip(layers, model.attention_stages(batch, layers, heads), strict=True)):
        for stage in stages:
            tensor = getattr(of_layer, stage)[0]
            require_finite(tensor, f"{stage} in layer {layer}", shown(origin.checkpoint) if origin else "checkpoint")
            array = tensor.cpu().numpy()
            if file_dtype == "float16" and np.abs(array).max() > np.finfo(np.float16).max:
                wrong = f"float16 cannot hold {stage} of {np.abs(array).max():g}"
                raise UsageError("‹file_dtype›", wrong, hint="‹file_dtype=float32›")
            if row == 0:
                arrays[stage] = np.empty((len(layers), *array.shape), file_dtype)
            arrays[stage][row] = array
    tokens = tuple(tokenizer.token_text(token) for token in ids)
    predictions = _predictions(model, batch, num_generated)
    return AttentionDump(tokens, tuple(ids), tuple(layers), tuple(heads), arrays, predictions, origin)


@torch.inference_mode()
def _predictions(model: GPT, batch: torch.Tensor, num_generated: int) -> tuple[Prediction, ...]:
    """Return the probability and rank of each of the last `num_generated` tokens of a batch [1, T]."""
    if not num_generated:
        return ()
    x = model.last_residual(batch)[:, -max(num_generated + 1, LOGITS_AT_ONCE // model.vocab_size) :]
    logits = model.logits(x)[0, -num_generated - 1 : -1]
    logits = logits.to(float64_device(logits.device)).double()
    chosen = logits.gather(1, batch[0, -num_generated:, None].to(logits.device))
    probabilities = (chosen - logits.logsumexp(dim=1, keepdim=True)).exp()[:, 0]
    ranks = 1 + (logits > chosen).sum(dim=1)
    return tuple(Prediction(p, r) for p, r in zip(probabilities.tolist(), ranks.tolist(), strict=True))
