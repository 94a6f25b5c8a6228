"""The classic example: six tokens of three numbers each, and attention over them in seven forms.

The inputs, the seeds and the order of drawing are those that courses on building a GPT from scratch use; everything
else is computed here and now by the attention of this package.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpt_cli.explaining.report import Label, Note, Report, Step
from gpt_cli.model import Attention
from gpt_cli.model.attention import attention_scores, attention_weights, causal_mask

WORDS = ("Your", "journey", "starts", "with", "one", "step")
EMBEDDINGS = (
    (0.43, 0.15, 0.89), (0.55, 0.87, 0.66), (0.57, 0.85, 0.64),
    (0.22, 0.58, 0.33), (0.77, 0.25, 0.10), (0.05, 0.80, 0.55),
)  # fmt: skip


def step_of(part: str, name: str, formula: str, found: Tensor, *, title: Note | None = None) -> Step:
    """A step with a row for each word; six columns are the words too."""
    columns: tuple[Label, ...] = WORDS if found.shape[1] == len(WORDS) else ()
    return Step(name, formula, found.double().numpy(), WORDS, columns, part, title=title)


@torch.no_grad()
def journey() -> Report:
    """All seven forms, each from its own seed; torch's own generator is left as it was."""
    x = torch.tensor(EMBEDDINGS)
    with torch.random.fork_rng(devices=[]):
        steps = [step_of("inputs", "token_embedding", "x", x)]
        for part in (_simple, _trainable, _linear, _causal, _dropout, _multi_head, _split):
            steps += part(x)
    return Report(Note("journey_title"), steps, {"example": "journey"})


def _simple(x: Tensor) -> list[Step]:
    scores = attention_scores(x, x)
    weights = scores.softmax(dim=-1)
    return [
        step_of("simple", "scores", "s = x xᵀ", scores),
        step_of("simple", "shares", "s / Σ s", scores / scores.sum(dim=-1, keepdim=True)),
        step_of("simple", "weights", "w = softmax(s)", weights),
        step_of("simple", "contexts", "w x", weights @ x),
    ]


def _projected(part: str, source: str, queries: Tensor, keys: Tensor, values: Tensor) -> list[Step]:
    """Attention to all tokens, later ones too."""
    scores = attention_scores(queries, keys)
    weights = attention_weights(scores, torch.zeros(len(WORDS), len(WORDS), dtype=torch.bool), queries.shape[-1])
    return [
        step_of(part, "queries", f"q = {source.format('q')}", queries),
        step_of(part, "keys", f"k = {source.format('k')}", keys),
        step_of(part, "values", f"v = {source.format('v')}", values),
        step_of(part, "scores", "s = q kᵀ", scores),
        step_of(part, "weights", "w = softmax(s / √2)", weights),
        step_of(part, "contexts", "w v", weights @ values),
    ]


def _trainable(x: Tensor) -> list[Step]:
    torch.manual_seed(123)
    Wq, Wk, Wv = (torch.rand(3, 2) for _ in range(3))
    return _projected("trainable", "x W{0}", x @ Wq, x @ Wk, x @ Wv)


def linear_head() -> Attention:
    """The head of c, d and e."""
    torch.manual_seed(789)
    return Attention(3, 2)


def _linear(x: Tensor) -> list[Step]:
    head = linear_head()
    return _projected("linear", "W{0} x", head.Wq(x), head.Wk(x), head.Wv(x))


def _causal(x: Tensor) -> list[Step]:
    stages = linear_head().stages(x)
    mask = causal_mask(len(WORDS))
    before = (stages.scores * 2**-0.5).softmax(dim=-1)
    masked = before.masked_fill(mask, 0)
    hidden = (stages.scores * 2**-0.5).masked_fill(mask, -torch.inf)
    return [
        step_of("causal", "weights_before_masking", "softmax(s / √2)", before),
        step_of("causal", "masked_weights", "j > i: 0", masked),
        step_of("causal", "renormalised", "w / Σ w", masked / masked.sum(dim=-1, keepdim=True)),
        step_of("causal", "masked", "s / √2; j > i: -∞", hidden),
        step_of("causal", "masked_before_softmax", "softmax", stages.weights),
        step_of("causal", "contexts", "w v", stages.heads),
    ]


def _dropout(x: Tensor) -> list[Step]:
    weights = linear_head().weights(x)
    torch.manual_seed(123)
    return [
        step_of("dropout", "weights", "w", weights),
        step_of("dropout", "dropped", "w · keep / (1 - 0.5)", F.dropout(weights, 0.5)),
    ]


def _multi_head(x: Tensor) -> list[Step]:
    torch.manual_seed(123)
    heads = [Attention(3, 2) for _ in range(2)]
    return _of_heads("multi_head", x, heads)


def _split(x: Tensor) -> list[Step]:
    torch.manual_seed(123)
    layers = [nn.Linear(3, 2, bias=False) for _ in range(3)]
    output = nn.Linear(2, 2)
    heads = [Attention(3, 1) for _ in range(2)]
    for number, head in enumerate(heads):
        for own, shared in zip((head.Wq, head.Wk, head.Wv), layers, strict=True):
            own.weight.copy_(shared.weight[number : number + 1])
    steps = _of_heads("split", x, heads)
    joined = torch.from_numpy(steps[-1].numbers).float()
    return [*steps, step_of("split", "projected", "o = W c + b", output(joined))]


def _of_heads(part: str, x: Tensor, heads: list[Attention]) -> list[Step]:
    """Weights and output of each head, then all outputs side by side."""
    steps, outputs = [], []
    for number, head in enumerate(heads):
        stages = head.stages(x)
        outputs.append(stages.heads)
        title = Note("head_outputs", {"number": number})
        steps.append(step_of(part, f"weights_{number}", "w = softmax(s / √K)", stages.weights, title=Note("weights")))
        steps.append(step_of(part, f"head_{number}", f"h{number} = w v", stages.heads, title=title))
    return [*steps, step_of(part, "concatenated", "c = (h0, h1)", torch.cat(outputs, dim=-1))]


def numbers_of(report: Report, part: str, name: str) -> np.ndarray:
    """What a step of a part gives: [rows, columns]."""
    (found,) = [step.numbers for step in report.steps if (step.part, step.name) == (part, name)]
    return found
